"""`rollview demo --anomaly`: the anomaly that the whole field is about, and how the sweep avoids it."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rollview.algorithms.algorithm import Level, Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.commands.printing import contents_text, level_text
from rollview.lab.examples.strobe import DELETION_AFTER_FIRST_ANSWER, SWEEP_STEPS, example_world
from rollview.lab.simulator.campaign import Campaign, run_campaign
from rollview.lab.simulator.checker import check
from rollview.lab.simulator.network import NETWORKS
from rollview.lab.simulator.schedule import Scripted
from rollview.lab.simulator.simulation import simulate_run

_STEPS = {"conventional": DELETION_AFTER_FIRST_ANSWER, "sweep": SWEEP_STEPS}
"""The order of events in the paper, for both."""

_INTRODUCTION = """\
[bold]One view over three databases[/bold]      (Example 1 of the Strobe paper, PDIS 1996)

  v = r1 ⋈ r2 ⋈ r3    x.r1(A, B) = [1, 2]    y.r2(B, C) = ∅    z.r3(C, D) = [3, 4]

Source y inserts [2, 3] into r2. While the warehouse is still asking x and z what
joins with it, source x deletes [1, 2] from r1. In the end r1 is empty, so the view
must be empty.
"""


def show_anomaly(console: Console, runs: int) -> None:
    """Shows a view going wrong under a naive algorithm and staying right under the sweep."""
    console.print(_INTRODUCTION)
    world = example_world()
    table = Table(show_lines=False, expand=False, pad_edge=False, title_justify="left")
    for name in _STEPS:
        table.add_column(f"{name}", overflow="fold", max_width=62)
    stories, endings = [], []
    for name, steps in _STEPS.items():
        outcome = simulate_run(world, ALGORITHMS[name], NETWORKS["fifo"], Scripted(steps), narrated=True)
        verdict = check(world, outcome.commits, outcome.publications, outcome.at_rest)
        stories.append("\n".join(f"{number:2} {line}" for number, line in enumerate(outcome.story, 1)))
        ending = Text(f"final view: {contents_text(outcome.publications[-1].contents)}\nlevel reached: ")
        ending.append_text(level_text(verdict.level))
        if verdict.witness is not None:
            ending.append(f"\n{verdict.witness.reason}")
        endings.append(ending)
    table.add_row(*stories)
    table.add_section()
    table.add_row(*endings)
    console.print(table)
    _every_interleaving(console)
    _hostile_runs(console, runs)


def _every_interleaving(console: Console) -> None:
    console.print("\n[bold]Every interleaving of this example[/bold]")
    for name in _STEPS:
        campaign = Campaign(
            ALGORITHMS[name],
            NETWORKS["fifo"],
            Scenario.SINGLE_UPDATE,
            exhaustive=True,
            runs=20_000,
            world=example_world(),
            required=Level.CONVERGENCE,
        )
        tally = run_campaign(campaign)
        wrong = tally.levels[Level.NONE]
        extent = "all" if tally.finished else "the first"
        console.print(f"  {name:14} {extent} {tally.runs:,} schedules: {wrong:,} end with a wrong view")


def _hostile_runs(console: Console, runs: int) -> None:
    console.print("\n[bold]Random worlds, hostile network: misordering, loss, repetition, crashes[/bold]")
    campaign = Campaign(ALGORITHMS["sweep"], NETWORKS["hostile"], Scenario.GLOBAL, runs=runs)
    tally = run_campaign(campaign)
    console.print(
        f"  sweep          {tally.runs:,} runs in {tally.seconds:.1f} s, every one: ",
        level_text(tally.level),
        sep="",
    )
    console.print("\nTry your own: [cyan]rollview simulate --help[/cyan]")

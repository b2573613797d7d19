"""`rollview simulate --policy all`: what each policy of beyer2000 guarantees, and what writers wait for."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import click
from rich import box
from rich.console import Console
from rich.table import Table

from rollview.algorithms.beyer2000.ipda import VARIANTS
from rollview.lab.commands.printing import print_story
from rollview.lab.simulator.database_simulation import simulate_ipda
from rollview.lab.simulator.database_worlds import IpdaRun, Waits, random_world
from rollview.lab.simulator.policies import Policy
from rollview.lab.simulator.properties import Property, check_ipda
from rollview.lab.simulator.schedule import Seeded
from rollview.lab.simulator.trigger_reads import SERVERS, WORLDS, Finding, try_triggers

_SHIPPED = VARIANTS["algorithm 2 with the commit table, coarse lock"]


@dataclass
class _Tally:
    """The results of the runs of one policy; a property that was missed has the first seed that does."""

    policy: Policy
    committed: int = 0
    aborted: int = 0
    waits: Waits = field(default_factory=Waits)
    missed: dict[Property, tuple[int, str]] = field(default_factory=dict)

    def add(self, seed: int, run: IpdaRun) -> None:
        """Counts a run."""
        committed = sum(fate.committed for fate in run.fates.values())
        self.committed += committed
        self.aborted += len(run.fates) - committed
        self.waits.base_rows += run.waits.base_rows
        self.waits.view_rows += run.waits.view_rows
        for missed, reason in check_ipda(run).items():
            self.missed.setdefault(missed, (seed, reason))


def compare_policies(console: Console, policies: Sequence[Policy], seeds: range, as_json: bool) -> int:
    """Runs random worlds under policies and says what came out; the exit code."""
    tallies = []
    for policy in policies:
        tally = _Tally(policy)
        for seed in seeds:
            tally.add(seed, _run(policy, seed))
        tallies.append(tally)
    if as_json:
        click.echo(json.dumps([_result(tally, len(seeds)) for tally in tallies]))
    else:
        _print(console, tallies, seeds)
    return 1 if any(tally.missed for tally in tallies) else 0


def compare_triggers(console: Console, as_json: bool) -> int:
    """What triggers keep right at each kind of server, by all schedules of small worlds; the exit code."""
    found = {name: {w.name: try_triggers(server, w) for w in WORLDS} for name, server in SERVERS.items()}
    if as_json:
        shown = {name: {world: vars(each) for world, each in row.items()} for name, row in found.items()}
        click.echo(json.dumps(shown))
        return 0
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("triggers at", style="bold")
    for world in WORLDS:
        table.add_column(world.name)
    for name, row in found.items():
        table.add_row(name, *map(_verdict, row.values()))
    console.print(table)
    for name, row in found.items():
        for where, finding in row.items():
            if finding.story:
                console.print(f"\n{name}, {where}:", style="bold", markup=False)
                for line in finding.story:
                    console.print(f"  {line}", markup=False)
    return 0


def _verdict(finding: Finding) -> str:
    if finding.wrong:
        return f"wrong in {finding.wrong} of {finding.schedules}"
    costs = [*(["waits"] if finding.waits else []), *(["refused"] if finding.refusals else [])]
    return f"right in {finding.schedules}" + (f" ({', '.join(costs)})" if costs else "")


def _run(policy: Policy, seed: int, narrated: bool = False) -> IpdaRun:
    generator = random.Random(seed)
    return simulate_ipda(random_world(generator), _SHIPPED, Seeded(generator), narrated, policy)


def _result(tally: _Tally, runs: int) -> dict[str, object]:
    return {
        "policy": tally.policy.value,
        "runs": runs,
        "committed": tally.committed,
        "aborted": tally.aborted,
        "waits_for_base_rows": tally.waits.base_rows,
        "waits_for_view_rows": tally.waits.view_rows,
        "missed": {str(each): {"seed": seed, "reason": why} for each, (seed, why) in tally.missed.items()},
    }


def _print(console: Console, tallies: Sequence[_Tally], seeds: range) -> None:
    console.print(f"{len(seeds):,} random worlds, with random schedules\n", style="bold")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("policy", style="bold")
    for name in ("committed", "aborted", "waits for base rows", "for rows of a view"):
        table.add_column(name, justify="right")
    table.add_column("properties of §3")
    for tally in tallies:
        numbers = (tally.committed, tally.aborted, tally.waits.base_rows, tally.waits.view_rows)
        held = "all held" if not tally.missed else f"missed: {', '.join(map(str, tally.missed))}"
        table.add_row(tally.policy.value, *(f"{each:,}" for each in numbers), held)
    console.print(table)
    for tally in tallies:
        for missed, (seed, reason) in tally.missed.items():
            console.print(f"\n{tally.policy.value}, {missed}, seed {seed}: {reason}\n", markup=False)
            print_story(console, _run(tally.policy, seed, narrated=True).story)

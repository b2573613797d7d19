"""`rollview simulate`: an algorithm through seeded or exhaustive interleavings."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rollview.algebra.levels import Level, Scenario
from rollview.algebra.view import View
from rollview.algorithms.registry import ALGORITHMS
from rollview.cli.compare import compare
from rollview.cli.options import Options, campaign_for, effort_for
from rollview.cli.policies import compare_policies
from rollview.cli.tables import level_text, print_story, print_witness
from rollview.planning import render
from rollview.simulator.campaign import Campaign, Tally, run_campaign, seeded_run
from rollview.simulator.checker import Verdict, check
from rollview.simulator.ipda.policies import Policy
from rollview.simulator.network import NETWORKS
from rollview.simulator.schedule import Recorded, Schedule
from rollview.simulator.shrink import Failing, shrink
from rollview.simulator.simulation import Outcome, simulate_run
from rollview.simulator.trace import trace_lines, verdict_to_json
from rollview.simulator.world import World

_DEFAULT_RUNS = 1_000


def _choice(names: Iterable[object]) -> click.Choice[str]:
    return click.Choice([str(name) for name in names])


@click.command(context_settings={"show_default": True})
@click.option(
    "--algorithm",
    type=_choice([*ALGORITHMS, "all"]),
    default="sweep",
    help="The algorithm to run; all: compare the levels and costs of all algorithms.",
)
@click.option(
    "--policy",
    type=_choice([*Policy, "all"]),
    help="Instead: what a policy guarantees inside one database, and what writers wait for.",
)
@click.option(
    "--scenario",
    type=_choice(Scenario),
    default="source-local",
    help="What a transaction changes: one row, rows of one source, rows of several sources.",
)
@click.option(
    "--network",
    type=_choice(NETWORKS),
    default="fifo",
    help="fifo; misordered; lossy: lost and repeated messages; hostile: all of these, crashes and restarts.",
)
@click.option("--relations", type=click.IntRange(1, 6), default=3, help="Relations that the view joins.")
@click.option("--transactions", type=click.IntRange(0, 200), default=10, help="Transactions per run.")
@click.option("--views", type=click.IntRange(1, 4), default=1, help="Views that are published together.")
@click.option(
    "--runs",
    type=click.IntRange(1),
    default=_DEFAULT_RUNS,
    help="Number of runs; with --exhaustive, the maximum.",
)
@click.option("--seed", type=int, default=0, help="Run i uses seed + i; the same seed gives the same run.")
@click.option(
    "--exhaustive", is_flag=True, help="Run all schedules of the one world that --seed or --world gives."
)
@click.option("--world", type=click.Path(path_type=Path), help="Read the world from a JSON file or a trace.")
@click.option("--view", help="Your own view over the relations of the world (x.t1 and so on).")
@click.option(
    "--expect", type=_choice(list(Level)[1:]), help="The required level.  [default: the algorithm's claim]"
)
@click.option("--jobs", type=click.IntRange(0), default=1, help="Number of processes; 0: one per core.")
@click.option("--trace", type=click.Path(path_type=Path), help="Write a run as JSON lines.")
@click.option("--explain", is_flag=True, help="Print how the views were parsed, and exit.")
@click.option(
    "--write",
    type=click.Path(path_type=Path),
    help="With --algorithm all: write the tables as a Markdown page.",
)
@click.option("--json", is_flag=True, help="Print the result as one JSON object.")
def simulate(**given: Any) -> None:
    """Run an algorithm through many interleavings and report the consistency level that it reached.

    Sources commit, messages are delayed, misordered, lost and repeated, processes crash; a checker that
    knows nothing of the algorithm recomputes the view from scratch. A run that falls short is shrunk to a
    short story. Exit code 1 if any run fell short of the expected level.

    \b
    rollview simulate --network hostile --scenario global
    rollview simulate --algorithm conventional --relations 2 --transactions 2 --exhaustive
    rollview simulate --runs 1 --seed 42 --trace run.jsonl
    rollview simulate --policy all --runs 200
    """
    options = Options(**given)
    console = Console(highlight=False, quiet=options.json)
    if options.policy is not None:
        policies = list(Policy) if options.policy == "all" else [Policy(options.policy)]
        seeds = range(options.seed, options.seed + options.runs)
        raise SystemExit(compare_policies(console, policies, seeds, options.json))
    if options.algorithm == "all":
        effort = effort_for(options, _DEFAULT_RUNS)
        raise SystemExit(compare(console, effort, options.jobs, options.write, options.json))
    campaign = campaign_for(options)
    if options.explain:
        world, _ = seeded_run(campaign, options.seed)
        for view in world.views:
            click.echo(render(view), nl=False)
            _echo_algorithms(view)
        return
    tally = _conduct(console, campaign, options.jobs)
    failing = None
    if tally.failing is not None:
        failing = shrink(tally.failing, campaign.algorithm, campaign.network, campaign.required)
    world, told, verdict = _told_run(campaign, failing)
    if options.trace is not None:
        header = {
            "algorithm": options.algorithm,
            "network": options.network,
            "seed": options.seed if tally.failing_seed is None else tally.failing_seed,
        }
        text = "".join(f"{line}\n" for line in trace_lines(world, told, verdict, header))
        options.trace.write_text(text, encoding="utf-8")
    if options.json:
        click.echo(json.dumps(_result(campaign, tally, verdict if failing else None), ensure_ascii=False))
    else:
        _print_result(console, campaign, tally)
        if failing is not None:
            console.print(f"\n[bold]seed {tally.failing_seed} falls short[/bold]; shrunk to its core:\n")
            _print_failure(console, world, told, verdict)
        if options.trace is not None:
            which = "the shrunk failing run" if failing else f"seed {options.seed}"
            console.print(f"trace of {which}: {options.trace}")
    if failing is not None:
        raise SystemExit(1)


def _echo_algorithms(view: View) -> None:
    """Which algorithms could maintain a view, and why the others could not."""
    click.echo("  algorithms")
    for name, algorithm in ALGORITHMS.items():
        reason = algorithm.refusal(view)
        click.echo(f"    {name}: {f'refused, {reason}' if reason else 'serves it'}")


def _conduct(console: Console, campaign: Campaign, jobs: int) -> Tally:
    """Runs the campaign with a progress bar, where there is somebody to see it."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=console.quiet or not console.is_terminal,
    ) as bar:
        what = f"{campaign.algorithm.name} · {campaign.scenario} · {campaign.network.name}"
        task = bar.add_task(what, total=None if campaign.exhaustive else campaign.runs)
        return run_campaign(campaign, jobs, lambda done: bar.advance(task, done))


def _told_run(campaign: Campaign, failing: Failing | None) -> tuple[World, Outcome, Verdict]:
    """The failing run once more with its story, or the first run of the campaign."""
    if failing is not None:
        world: World = failing.world
        schedule: Schedule = Recorded(failing.choices)
    else:
        world, schedule = seeded_run(campaign, campaign.seed)
    told = simulate_run(world, campaign.algorithm, campaign.network, schedule, tell=True)
    return world, told, check(world, told.commits, told.publications, told.at_rest)


def _result(campaign: Campaign, tally: Tally, verdict: Verdict | None) -> dict[str, Any]:
    return {
        "algorithm": campaign.algorithm.name,
        "scenario": str(campaign.scenario),
        "network": campaign.network.name,
        "runs": tally.runs,
        "exhausted": campaign.exhaustive and tally.finished,
        "level": str(tally.level),
        "expected": str(campaign.required),
        "levels": {str(level): count for level, count in sorted(tally.levels.items())},
        "false_claims": tally.false_claims,
        "seconds": round(tally.seconds, 3),
        "runs_per_second": round(tally.runs / tally.seconds, 1),
        "questions_per_transaction": round(tally.questions / max(1, tally.transactions), 3),
        "rows_shipped_per_transaction": round(tally.rows_shipped / max(1, tally.transactions), 3),
        "failing_seed": tally.failing_seed,
        "verdict": None if verdict is None else verdict_to_json(verdict),
    }


def _print_result(console: Console, campaign: Campaign, tally: Tally) -> None:
    what = f"{tally.runs:,} seeded runs"
    if campaign.exhaustive:
        what = f"all {tally.runs:,} schedules of one world"
        if not tally.finished:
            what = f"the first {tally.runs:,} schedules of one world (raise --runs for more)"
    speed = tally.runs / tally.seconds
    console.print(f"{campaign.algorithm.name} · {campaign.scenario} · {campaign.network.name}", style="bold")
    console.print(f"{what} in {tally.seconds:.1f} s ({speed:,.0f} a second)")
    for level in sorted(tally.levels, reverse=True):
        console.print("  ", level_text(level), f" {tally.levels[level]:,}", sep="")
    if tally.false_claims:
        console.print(f"  [red]claimed versions that were not shown: {tally.false_claims:,} runs[/red]")
    per = max(1, tally.transactions)
    questions, rows = tally.questions / per, tally.rows_shipped / per
    console.print(f"   per transaction: {questions:.2f} sub-queries, {rows:.2f} rows shipped")
    console.print("every run reached: ", level_text(tally.level), f" (expected: {campaign.required})", sep="")


def _print_failure(console: Console, world: World, told: Outcome, verdict: Verdict) -> None:
    for view in world.views:
        console.print(f"  view {view.name}: {view.sql}", markup=False, soft_wrap=True)
    for name, rows in world.initial.items():
        console.print(f"  {name}: {' '.join(str(list(row)) for row in rows) or '∅'}", markup=False)
    console.print()
    print_story(console, told.story)
    console.print()
    print_witness(console, verdict)

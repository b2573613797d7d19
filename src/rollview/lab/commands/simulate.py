"""`rollview simulate`: an algorithm through seeded or exhaustive interleavings."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rollview.algebra.view import View
from rollview.algorithms.algorithm import Level, Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.ascii_text import lines_of
from rollview.errors import OptionError, WorldError
from rollview.lab.commands.compare import compare, compare_costs
from rollview.lab.commands.examples import list_examples, replay_example
from rollview.lab.commands.policies import compare_policies, compare_triggers
from rollview.lab.commands.printing import level_text, print_story, print_witness
from rollview.lab.simulator.campaign import Campaign, Tally, run_campaign, seeded_run, size_for
from rollview.lab.simulator.checker import Verdict, check
from rollview.lab.simulator.generate import Size, generate
from rollview.lab.simulator.network import NETWORKS
from rollview.lab.simulator.policies import Policy
from rollview.lab.simulator.schedule import Recorded, Schedule
from rollview.lab.simulator.shrink import Failing, shrink
from rollview.lab.simulator.simulation import Outcome, simulate_run
from rollview.lab.simulator.trace import trace_lines, verdict_to_json
from rollview.lab.simulator.world import World, from_json, schedule_of, validate
from rollview.lab.tables.papers_page import write_papers
from rollview.lab.tables.report import has_costs
from rollview.lab.tables.spectrum import Effort
from rollview.planning import parse_view, render


@dataclass(frozen=True)
class Options:
    """The options of the command line."""

    algorithm: str
    policy: str | None
    example: str | None
    list: bool
    scenario: str
    network: str
    relations: int
    transactions: int
    views: int
    runs: int
    seed: int
    exhaustive: bool
    world: Path | None
    view: str | None
    expect: str | None
    jobs: int
    trace: Path | None
    explain: bool
    write: Path | None
    costs: bool
    json: bool


def _page_of_costs(file: Path | None) -> Path | None:
    """The page whose tables of costs are to be replaced; it must be one."""
    if file is not None and not (file.exists() and has_costs(_text_of(file))):
        raise OptionError(
            f"{file} has no tables of costs",
            subject=str(file),
            hint="write the whole page first, without --costs",
        )
    return file


def effort_for(options: Options, default_runs: int) -> Effort:
    """How much to try per algorithm; refuses options that make no sense for all of them at once."""
    given = [name for name in ("world", "view", "trace", "expect") if getattr(options, name) is not None]
    if given or options.exhaustive or options.explain:
        raise OptionError(
            "--algorithm all generates its own worlds",
            hint="combine it with --runs, --jobs, --write and --json only",
        )
    _check_writable(options.write)
    return Effort() if options.runs == default_runs else Effort(runs=options.runs)


def _check_writable(file: Path | None) -> None:
    """Refuses, before any work is done, a file that cannot be written at the end of it."""
    if file is None:
        return
    if file.is_dir():
        raise OptionError(f"{file} is a folder, not a file", subject=str(file))
    if not file.parent.is_dir():
        raise OptionError(f"the folder of {file} does not exist", subject=str(file))
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise OptionError(f"{file} cannot be written", subject=str(file))


def campaign_for(options: Options) -> Campaign:
    """The campaign that the options describe; refuses options that contradict each other."""
    if options.costs:
        raise OptionError("--costs needs --algorithm all")
    if options.write is not None:
        raise OptionError("--write needs --algorithm all", hint="use --trace to write one run")
    algorithm = ALGORITHMS[options.algorithm]
    if options.views > 1 and not algorithm.sequenced:
        raise OptionError(f"{algorithm.name} maintains one view at a time", hint="omit --views, or use sweep")
    if options.exhaustive and options.jobs != 1:
        raise OptionError("--exhaustive runs in one process", hint="omit --jobs")
    if options.views > 1 and (options.view or options.world):
        raise OptionError(
            "--views draws views at random; --view and --world name them", hint="use one or the other"
        )
    _check_writable(options.trace)
    scenario = Scenario(options.scenario)
    size = size_for(algorithm, options.relations, options.transactions, options.views)
    world, steps = _given_world(options, scenario, size)
    if steps is not None:
        _refuse_beside(
            "a world with a schedule", _BESIDE_SCHEDULE, hint='delete "schedule" from the world to run others'
        )
    if world is not None:
        scenario = world.scenario
        for view in world.views:
            if reason := algorithm.refusal(view):
                raise OptionError(
                    f"{algorithm.name} cannot maintain {view.name}: {reason}", subject=view.name
                )
    return Campaign(
        algorithm,
        NETWORKS[options.network],
        scenario,
        size,
        options.runs if steps is None else 1,
        options.seed,
        Level[options.expect.upper()]
        if options.expect
        else max(algorithm.claims[scenario], Level.CONVERGENCE),
        options.exhaustive,
        world,
        steps,
    )


_BESIDE_SCHEDULE = {"algorithm", "network", "world", "view", "expect", "trace", "explain", "json"}
"""The options that have a meaning for a run whose schedule is given."""


def _given_world(
    options: Options, scenario: Scenario, size: Size
) -> tuple[World | None, tuple[str, ...] | None]:
    """The world that the options describe, and its schedule; None if every run makes its own."""
    record = {} if options.world is None else read_record(options.world)
    world = from_json(record) if options.world is not None else None
    steps = schedule_of(record)
    if options.view is None:
        return world, steps
    if world is None:
        # Every relation a table of its own, so that any view can be written over them.
        world = generate(random.Random(options.seed), scenario, replace(size, keyed=True))
    world = replace(world, views=(parse_view(options.view, world.tables, "v"),))
    validate(world)
    return world, steps


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise WorldError(f"cannot read {file}: {error.strerror}", subject=str(file)) from error
    except UnicodeDecodeError as error:
        raise WorldError(f"cannot read {file}: it is no text", subject=str(file)) from error


def read_record(file: Path) -> dict[str, Any]:
    """The first line of a trace, or a whole file that is one JSON object."""
    text = _text_of(file)
    try:
        record = json.loads(text)
    except ValueError:
        try:
            record = json.loads(lines_of(text)[0])
        except (ValueError, IndexError) as error:
            raise WorldError(f"{file} is not JSON: {error}", subject=str(file)) from error
    if not isinstance(record, dict):
        raise WorldError(f"{file} does not hold a JSON object", subject=str(file))
    return record


def as_recorded(options: Options) -> Options:
    """With the algorithm and the network that a world with a schedule was recorded with, if none is given."""
    record = {} if options.world is None else read_record(options.world)
    if schedule_of(record) is None:
        return options
    context = click.get_current_context()
    known: dict[str, Collection[str]] = {"algorithm": ALGORITHMS, "network": NETWORKS}
    said: dict[str, Any] = {}
    for name, names in known.items():
        value = record.get(name)
        if value is None or _was_given(context, name):
            continue
        if not isinstance(value, str) or value not in names:
            raise WorldError(f"the world was recorded with an unknown {name}: {value!r}", subject=name)
        said[name] = value
    return replace(options, **said)


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
    type=_choice([*Policy, "all", "triggers"]),
    help="Instead: what a policy guarantees inside one database, and what writers wait for; triggers: what"
    " triggers can keep right at each kind of server.",
)
@click.option(
    "--example",
    metavar="PAPER/NUMBER",
    help="Instead: replay an example of a paper, its numbers beside ours; all: the page (--write).",
)
@click.option("--list", is_flag=True, help="Instead: list the examples, by paper and number.")
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
@click.option("--costs", is_flag=True, help="With --algorithm all: measure costs alone, not levels.")
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
    rollview simulate --example zhuge1996/5
    """
    options = Options(**given)
    console = Console(highlight=False, quiet=options.json)
    if options.list or options.example is not None:
        raise SystemExit(_examples(console, options))
    if options.policy is not None:
        raise SystemExit(_policies(console, options))
    if options.algorithm == "all":
        raise SystemExit(_all_algorithms(console, options))
    options = as_recorded(options)
    campaign = campaign_for(options)
    if options.explain:
        world, _ = seeded_run(campaign, options.seed)
        for view in world.views:
            click.echo(render(view), nl=False)
            _echo_algorithms(view)
        return
    tally = _run_with_progress(console, campaign, options.jobs)
    failing = None
    if tally.failing is not None:
        failing = shrink(tally.failing, campaign.algorithm, campaign.network, campaign.required)
    world, outcome, verdict = _shown_run(campaign, failing)
    if options.trace is not None:
        header: dict[str, Any] = {
            "algorithm": options.algorithm,
            "network": options.network,
            "seed": options.seed if tally.failing_seed is None else tally.failing_seed,
        }
        text = "".join(f"{line}\n" for line in trace_lines(world, outcome, verdict, header))
        options.trace.write_text(text, encoding="utf-8")
    if options.json:
        click.echo(json.dumps(_result(campaign, tally, verdict if failing else None), ensure_ascii=False))
    else:
        _print_result(console, campaign, tally)
        if failing is not None:
            console.print(f"\n[bold]seed {tally.failing_seed} falls short[/bold]; shrunk to its core:\n")
            _print_failure(console, world, outcome, verdict)
        if options.trace is not None:
            which = "the shrunk failing run" if failing else f"seed {options.seed}"
            console.print(f"trace of {which}: {options.trace}")
    if failing is not None:
        raise SystemExit(1)


def _examples(console: Console, options: Options) -> int:
    """Replays what `--example` names, or writes the page of all; refuses what has no meaning there."""
    if options.list:
        _refuse_beside("--list", {"json", "list"})
        return list_examples(console, options.json)
    _refuse_beside("--example", {"json", "trace", "write", "example"})
    if options.example == "all":
        if options.write is None or options.trace is not None:
            raise OptionError(
                "--example all writes the page of all examples", hint="name it with --write FILE"
            )
        _check_writable(options.write)
        return write_papers(console, options.write)
    if options.write is not None:
        raise OptionError("--write needs --example all", hint="use --trace to write one run")
    _check_writable(options.trace)
    return replay_example(console, str(options.example), options.trace, options.json)


def _all_algorithms(console: Console, options: Options) -> int:
    effort = effort_for(options, _DEFAULT_RUNS)
    if options.costs:
        return compare_costs(console, _page_of_costs(options.write), options.json)
    return compare(console, effort, options.jobs, options.write, options.json)


def _policies(console: Console, options: Options) -> int:
    if options.policy == "triggers":
        return compare_triggers(console, options.json)
    policies = list(Policy) if options.policy == "all" else [Policy(str(options.policy))]
    return compare_policies(console, policies, range(options.seed, options.seed + options.runs), options.json)


def _refuse_beside(option: str, allowed: set[str], hint: str = "") -> None:
    context = click.get_current_context()
    given = [name for name in context.params if _was_given(context, name) and name not in allowed]
    if given:
        names = ", ".join(f"--{name}" for name in sorted(given))
        raise OptionError(f"{option} cannot be combined with {names}", hint=hint or f"leave {names} out")


def _was_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _echo_algorithms(view: View) -> None:
    """Which algorithms could maintain a view, and why the others could not."""
    click.echo("  algorithms")
    for name, algorithm in ALGORITHMS.items():
        reason = algorithm.refusal(view)
        click.echo(f"    {name}: {f'refused, {reason}' if reason else 'serves it'}")


def _run_with_progress(console: Console, campaign: Campaign, jobs: int) -> Tally:
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


def _shown_run(campaign: Campaign, failing: Failing | None) -> tuple[World, Outcome, Verdict]:
    """The failing run once more with its story, or the first run of the campaign."""
    if failing is not None:
        world: World = failing.world
        schedule: Schedule = Recorded(failing.choices)
    else:
        world, schedule = seeded_run(campaign, campaign.seed)
    outcome = simulate_run(world, campaign.algorithm, campaign.network, schedule, narrated=True)
    return world, outcome, check(world, outcome.commits, outcome.publications, outcome.at_rest)


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


def _print_failure(console: Console, world: World, outcome: Outcome, verdict: Verdict) -> None:
    for view in world.views:
        console.print(f"  view {view.name}: {view.sql}", markup=False, soft_wrap=True)
    for name, rows in world.initial.items():
        console.print(f"  {name}: {' '.join(str(list(row)) for row in rows) or '∅'}", markup=False)
    console.print()
    print_story(console, outcome.story)
    console.print()
    print_witness(console, verdict)

"""`rollview status`: the state of sources and views, once or again and again."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from io import StringIO
from math import inf
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, cast

import click

from rollview.algebra.stage_names import is_stage
from rollview.answer.requests import StatusRequest
from rollview.cli.answers import asked_elsewhere
from rollview.cli.project_context import opened, project_options
from rollview.cli.terminal import plural, print_json, results
from rollview.errors import RollviewError
from rollview.retryable import is_retryable

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

    from rollview.catalog import AlgorithmCost, Work
    from rollview.observe.explain_parts import MeasuredPart
    from rollview.observe.status import HaltStatus, Status, ViewStatus


DEFAULT_SECONDS = 2.0


@click.command()
@click.option(
    "--watch",
    "seconds",
    type=click.FloatRange(0.1),
    is_flag=False,
    flag_value=DEFAULT_SECONDS,
    metavar="[SECONDS]",
    help=f"Show it again every SECONDS, in place; q or Ctrl-C ends.  [default: {DEFAULT_SECONDS:g}]",
)
@project_options
def status(seconds: float | None, project_file: Path, as_json: bool) -> None:
    """Show the state of sources and views.

    For each source: how it is captured, and how far. For each view: whether it is running, catching up or
    stopped, the csn that it shows, how far its delta reaches (the high-water mark), how far that is behind
    the sources, its valid time, and what its last refresh did and why. For what is stopped: why, since when,
    from which csn on, and what to do. For views with SELECT *: columns that were added after setup. A view
    that is not due by its schedule lags, and is running.

    With --watch, it is redrawn in place until q or Ctrl-C; where the output is no terminal, one block after
    the other is printed, and with --json one line after the other.

    \b
    rollview status
    rollview status --watch
    rollview status --watch 10 --json
    """
    if seconds is not None:
        with opened(project_file, spinning=False) as at:
            watch(results(), at.project.status, seconds, as_json)
        return
    found = _status(project_file)
    if as_json:
        print_json(found)
    else:
        print_status(results(), found)


def _status(project_file: Path) -> Status:
    """The status, as a process that runs the project sees it; or else as this one does."""
    if (reply := asked_elsewhere(project_file, StatusRequest(), "").reply) is not None:
        return cast("Status", reply.record)
    with opened(project_file) as at:
        return at.project.status()


# How the state of sources and views looks in a terminal.

_STYLES = {"running": "green", "stopped": "red"}


def print_status(console: Console, found: Status) -> None:
    """The whole status as a few tables."""
    from rich.text import Text

    when = f" ({found.last_commit_time})" if found.last_commit_time else ""
    console.print(Text.assemble((found.name, "bold"), f" at csn {found.last_csn}{when}\n"))
    _print_sources(console, found)
    _print_views(console, found.views)
    _print_times(console, found.views)
    for name, halted in (
        *((f"source {each.site}", each.halted) for each in found.sources),
        *((f"view {each.name}", each.halted) for each in found.views),
    ):
        if halted is not None:
            _print_halted(console, name, halted)
    for view in found.views:
        if view.note:
            console.print(Text.assemble(("note: ", "yellow"), f"{view.name}: {view.note}"))
        if view.new_columns:
            text = f"{view.name}: `SELECT *` does not show columns that were added after setup: "
            take = f"; `rollview setup --reload {quote(view.name)}` adds them"
            console.print(Text.assemble(("note: ", "yellow"), text, ", ".join(view.new_columns), take))
    for name, note in found.broken.items():
        console.print(Text.assemble(("note: ", "yellow"), f"{name}: {note}"))
    for name in found.missing:
        text = f"{name} has a file, but is not set up: `rollview setup` loads it"
        console.print(Text.assemble(("note: ", "yellow"), text))
    for each in found.waiting:
        holds = f"{', '.join(each.present)} held up since {each.since}"
        text = f"global transaction {each.global_id} waits for {', '.join(each.missing)}; {holds}"
        console.print(Text.assemble(("waiting: ", "yellow"), text))
        console.print(
            Text(f"  if that part never arrives: rollview release {quote(each.global_id)}", style="dim")
        )
    for over in found.released:
        text = f"global transaction {over.global_id} since {over.at}; its parts are transactions of their own"
        console.print(Text.assemble(("no longer waited for: ", "yellow"), text))
    for step in found.unfinished:
        text = step.problem or f"{step.step}; the next run finishes it"
        console.print(Text.assemble(("unfinished: ", "yellow"), text))
        if step.hint:
            console.print(Text(f"  hint: {step.hint}", style="dim"))


def _print_halted(console: Console, name: str, halted: HaltStatus) -> None:
    from rich.text import Text

    since = f" since {halted.since}" if halted.since else ""
    place = f", from csn {halted.csn} on" if halted.csn else ""
    text = f"{name}{since}{place}: {halted.reason}"
    console.print(Text.assemble(("stopped: ", "red"), text))
    if halted.hint:
        console.print(Text(f"  hint: {halted.hint}", style="dim"))


def _table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def _print_sources(console: Console, found: Status) -> None:
    from rich.text import Text

    table = _table("source", "type", "transactions", "captured", right=("transactions",))
    for site in found.sources:
        name = Text(site.site, style="bold")
        merged = f" ({site.merged:,} may stand for several)" if site.merged else ""
        table.add_row(name, site.kind, f"{site.version:,}{merged}", site.captured_at or "nothing yet")
    console.print(table)
    for site in found.sources:
        how = ", ".join(f"{key}: {value}" for key, value in site.how.items())
        text = Text(site.problem, style="red") if site.problem else Text(how, style="dim")
        console.print(Text.assemble((f"{site.site}: ", "dim"), text))
    console.print()


def _print_views(console: Console, views: tuple[ViewStatus, ...]) -> None:
    from rich.text import Text

    numbers = ("shows csn", "high-water mark", "behind", "lag")
    table = _table("view", "state", *numbers, "readable", right=numbers)
    for view in views:
        table.add_row(
            Text(view.name, style="bold"),
            Text(view.state, style=_STYLES.get(view.state, "")),
            f"{view.materialized}",
            f"{view.high_water}",
            Text(f"{view.behind_csn:,}", style="" if view.behind_csn else "green"),
            "unknown" if view.lag_seconds is None else f"{view.lag_seconds:,.1f} s",
            ", ".join(
                f"csn {oldest} to {newest}"
                for oldest, newest in (
                    *((span.oldest, span.newest) for span in reversed(view.spans)),
                    (view.oldest, view.high_water),
                )
            ),
        )
    console.print(table, "")


def worked(work: Work) -> str:
    """The cost of propagation, in words."""
    steps, lookups = plural(work.steps, "step"), plural(work.lookups, "look-up")
    text = f"{steps}, {lookups}, {plural(work.rows_found, 'row')} found"
    if work.spared:
        why = "they join nothing, came and went in a step, or the view answered itself"
        text += f"; {plural(work.spared, 'change')} not looked up: {why}"
    if work.in_doubt:
        text += f"; {plural(work.in_doubt, 'transaction')} in doubt, and recomputed"
    return text


def cost_lines(parts: Sequence[MeasuredPart]) -> Iterator[str]:
    """The costs of each algorithm that was at work, per transaction, the cheapest of each part first."""
    for part in parts:
        of_stage = f"{part.name}: " if is_stage(part.name) else ""
        for cost in sorted(part.costs, key=_mean_seconds):
            now = " (in use)" if cost.algorithm == part.algorithm else ""
            yield f"{of_stage}{cost.algorithm}{now}: {_cost(cost)}"


def _mean_seconds(cost: AlgorithmCost) -> float:
    return cost.seconds / cost.transactions if cost.transactions else inf


def _cost(cost: AlgorithmCost) -> str:
    number = max(1, cost.transactions)
    text = f"{plural(cost.steps, 'step')}, {plural(cost.transactions, 'transaction')}"
    text += f"; each {cost.lookups / number:.2f} look-ups, {cost.rows_found / number:.2f} rows found"
    text += f", {1000 * cost.seconds / number:,.1f} ms"
    if cost.recent:
        text += f"; {1000 * cost.compared_seconds:,.1f} ms beside the others"
    if cost.failures:
        text += f"; failed {plural(cost.failures, 'time')}: {cost.failure}"
    return text


def _print_times(console: Console, views: tuple[ViewStatus, ...]) -> None:
    """The valid time of each view, and what its last refresh did."""
    from rich.text import Text

    for view in views:
        valid = f"valid from {view.valid_from or 'its first load'} until {view.valid_until or 'now'}"
        console.print(Text.assemble((view.name, "bold"), f": {view.policy}, {valid}"))
        if view.last_refresh is not None:
            last = view.last_refresh
            rows = f", {plural(last.rows, 'row')}" if last.rows >= 0 else ""
            what = f"{last.kind}, csn {last.from_csn} → {last.to_csn}{rows}, {last.seconds:.1f} s"
            console.print(Text(f"  last refresh: {what}; {last.reason}", style="dim"))
        if view.work.steps:
            console.print(Text(f"  propagated: {worked(view.work)}", style="dim"))
        for line in cost_lines(view.measured):
            console.print(Text(f"  {line}", style="dim"))
        if view.schedule:
            console.print(Text(f"  schedule: {view.schedule}, next due {view.next_due}", style="dim"))
        if view.batch is not None:
            console.print(Text(f"  staleness: {view.batch.sentence}", style="dim"))
        for number, each in enumerate(view.consumers):
            behind = f"csn {each.csn}, {view.high_water - each.csn:,} behind the high-water mark"
            kept = "; the delta is kept for it" if number == 0 else ""
            console.print(Text(f"  consumer {each.name}: {behind}{kept}", style="dim"))
        if (whole := view.last_recomputed) is not None:
            what = f"csn {whole.from_csn} → {whole.to_csn}, {whole.seconds:.1f} s; {whole.reason}"
            console.print(Text(f"  last recomputed: {what}", style="dim"))


# `rollview status --watch`: the same status again and again, in place where that is possible.


def watch(console: Console, status: Callable[[], Status], seconds: float, as_json: bool) -> None:
    """Shows the status every so many seconds, until Ctrl-C or q."""
    from rich.live import Live

    try:
        if as_json:
            _repeat(status, seconds, lambda found, _: print_json(found))
        elif not console.is_terminal:
            _repeat(status, seconds, lambda found, error: _print_block(console, found, error))
        else:
            with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

                def redraw(found: Status, error: str) -> None:
                    live.update(_drawn(console, found, error, seconds), refresh=True)

                _repeat(status, seconds, redraw)
    except KeyboardInterrupt:
        # The reader has quit.
        return


def _repeat(status: Callable[[], Status], seconds: float, show: Callable[[Status, str], None]) -> None:
    """While the status cannot be read, the last one stays, with the reason."""
    found, error = status(), ""
    with single_keys() as wait:
        while True:
            show(found, error)
            if wait(seconds).lower() == "q":
                return
            try:
                found, error = status(), ""
            except RollviewError as trouble:
                if not is_retryable(trouble):
                    raise
                error = trouble.message


def _print_block(console: Console, found: Status, error: str) -> None:
    from rich.text import Text

    console.print(Text(_now()))
    print_status(console, found)
    if error:
        console.print(Text(f"error: {error}"))
    console.print()


def _drawn(console: Console, found: Status, error: str, seconds: float) -> Group:
    # Not on the console itself, which is busy with what it shows now.
    from rich.console import Console, Group
    from rich.text import Text

    page = StringIO()
    print_status(Console(file=page, force_terminal=True, width=console.width, highlight=False), found)
    # Lines that do not fit would push the header off the screen.
    lines = Text.from_ansi(page.getvalue()).split("\n")[: max(1, console.height - 3)]
    foot = Text.assemble((f"{_now()}, every {seconds:g} s; q or Ctrl-C ends", "dim"))
    trouble = [Text(f"error: {error}", style="red")] if error else []
    return Group(*lines, *trouble, foot)


def _now() -> str:
    return f"{datetime.now().astimezone():%H:%M:%S}"


# Single keys from the terminal, while the screen is redrawn.

Wait = Callable[[float], str]
"""Waits so many seconds for a key and returns it; empty if none was pressed."""


@contextmanager
def single_keys() -> Iterator[Wait]:
    """Reads keys without echo; without a terminal, only waits."""
    try:
        import termios
        import tty

        keyboard = sys.stdin.fileno()
        before = termios.tcgetattr(keyboard) if sys.stdin.isatty() else None
    except (ImportError, OSError, ValueError):
        before = None
    if before is None:
        yield _asleep
        return

    def wait(seconds: float) -> str:
        readable, _, _ = select.select([keyboard], [], [], seconds)
        return os.read(keyboard, 1).decode(errors="replace") if readable else ""

    tty.setcbreak(keyboard)
    try:
        yield wait
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _asleep(seconds: float) -> str:
    time.sleep(seconds)
    return ""

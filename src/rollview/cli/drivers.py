"""`rollview capture`, `propagate` and `apply`: the three drivers, one by one.

Each can run alone in a process of its own: they share nothing but the lake and the catalog.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.text import Text

from rollview.cli.project_context import Opened, opened, project_options
from rollview.cli.run import print_event
from rollview.cli.terminal import own_stream, print_json, results
from rollview.errors import OptionError
from rollview.events import Event, Retry

F = TypeVar("F", bound=Callable[..., Any])


def _follow_option(function: F) -> F:
    help_text = "Keep going until Ctrl-C or SIGTERM, which let the current step finish."
    return click.option("--follow", is_flag=True, help=help_text)(function)


def _drive(
    what: str,
    project_file: Path,
    follow: bool,
    as_json: bool,
    step: Callable[[Opened], tuple[bool, str, Any]],
) -> None:
    """Runs a step once, or again and again, and reports what it did.

    The step returns whether there was anything to do, a sentence and a record.
    """

    def report(sentence: str, record: Any) -> None:
        if as_json:
            print_json(record)
        else:
            results().print(Text(sentence))

    if not follow:
        with opened(project_file) as at:
            _, sentence, record = step(at)
        report(sentence, record)
        return
    # Not at the top: help and wrong arguments should not wait for Spark.
    from rollview.service.retry import stopping_on_signals  # noqa: PLC0415

    with (
        own_stream(sys.stdout) as stream,
        opened(project_file, "waiting for changes") as at,
        stopping_on_signals() as stop,
    ):

        def attempt() -> bool:
            busy, sentence, record = step(at)
            if busy:
                with at.tell.aside():
                    report(sentence, record)
            return busy

        def tell(event: Event) -> None:
            if isinstance(event, Retry):
                print_event(event, at, stream, as_json)

        at.project.subscribe(tell)
        at.project.follow(attempt, stop, what)


def _refuse_both(follow: bool, to: str) -> None:
    if follow and to != "latest":
        raise OptionError("--follow never ends, but --to names an end", hint="use one of them")


@click.command()
@_follow_option
@project_options
def capture(follow: bool, project_file: Path, as_json: bool) -> None:
    """Record what the sources committed in the change logs.

    Every transaction gets its place in one order over all sources, the csn, and its changed rows go to the
    lake. Views do not move.

    \b
    rollview capture
    """

    def step(at: Opened) -> tuple[bool, str, Any]:
        done = at.project.capture()
        found = done.transactions
        what = "nothing new" if not found else "1 transaction" if found == 1 else f"{found:,} transactions"
        return found > 0, f"captured {what}, csn {done.csn}", done

    _drive("capture", project_file, follow, as_json, step)


@click.command()
@click.argument("view")
@click.option("--to", default="latest", metavar="T", help="Stop at this point in time.  [default: latest]")
@_follow_option
@project_options
def propagate(view: str, to: str, follow: bool, project_file: Path, as_json: bool) -> None:
    """Compute the delta of a view from the change logs.

    Looks up at the sources the rows that the captured changes join with, corrects the answers to the state
    that each transaction saw, and appends what every transaction did to the view delta. The high-water mark
    moves; the stored view does not.

    T is `csn:N`, an ISO time such as 2026-01-31T12:00:00 (local, unless it names a zone), `-1h` for an hour
    ago, a source's own position such as `crm:0/1A2B3C4` (LSN) or `store:0-1-42` (GTID), or `latest`.

    \b
    rollview propagate sale_lines
    """
    _refuse_both(follow, to)

    def step(at: Opened) -> tuple[bool, str, Any]:
        done = at.project.propagate(view, to)
        told = f"{view}: high-water mark at csn {done.high_water}"
        return done.high_water > done.from_csn, told, done

    _drive("propagate", project_file, follow, as_json, step)


@click.command()
@click.argument("view")
@click.option("--to", default="latest", metavar="T", help="The point in time to roll to.  [default: latest]")
@_follow_option
@project_options
def apply(view: str, to: str, follow: bool, project_file: Path, as_json: bool) -> None:
    """Roll a stored view along its delta.

    Rolls forward, to any point in time up to the high-water mark. Sources are not queried.

    T is `csn:N`, an ISO time such as 2026-01-31T12:00:00 (local, unless it names a zone), `-1h` for an hour
    ago, a source's own position such as `crm:0/1A2B3C4` (LSN) or `store:0-1-42` (GTID), or `latest`, which is
    the high-water mark here.

    \b
    rollview apply sale_lines
    """
    _refuse_both(follow, to)

    def step(at: Opened) -> tuple[bool, str, Any]:
        done = at.project.apply(view, to)
        return done.csn > done.from_csn, f"{view} at csn {done.csn}", done

    _drive("apply", project_file, follow, as_json, step)

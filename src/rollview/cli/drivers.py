"""Single steps: `rollview capture`, `propagate` and `apply`, then `refresh`, `release` and `condense`.

Each of the three drivers can run alone in a process of its own: they share nothing but lake and catalog.
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
from rollview.cli.terminal import own_stream, plural, print_json, results
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
    from rollview.maintain.retry import stopping_on_signals

    with (
        own_stream(sys.stdout) as stream,
        opened(project_file, "waiting for changes") as at,
        stopping_on_signals() as stop,
    ):

        def attempt() -> bool:
            busy, sentence, record = step(at)
            if busy:
                with at.progress.aside():
                    report(sentence, record)
            return busy

        def print_retry(event: Event) -> None:
            if isinstance(event, Retry):
                print_event(event, at, stream, as_json)

        at.project.subscribe(print_retry)
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
        what = plural(found, "transaction") if found else "nothing new"
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
        sentence = f"{view}: high-water mark at csn {done.high_water}"
        return done.high_water > done.from_csn, sentence, done

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


# `rollview refresh`: several views, refreshed to the same point in time in one logical step.


@click.command()
@click.argument("views", nargs=-1, metavar="[VIEW]...")
@click.option("--to", default="latest", metavar="T", help="The point in time to roll to.  [default: latest]")
@project_options
def refresh(views: tuple[str, ...], to: str, project_file: Path, as_json: bool) -> None:
    """Refresh views to the same point in time.

    Captures what is new, computes the view deltas as far as needed, and rolls the named views (all views if
    none is named) to exactly the same csn, in one step that becomes visible to readers at once. Views are
    rolled forward only; use `read --as-of` to look back.

    T is `csn:N`, an ISO time such as 2026-01-31T12:00:00 (local, unless it names a zone), `-1h` for an hour
    ago, a source's own position such as `crm:0/1A2B3C4` (LSN) or `store:0-1-42` (GTID), or `latest`.

    \b
    rollview refresh
    rollview refresh sale_lines sales_by_state --to latest
    """
    with opened(project_file, "refreshing") as at:
        done = at.project.refresh(*views, to=to)
    if as_json:
        print_json(done)
        return
    at_time = f" ({done.commit_time})" if done.commit_time else ""
    results().print(Text.assemble((", ".join(done.views), "bold"), f" at csn {done.csn}{at_time}"))


# `rollview release`: ends the wait for the missing parts of a global transaction.


@click.command()
@click.argument("global_id")
@project_options
def release(global_id: str, project_file: Path, as_json: bool) -> None:
    """Stop waiting for missing parts of a global transaction.

    A transaction over several databases gets one csn, so that no view ever shows half of it. If one of its
    parts never arrives, because the application gave up in between, the other parts wait, and so does
    everything that their databases committed later: `rollview status` shows that. This command ends the wait:
    the parts that have arrived, and any that arrive later, become transactions of their own.

    \b
    rollview release transfer-4711
    """
    with opened(project_file) as at:
        missing = at.project.release(global_id)
    if as_json:
        print_json({"global_id": global_id, "missing": missing})
        return
    results().print(f"{global_id}: no longer waiting for {', '.join(missing)}", markup=False)


# `rollview condense`: a range of a view delta, replaced with its net effect.


@click.command()
@click.argument("view")
@click.option("--from", "start", required=True, metavar="T", help="Start after this point in time.")
@click.option("--to", required=True, metavar="T", help="End with this point in time.")
@project_options
def condense(view: str, start: str, to: str, project_file: Path, as_json: bool) -> None:
    """Replace a range of a view delta with its net effect.

    All changes after --from, up to --to, are moved to --to, and those that cancel out are dropped. The delta
    gets smaller; points in time strictly between the two can no longer be read or rolled to.

    T is `csn:N`, an ISO time such as 2026-01-31T12:00:00 (local, unless it names a zone), `-1h` for an hour
    ago, a source's own position such as `crm:0/1A2B3C4` (LSN) or `store:0-1-42` (GTID), or `latest`.

    \b
    rollview condense sale_lines --from csn:1 --to csn:2
    """
    with opened(project_file, "condensing") as at:
        done = at.project.condense(view, start, to)
    if as_json:
        sizes = {"rows_before": done.rows_before, "rows_after": done.rows_after}
        sizes |= {"bytes_before": done.bytes_before, "bytes_after": done.bytes_after}
        print_json({"view": view, "from": start, "to": to, "rows_saved": done.saved, **sizes})
        return
    rows = f"{done.rows_after:,} left of {plural(done.rows_before, 'row')}"
    bytes_ = f"the view delta has {plural(done.bytes_after, 'byte')} instead of {done.bytes_before:,}"
    results().print(f"{view}: reduced by {plural(done.saved, 'row')}: {rows}; {bytes_}", markup=False)

"""The rows of views and their changes: `rollview read`, `deltas` and `consumers`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from rollview.answer.requests import DeltasRequest, ReadRequest
from rollview.cli.answers import limit_option, print_page, reply_to, rows_shown, shown_page, shown_rows
from rollview.cli.project_context import opened, project_options
from rollview.cli.terminal import own_stream, plural, print_json, results
from rollview.errors import InputError, OptionError

if TYPE_CHECKING:
    from rollview.events import Event
    from rollview.upkeep.consumers import Changes


@click.command()
@click.argument("view")
@click.option("--as-of", metavar="T", help="The point in time to read.  [default: as stored]")
@limit_option
@project_options
def read(view: str, as_of: str | None, limit: int | None, project_file: Path, as_json: bool) -> None:
    """Print the rows of a view, as stored or as of another point in time.

    Without --as-of, reads the stored table, which shows the csn that `rollview status` names. Any other point
    in time between the oldest one kept and the high-water mark works as well, before or after the stored one:
    the stored rows are rolled along the view delta for this one answer. Nothing is changed. Spark is started
    only for what cannot be read without it, and not if a running `rollview run` can answer.

    T is `csn:N`, an ISO time such as 2026-01-31T12:00:00 (local, unless it names a zone), `-1h` for an hour
    ago, a source's own position such as `crm:0/1A2B3C4` (LSN) or `store:0-1-42` (GTID), or `latest`.

    \b
    rollview read sales_by_state
    rollview read sales_by_state --as-of csn:2
    rollview read sale_lines --limit 5 --json
    """
    reply = reply_to(project_file, ReadRequest(view, as_of, rows_shown(limit, as_json)), "reading")
    shown, csn, commit_time = shown_rows(reply), reply.facts["csn"], reply.facts["commit_time"]
    if as_json:
        head = {"view": view, "csn": csn, "commit_time": commit_time, "columns": shown.columns}
        print_json({**head, "rows": shown.records(), "total": shown.total})
        return
    from rich.text import Text

    console = results()
    rows = plural(shown.total, "row")
    at_time = f" ({commit_time})" if commit_time else ""
    console.print(Text.assemble((view, "bold"), f" at csn {csn}{at_time}: {rows}\n"))
    print_page(console, shown)


# `rollview deltas`: what each transaction did to a view, once or for a consumer that continues.


@click.command()
@click.argument("view")
@click.option(
    "--from", "start", metavar="T", help="Start after this point in time.  [default: the oldest kept]"
)
@click.option("--to", default="latest", metavar="T", help="End with this point in time.  [default: latest]")
@click.option("--consumer", metavar="NAME", help="Continue after what this consumer has acknowledged.")
@click.option("--follow", is_flag=True, help="With --consumer: keep going until Ctrl-C or SIGTERM.")
@limit_option
@project_options
def deltas(
    view: str,
    start: str | None,
    to: str,
    consumer: str | None,
    follow: bool,
    limit: int | None,
    project_file: Path,
    as_json: bool,
) -> None:
    """Print what each transaction did to a view.

    One line per changed row: the csn of the transaction, how many times the row was added or (if negative)
    removed, and the row. Adding the lines after one csn, up to another, to the state at the first gives the
    state at the second.

    With --consumer, all changes that the consumer of that name has not read yet are printed, piece by piece;
    once a piece is written, it counts as read. An interrupted piece is printed again: at least once. A new
    consumer begins with --from; `rollview read VIEW --as-of T` prints the rows that its changes start from.
    Nothing that a consumer has not read is pruned: `rollview status` names the last one, `rollview consumers`
    all.

    T is `csn:N`, an ISO time such as 2026-01-31T12:00:00 (local, unless it names a zone), `-1h` for an hour
    ago, a source's own position such as `crm:0/1A2B3C4` (LSN) or `store:0-1-42` (GTID), or `latest`, which is
    the high-water mark here.

    \b
    rollview deltas sales_by_state
    rollview deltas sales_by_state --from csn:1 --to csn:2
    rollview deltas sales_by_state --consumer billing --json
    """
    if consumer is not None:
        if to != "latest" or limit is not None:
            raise OptionError("a consumer gets all changes", hint="leave --to and --limit out")
        _consume(view, consumer, start, follow, project_file, as_json)
        return
    if follow:
        raise OptionError("--follow needs --consumer", hint="for example --consumer billing")
    reply = reply_to(project_file, DeltasRequest(view, start, to, rows_shown(limit, as_json)), "reading")
    shown = shown_rows(reply)
    if as_json:
        head = {"view": view, "from": start, "to": to, "columns": shown.columns}
        print_json({**head, "rows": shown.records(), "total": shown.total})
        return
    from rich.text import Text

    console = results()
    changes = plural(shown.total, "change")
    console.print(Text.assemble((view, "bold"), f": {changes}\n"))
    print_page(console, shown)


def _consume(
    view: str, consumer: str, start: str | None, follow: bool, project_file: Path, as_json: bool
) -> None:
    from rollview.cli.run import print_event
    from rollview.events import Retry
    from rollview.maintain.retry import stopping_on_signals

    with (
        own_stream(sys.stdout) as stream,
        opened(project_file, "waiting for changes" if follow else "reading") as at,
        stopping_on_signals() as stop,
        at.project.consumer(view, consumer, start) as subscription,
    ):

        def step() -> bool:
            changes = subscription.next()
            if changes is None:
                return False
            with at.progress.aside():
                _print(changes, consumer, as_json)
                # Written, not merely buffered: only then has the consumer read it.
                stream.flush()
            subscription.acknowledge(changes)
            return True

        def print_retry(event: Event) -> None:
            if isinstance(event, Retry):
                print_event(event, at, stream, as_json)

        if follow:
            at.project.subscribe(print_retry)
            at.project.follow(step, stop, f"deltas of {view}")
        else:
            while not stop.asked() and step():
                pass


def _print(changes: Changes, consumer: str, as_json: bool) -> None:
    from rich.text import Text

    from rollview.algebra.bag import COUNT
    from rollview.algebra.history import CSN
    from rollview.answer.answers import page_of

    shown = shown_page(page_of(changes.rows, None, first=(CSN, COUNT)))
    if as_json:
        head = {"view": changes.view, "consumer": consumer, "after": changes.after, "upto": changes.upto}
        print_json({**head, "reason": changes.reason, "columns": shown.columns, "rows": shown.records()})
        return
    console = results()
    why = f", reloaded: {changes.reason}" if changes.reason else ""
    interval = f": csn {changes.after} to {changes.upto}{why}\n"
    console.print(Text.assemble((changes.view, "bold"), interval))
    print_page(console, shown)


# `rollview consumers`: who reads view deltas from outside.


@click.command()
@click.argument("view", required=False)
@click.option("--drop", metavar="NAME", help="Drop this consumer of VIEW: nothing is kept for it any more.")
@project_options
def consumers(view: str | None, drop: str | None, project_file: Path, as_json: bool) -> None:
    """List those who read view deltas, or forget one of them.

    `rollview deltas VIEW --consumer NAME` makes a consumer. Changes are kept until all consumers have read
    them, so drop a consumer that is no longer in use.

    \b
    rollview consumers
    rollview consumers --drop billing sales_by_state
    """
    if drop is not None and view is None:
        raise OptionError("--drop needs the view", hint=f"rollview consumers --drop {quote(drop)} VIEW")
    with opened(project_file) as at:
        if drop is not None and view is not None:
            if not at.project.drop_consumer(view, drop):
                hint = "`rollview consumers` lists them"
                raise InputError(f"view {view} has no consumer {drop}", subject=drop, hint=hint)
            if as_json:
                print_json({"view": view, "dropped": drop})
            else:
                results().print(f"{view}: consumer {drop} is forgotten", markup=False)
            return
        found = [each for each in at.project.consumers() if view in (None, each.view)]
    if as_json:
        print_json(found)
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = results()
    if not found:
        console.print("no consumers", style="dim")
        return
    table = Table(
        "view", "consumer", "csn", "acknowledged", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False
    )
    for each in found:
        when = datetime.fromtimestamp(each.acknowledged_at, UTC).isoformat(timespec="seconds")
        table.add_row(Text(each.view, style="bold"), Text(each.name), str(each.csn), when)
    console.print(table)

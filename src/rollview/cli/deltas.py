"""`rollview deltas`: what each transaction did to a view, once or for a consumer that goes on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN
from rollview.cli.answers import reply_to
from rollview.cli.project_context import opened, project_options
from rollview.cli.rows import limit_option, print_page, rows_shown, shown_page
from rollview.cli.run import print_event
from rollview.cli.terminal import own_stream, print_json, results
from rollview.errors import OptionError
from rollview.events import Event, Retry
from rollview.service.requests import DeltasRequest

if TYPE_CHECKING:
    from rollview.service.consumers import Changes


@click.command()
@click.argument("view")
@click.option(
    "--from", "start", metavar="T", help="Start after this point in time.  [default: the oldest kept]"
)
@click.option("--to", default="latest", metavar="T", help="End with this point in time.  [default: latest]")
@click.option("--consumer", metavar="NAME", help="Go on from what this consumer has acknowledged.")
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

    With --consumer, all changes that the consumer of that name has not had yet are printed, piece by piece;
    once a piece is written, it counts as had. What was interrupted is printed again: at least once. A new
    consumer begins with --from; `rollview read VIEW --as-of T` has the rows that its changes go with. Nothing
    that a consumer has not had is pruned: `rollview status` names the last one, `rollview consumers` all.

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
    assert reply.page is not None
    shown = shown_page(reply.page)
    if as_json:
        head = {"view": view, "from": start, "to": to, "columns": shown.columns}
        print_json({**head, "rows": shown.records(), "total": shown.total})
        return
    console = results()
    changes = "1 change" if shown.total == 1 else f"{shown.total:,} changes"
    console.print(Text.assemble((view, "bold"), f": {changes}\n"))
    print_page(console, shown)


def _consume(
    view: str, consumer: str, start: str | None, follow: bool, project_file: Path, as_json: bool
) -> None:
    # Not at the top: help and wrong arguments should not wait for Spark.
    from rollview.service.retry import stopping_on_signals  # noqa: PLC0415

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
            with at.tell.aside():
                _print(changes, consumer, as_json)
                # Written, and not merely on its way: only then has the consumer had it.
                stream.flush()
            subscription.acknowledge(changes)
            return True

        def tell(event: Event) -> None:
            if isinstance(event, Retry):
                print_event(event, at, stream, as_json)

        if follow:
            at.project.subscribe(tell)
            at.project.follow(step, stop, f"deltas of {view}")
        else:
            while not stop.asked() and step():
                pass


def _print(changes: Changes, consumer: str, as_json: bool) -> None:
    # Not at the top: help and wrong arguments should not wait for it.
    from rollview.service.pages import page_of  # noqa: PLC0415

    shown = shown_page(page_of(changes.rows, None, first=(CSN, COUNT)))
    if as_json:
        head = {"view": changes.view, "consumer": consumer, "after": changes.after, "upto": changes.upto}
        print_json({**head, "reason": changes.reason, "columns": shown.columns, "rows": shown.records()})
        return
    console = results()
    why = f", loaded anew: {changes.reason}" if changes.reason else ""
    told = f": csn {changes.after} to {changes.upto}{why}\n"
    console.print(Text.assemble((changes.view, "bold"), told))
    print_page(console, shown)

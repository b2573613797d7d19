"""`rollview read`: a view at any time that it covers."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from rollview.cli.answers import reply_to
from rollview.cli.project_context import project_options
from rollview.cli.rows import limit_option, print_page, rows_shown, shown_page
from rollview.cli.terminal import print_json, results
from rollview.service.requests import ReadRequest


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
    assert reply.page is not None
    shown, csn, commit_time = shown_page(reply.page), reply.facts["csn"], reply.facts["commit_time"]
    if as_json:
        head = {"view": view, "csn": csn, "commit_time": commit_time, "columns": shown.columns}
        print_json({**head, "rows": shown.records(), "total": shown.total})
        return
    console = results()
    rows = "1 row" if shown.total == 1 else f"{shown.total:,} rows"
    at_time = f" ({commit_time})" if commit_time else ""
    console.print(Text.assemble((view, "bold"), f" at csn {csn}{at_time}: {rows}\n"))
    print_page(console, shown)

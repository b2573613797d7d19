"""`rollview read`: a view at any time that it covers."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from rollview.cli.project_context import opened, project_options
from rollview.cli.rows import limit_option, page, print_page, rows_shown
from rollview.cli.terminal import print_json, results


@click.command()
@click.argument("view")
@click.option("--as-of", metavar="T", help="The point in time to read.  [default: as stored]")
@limit_option
@project_options
def read(view: str, as_of: str | None, limit: int | None, project_file: Path, as_json: bool) -> None:
    """Print the rows of a view, as stored or as of another point in time.

    Without --as-of, reads the stored table, which shows the csn that `rollview status` names; no Spark is
    started for that unless the view is very large. Any other point in time between the oldest one kept and
    the high-water mark works as well, before or after the stored one: the stored rows are rolled along the
    view delta for this one answer. Nothing is changed.

    T is `csn:N`, an ISO time such as 2026-01-31T12:00:00 (local, unless it names a zone), `-1h` for an hour
    ago, a source's own position such as `crm:0/1A2B3C4` (LSN) or `store:0-1-42` (GTID), or `latest`.

    \b
    rollview read sales_by_state
    rollview read sales_by_state --as-of csn:2
    rollview read sale_lines --limit 5 --json
    """
    with opened(project_file, "reading") as at:
        stored = at.project.read_stored(view) if as_of is None else None
        found = stored or at.project.read_as_of(view, as_of)
        shown = page(found.rows, rows_shown(limit, as_json))
    if as_json:
        head = {"view": view, "csn": found.csn, "commit_time": found.commit_time, "columns": shown.columns}
        print_json({**head, "rows": shown.records(), "total": shown.total})
        return
    console = results()
    rows = "1 row" if shown.total == 1 else f"{shown.total:,} rows"
    at_time = f" ({found.commit_time})" if found.commit_time else ""
    console.print(Text.assemble((view, "bold"), f" at csn {found.csn}{at_time}: {rows}\n"))
    print_page(console, shown)

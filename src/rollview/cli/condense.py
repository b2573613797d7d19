"""`rollview condense`: a range of a view delta, replaced with its net effect."""

from __future__ import annotations

from pathlib import Path

import click

from rollview.cli.project_context import opened, project_options
from rollview.cli.terminal import print_json, results


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
    rows = f"{done.rows_before:,} rows are {done.rows_after:,} now"
    bytes_ = f"the view delta has {done.bytes_after:,} bytes instead of {done.bytes_before:,}"
    results().print(f"{view}: reduced by {done.saved:,} rows: {rows}; {bytes_}", markup=False)

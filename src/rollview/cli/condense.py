"""`rollview condense`: a range of a view delta, replaced by its net effect."""

from __future__ import annotations

from pathlib import Path

import click

from rollview.cli.project_context import opened, project_options
from rollview.cli.terminal import print_json, results


@click.command()
@click.argument("view")
@click.option("--from", "start", required=True, metavar="T", help="After this time.")
@click.option("--to", required=True, metavar="T", help="Up to this time.")
@project_options
def condense(view: str, start: str, to: str, project_file: Path, as_json: bool) -> None:
    """Replace a range of a view delta by its net effect.

    All changes after the first time, up to the second, count from the second on; what cancels out is gone.
    The delta gets smaller; times strictly between the two can no longer be read or rolled to.

    T is `csn:N`, an ISO time such as 2026-01-31T12:00:00 (yours, unless it names a zone), or `latest`.

    \b
    rollview condense sale_lines --from csn:1 --to csn:2
    """
    with opened(project_file, "condensing") as at:
        saved = at.project.condense(view, start, to)
    if as_json:
        print_json({"view": view, "from": start, "to": to, "rows_saved": saved})
        return
    results().print(f"{view}: {saved:,} rows of the view delta saved", markup=False)

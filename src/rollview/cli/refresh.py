"""`rollview refresh`: several views, refreshed to the same point in time in one logical step."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from rollview.cli.project_context import opened, project_options
from rollview.cli.terminal import print_json, results


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

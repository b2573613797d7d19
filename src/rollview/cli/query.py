"""`rollview query`: SQL over views and relations, all as of one csn."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from rollview.cli.durations import Duration
from rollview.cli.project_context import opened, project_options
from rollview.cli.rows import limit_option, page, print_page, rows_shown
from rollview.cli.terminal import print_json, results


@click.command()
@click.argument("sql")
@click.option(
    "--max-staleness",
    type=Duration(),
    metavar="D",
    help="Refresh first if the answer would be older: 0s, 30s, 5m, 2h.  [default: never]",
)
@limit_option
@project_options
def query(
    sql: str, max_staleness: float | None, limit: int | None, project_file: Path, as_json: bool
) -> None:
    """Query views and relations that are valid at the same point in time.

    SQL is any Spark SQL query; a bare name is a view, `source.table` a relation that some view uses, with the
    columns that views use. All of them are read as of the newest csn that every view in the query has
    reached, so that their numbers agree with each other. The answer comes with its valid time: from when,
    and until when if something has changed since.

    \b
    rollview query "SELECT sum(total) AS total FROM sales_by_state"
    rollview query "SELECT count(*) AS n FROM shop.sales" --max-staleness 0s
    """
    with opened(project_file, "querying") as at:
        at.tell("querying")
        answer = at.project.query(sql, max_staleness)
        shown = page(answer.rows, rows_shown(limit, as_json), ordered=False)
    if as_json:
        valid = {
            "csn": answer.csn,
            "valid_from": answer.valid_from,
            "valid_until": answer.valid_until or None,
        }
        print_json({**valid, "columns": shown.columns, "rows": shown.records(), "total": shown.total})
        return
    console = results()
    print_page(console, shown)
    until = answer.valid_until or "now"
    since = answer.valid_from or "the first load"
    console.print(Text(f"\nas of csn {answer.csn}, valid from {since} until {until}", style="dim"))

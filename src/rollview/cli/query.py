"""`rollview query`: SQL over views and relations, all as of one csn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rollview.answer.requests import QueryPlanRequest, QueryRequest
from rollview.cli.answers import limit_option, print_page, reply_to, rows_shown, shown_rows
from rollview.cli.project_context import project_options
from rollview.cli.terminal import print_json, results
from rollview.config.durations import EXAMPLES, seconds_of
from rollview.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console


class Duration(click.ParamType[float]):
    """A duration option such as `30s`; a number alone is seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The duration in seconds."""
        seconds = seconds_of(str(value))
        if seconds is None:
            self.fail(f"{value!r} is not a valid duration; for example {EXAMPLES}", param, ctx)
        return seconds


@click.command()
@click.argument("sql")
@click.option("--as-of", metavar="T", help="The point in time to answer for.  [default: the newest possible]")
@click.option(
    "--max-staleness",
    type=Duration(),
    metavar="D",
    help="Refresh first if the answer would be older: 0s, 30s, 5m, 2h.  [default: never]",
)
@click.option("--rewrite/--no-rewrite", default=True, help="Whether views may stand for their tables.")
@click.option("--explain", is_flag=True, help="Only say what would be read, and why.")
@limit_option
@project_options
def query(
    sql: str,
    as_of: str | None,
    max_staleness: float | None,
    rewrite: bool,
    explain: bool,
    limit: int | None,
    project_file: Path,
    as_json: bool,
) -> None:
    """Query views and relations that are valid at the same point in time.

    SQL is any Spark SQL query; a bare name is a view, `source.table` a relation that some view uses, with the
    columns that views use. All of them are read as of one csn, the newest at which every one of them is
    valid, so that their numbers agree with each other; where there is none, the query is refused. The answer
    comes with its valid time: from when, and until when if something that it depends on has changed since.

    What stored views can answer is taken from them, rolled to that csn: views with weaker conditions, with
    some of the joins, with finer groups, several of them in one query. The way that reads the fewest rows is
    chosen. Of relations, only the columns and rows that the query names are read.

    T is `csn:N`, an ISO time such as 2026-01-31T12:00:00 (local, unless it names a zone), `-1h` for an hour
    ago, a source's own position such as `crm:0/1A2B3C4` (LSN) or `store:0-1-42` (GTID), or `latest`.

    \b
    rollview query "SELECT sum(total) AS total FROM sales_by_state"
    rollview query "SELECT count(*) AS n FROM shop.sales" --max-staleness 0s
    rollview query "SELECT sum(n) AS n FROM sales_by_state" --as-of csn:2 --explain
    """
    if as_of is not None and max_staleness is not None:
        hint = "leave one of them out: an answer for a point in time is as old as that"
        raise InputError("--as-of and --max-staleness exclude each other", subject="--as-of", hint=hint)
    if explain:
        reply = reply_to(project_file, QueryPlanRequest(sql, as_of, rewrite), "querying")
        _print_plan(results(), reply.facts, as_json)
        return
    request = QueryRequest(sql, as_of, max_staleness, rewrite, rows_shown(limit, as_json))
    reply = reply_to(project_file, request, "querying")
    shown, answer = shown_rows(reply), reply.facts
    if as_json:
        valid = {
            "csn": answer["csn"],
            "valid_from": answer["valid_from"],
            "valid_until": answer["valid_until"] or None,
            "staleness_seconds": round(answer["staleness"], 3),
        }
        print_json({**valid, "columns": shown.columns, "rows": shown.records(), "total": shown.total})
        return
    from rich.text import Text

    console = results()
    print_page(console, shown)
    console.print(Text(f"\n{_valid(answer)}", style="dim"))
    if max_staleness is not None and answer["staleness"] > max_staleness:
        late = f"it took longer than that to compute: the answer is {answer['staleness']:.1f} s old"
        console.print(Text(late, style="yellow"))


def _valid(known: Mapping[str, Any]) -> str:
    since, until = known["valid_from"] or "the first load", known["valid_until"] or "now"
    return f"as of csn {known['csn']}, valid from {since} until {until}"


def _print_plan(console: Console, plan: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json({**plan, "valid_until": plan["valid_until"] or None})
        return
    from rich.text import Text

    named = [*plan["inputs"], *({"name": each["view"]} for each in plan["candidates"])]
    width = max((len(each["name"]) for each in named), default=0)
    for each in plan["inputs"]:
        rows = "" if each["rows"] is None else f"; rows: {each['rows']:,}"
        console.print(Text.assemble((each["name"].ljust(width), "bold"), f"  {each['how']}{rows}"))
    if plan["candidates"]:
        console.print(Text("\nviews of the same tables", style="dim"))
    for each in plan["candidates"]:
        verdict = "taken" if each["is_taken"] else "not taken"
        console.print(Text.assemble((each["view"].ljust(width), "bold"), f"  {verdict}: {each['why']}"))
    console.print(Text(f"\n{_valid(plan)}", style="dim"))

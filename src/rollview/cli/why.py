"""`rollview why`: what changed rows of a view, and the source rows that they are made of."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rollview.cli.answers import cell, limit_option, print_page, rows_shown, shown_page
from rollview.cli.project_context import opened, project_options
from rollview.cli.terminal import plain, plural, print_json, results

if TYPE_CHECKING:
    from rollview.answer.requests import Page
    from rollview.answer.why import ChangingTransaction, RowChange, SourceRows, Why


@click.command()
@click.argument("view")
@click.option(
    "--where",
    default="true",
    metavar="CONDITION",
    help="The rows of the view to explain, by its columns, in Spark SQL.  [default: all]",
)
@click.option("--as-of", metavar="T", help="The point in time to explain.  [default: as stored]")
@click.option("--since", metavar="T", help="List transactions after this one.  [default: the oldest kept]")
@limit_option
@project_options
def why(
    view: str,
    where: str,
    as_of: str | None,
    since: str | None,
    limit: int | None,
    project_file: Path,
    as_json: bool,
) -> None:
    """Explain rows of a view: what changed them, and what they are made of.

    Prints the rows that meet the condition, as of one csn; the transactions that changed such rows, the
    newest first, each with its source, its id there and what it did; and the rows of the relations that make
    up the rows of the view, asked from the sources and aligned to that csn. The view's SELECT is run over
    these rows again: the exit code is 1 if it does not give what the view shows.

    Source rows are those that the outermost FROM and WHERE of the view give. Where that is another view or a
    subquery, they are its rows. Of a UNION, a window function or a LIMIT there are none; the transactions are
    listed for every view.

    T is `csn:N`, an ISO time such as 2026-01-31T12:00:00 (local, unless it names a zone), `-1h` for an hour
    ago, a source's own position such as `crm:0/1A2B3C4` (LSN) or `store:0-1-42` (GTID), or `latest`.

    \b
    rollview why sales_by_state --where "state = 'CA'"
    rollview why sales_by_state --where "state = 'CA'" --as-of csn:2
    rollview why sale_lines --where "amount > 100" --since csn:1 --limit 5 --json
    """
    shown = rows_shown(limit, as_json)
    with opened(project_file, "reading") as at:
        found = at.project.why(view, where, as_of=as_of, since=since, limit=shown)
    # Not at the top: help and wrong arguments should not wait for it.
    from rollview.answer.answers import page_of

    rows = page_of(found.table, shown)
    inputs = page_of(found.source_rows.table, shown) if found.source_rows else None
    if as_json:
        print_json(_as_json(found, rows, inputs))
    else:
        _print(results(), found, rows, inputs, shown)
    if found.source_rows is not None and not found.source_rows.adds_up:
        raise SystemExit(1)


def _as_json(found: Why, rows: Page, inputs: Page | None) -> dict[str, Any]:
    shown, source = shown_page(rows), found.source_rows
    head = {"view": found.view, "where": found.where, "csn": found.csn, "commit_time": found.commit_time}
    listed = None
    if source is not None and inputs is not None:
        page = shown_page(inputs)
        listed = {
            "relations": source.relations,
            "columns": page.columns,
            "rows": page.records(),
            "total": page.total,
            "adds_up": source.adds_up,
            "differences": source.differences,
        }
    return {
        **head,
        "columns": shown.columns,
        "rows": shown.records(),
        "total": shown.total,
        "since_csn": found.since,
        "transactions": [plain(each) for each in found.transactions],
        "changed_by": found.changed_by,
        "source_rows": listed,
        "refusal": found.refusal,
    }


def _print(console: Console, found: Why, rows: Page, inputs: Page | None, limit: int | None) -> None:
    at_time = f" ({found.commit_time})" if found.commit_time else ""
    which = "" if found.where == "true" else f" where {found.where}"
    head = f" at csn {found.csn}{at_time}: {plural(rows.total, 'row')}{which}\n"
    console.print(Text.assemble((found.view, "bold"), head))
    print_page(console, shown_page(rows))
    _print_transactions(console, found, rows.rows.column_names, limit)
    if found.source_rows is None or inputs is None:
        console.print(Text(f"\n{found.refusal}", style="yellow"), soft_wrap=True)
    else:
        _print_source_rows(console, found, found.source_rows, inputs)


def _print_transactions(console: Console, found: Why, columns: list[str], limit: int | None) -> None:
    after = f"after csn {found.since} up to csn {found.csn}"
    if found.since == found.csn:
        console.print(Text(f"\nno changes of the view up to csn {found.csn} are listed", style="dim"))
        return
    if not found.changed_by:
        console.print(Text(f"\nno transaction {after} changed such rows", style="dim"))
        return
    console.print(Text(f"\nchanged by {plural(found.changed_by, 'transaction')} {after}, newest first\n"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("csn", "committed", "source", "transaction", ""):
        table.add_column(name, overflow="fold")
    for name in columns:
        table.add_column(Text(name), overflow="fold")
    for each in found.transactions:
        first = _transaction_cells(each)
        for change in each.changes[:limit]:
            table.add_row(*first, _kind(change), *(_change_cell(change, name) for name in columns))
            first = [Text()] * len(first)
        if left := len(each.changes[:limit]) - len(each.changes):
            table.add_row(*first, Text(f"… {-left:,} more", style="dim"))
    console.print(table)
    missing = found.changed_by - len(found.transactions)
    if missing:
        console.print(f"… and {missing:,} more", style="dim")


def _transaction_cells(each: ChangingTransaction) -> list[Text]:
    csn = str(each.csn) if each.first_csn == each.csn else f"{each.first_csn} to {each.csn}, condensed"
    sources = "\n".join(part.source for part in each.parts)
    ids = "\n".join(f"{part.transaction}{' or earlier' if part.is_merged else ''}" for part in each.parts)
    return [Text(csn), Text(each.commit_time), Text(sources), Text(ids)]


def _kind(change: RowChange) -> Text:
    times = f" ×{change.times}" if change.times > 1 else ""
    if change.before is None:
        return Text(f"+{times}", style="green")
    return Text(f"−{times}", style="red") if change.after is None else Text(f"→{times}")


def _change_cell(change: RowChange, name: str) -> Text:
    """The value, or the one before and the one after where they differ."""
    before, after = change.before, change.after
    if before is None or after is None:
        only = before if after is None else after
        return cell(only[name] if only else None)
    if before[name] == after[name]:
        return cell(before[name])
    return Text.assemble(cell(before[name]), " → ", cell(after[name]))


def _print_source_rows(console: Console, found: Why, source: SourceRows, inputs: Page) -> None:
    view, point = found.view, f"csn:{found.csn}"
    named = ", ".join(
        f"{alias} = {table}" if table else f"{alias}, a subquery" for alias, table in source.relations.items()
    )
    console.print(Text(f"\nmade of {plural(inputs.total, 'source row')} at csn {found.csn}: {named}\n"))
    print_page(console, shown_page(inputs))
    console.print()
    if source.adds_up:
        text = "recomputed from these rows, the view shows the same"
        console.print(Text.assemble(("✓ ", "bold green"), text))
    else:
        text = (
            f"recomputed from these rows, {plural(len(source.differences), 'row')} of the view would differ"
        )
        console.print(Text.assemble(("✗ ", "bold red"), text))
        console.print(Text(f"hint: `rollview verify {quote(view)}` compares the view with its sources"))
    for view in dict.fromkeys(each.table for each in source.columns if each.table and not each.is_of_source):
        console.print(
            Text(f"hint: `rollview why {quote(view)} --as-of {quote(point)}` explains rows of {view}")
        )

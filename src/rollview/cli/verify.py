"""`rollview verify`: stored views against a recomputation, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from rollview.cli.project_context import opened, project_options
from rollview.cli.rows import Page, print_page
from rollview.cli.terminal import plain, print_json, results

if TYPE_CHECKING:
    from rollview.service.verify import Verification


@click.command()
@click.argument("views", nargs=-1, metavar="[VIEW]...")
@project_options
def verify(views: tuple[str, ...], project_file: Path, as_json: bool) -> None:
    """Recompute views and report the rows that differ.

    Reads the relations from their sources as they are now, rolls them to the csn that the view shows, runs
    the view's own SQL over them on Spark, and compares the result with the stored view. Without names, all
    views are verified. The exit code is 1 if any row differs; for each such row the output says how many
    times it is stored and how many times it should be.

    \b
    rollview verify
    rollview verify sales_by_state
    """
    with opened(project_file, "verifying") as at:
        verdicts = at.project.verify(*views)
    if as_json:
        print_json({"views": [{**plain(each), "right": each.is_right} for each in verdicts]})
    else:
        console = results()
        for verdict in verdicts:
            print_verification(console, verdict)
    if not all(verdict.is_right for verdict in verdicts):
        raise SystemExit(1)


def print_verification(console: Console, verdict: Verification) -> None:
    """One line if the view is correct, else the rows that differ."""
    rows = "1 row" if verdict.rows == 1 else f"{verdict.rows:,} rows"
    at = f" at csn {verdict.csn}: {rows}"
    if verdict.is_right:
        console.print(
            Text.assemble(("✓ ", "bold green"), (verdict.view, "bold"), f"{at}, identical when recomputed")
        )
        return
    count = "1 row differs" if verdict.different == 1 else f"{verdict.different:,} rows differ"
    console.print(Text.assemble(("✗ ", "bold red"), (verdict.view, "bold"), f"{at}, ", (count, "red")))
    columns = ("stored", "should be", *verdict.columns)
    rows_shown = tuple((each.stored, each.expected, *each.row) for each in verdict.differences)
    print_page(console, Page(columns, rows_shown, verdict.different))
    console.print(Text(f"hint: `rollview setup --reload {verdict.view}` recomputes it", style="cyan"))

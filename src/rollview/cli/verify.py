"""`rollview verify`: stored views against a recomputation, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from rollview.cli.answers import Page, print_page
from rollview.cli.project_context import opened, project_options
from rollview.cli.terminal import plain, plural, print_json, results

if TYPE_CHECKING:
    from rollview.upkeep.verify import Verification


@click.command()
@click.argument("views", nargs=-1, metavar="[VIEW]...")
@project_options
def verify(views: tuple[str, ...], project_file: Path, as_json: bool) -> None:
    """Recompute views and report the rows that differ.

    Reads the relations from their sources as they are now, rolls them to the csn that the view shows, runs
    the view's own SQL over them on Spark, and compares the result with the stored view. Without names, all
    views are verified. The exit code is 1 if any row differs, or if a view cannot be recomputed; for each row
    that differs the output says how many times it is stored and how many times it should be.

    A difference is a suspicion against the tables that the view reads: all other views that read one of them
    are verified, too, and the hint names every view to reload.

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
        print_way_out(console, verdicts, views)
    if not all(verdict.is_right for verdict in verdicts):
        raise SystemExit(1)


def print_verification(console: Console, verdict: Verification) -> None:
    """One line if the view is correct, else the rows that differ, or why it could not be verified."""
    if verdict.problem:
        console.print(Text.assemble(("✗ ", "bold red"), (verdict.view, "bold"), f": {verdict.problem}"))
        return
    rows = plural(verdict.rows, "row")
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


def print_way_out(console: Console, verdicts: Sequence[Verification], asked: Sequence[str]) -> None:
    """The other views that were verified, and the command that reloads every view that is or may be wrong."""
    # Not at the top: help and wrong arguments should not wait for it.
    from rollview.upkeep.verify import doubtful

    found = doubtful(verdicts)
    if not found.wrong:
        return
    others = [verdict.view for verdict in verdicts if asked and verdict.view not in asked]
    if others:
        console.print(f"other views read the same tables and were verified, too: {', '.join(others)}")
    if found.unknown:
        console.print(f"these could not be verified and may be wrong as well: {', '.join(found.unknown)}")
    them = "it" if len(found.wrong) + len(found.unknown) == 1 else "them"
    console.print(Text(f"hint: `{found.command}` reloads {them}", style="cyan"), soft_wrap=True)

"""Rows on a terminal and as JSON: the first of them, in a stable order, and how many there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rollview.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_LIMIT = 20


@dataclass(frozen=True)
class Page:
    """The first rows of a table, and the number of all of them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    total: int

    def records(self) -> list[dict[str, Any]]:
        """The rows as JSON has them: names to values."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def limit_option(function: F) -> F:
    """Adds `--limit N`."""
    return click.option(
        "--limit",
        type=click.IntRange(0),
        metavar="N",
        help=f"Show at most N rows.  [default: {DEFAULT_LIMIT}; with --json: all]",
    )(function)


def rows_shown(limit: int | None, as_json: bool) -> int | None:
    """How many rows to show: what was asked for, or else all for machines and a few for people."""
    return limit if limit is not None or as_json else DEFAULT_LIMIT


def page(frame: Any, limit: int | None, first: Sequence[str] = (), ordered: bool = True) -> Page:
    """The first rows of a Spark DataFrame; `first` names columns to put and to sort in front."""
    names = tuple(frame.columns)
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"two columns are called `{name}`", subject=name, hint="rename one of them with AS"
            )
    columns = (*first, *(name for name in names if name not in first))
    quoted = [f"`{name.replace('`', '``')}`" for name in columns]
    chosen = frame.select(*quoted)
    if ordered:
        chosen = chosen.orderBy(*quoted)
    found = chosen.collect() if limit is None else chosen.limit(limit + 1).collect()
    rows = tuple(tuple(row) for row in (found if limit is None else found[:limit]))
    total = frame.count() if len(found) > len(rows) else len(rows)
    return Page(columns, rows, total)


def print_page(console: Console, shown: Page) -> None:
    """The rows as a table: numbers to the right, NULL dimmed, long text folded."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for position, name in enumerate(shown.columns):
        values = [row[position] for row in shown.rows if row[position] is not None]
        numeric = bool(values) and all(map(is_number, values))
        table.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
    for row in shown.rows:
        table.add_row(*map(cell, row))
    console.print(table)
    missing = shown.total - len(shown.rows)
    if missing:
        console.print(f"… and {missing:,} more", style="dim")
    elif not shown.rows:
        console.print("no rows", style="dim")


def is_number(value: Any) -> bool:
    """Whether a value belongs to the right edge of its column."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def cell(value: Any) -> Text:
    """One value as text; control characters are shown, not obeyed."""
    if value is None:
        return Text("NULL", style="dim")
    if isinstance(value, bool):
        return Text(str(value).lower())
    if isinstance(value, bytes | bytearray):
        return Text(f"X'{bytes(value).hex()}'")
    text = str(value)
    return Text("".join(each if each.isprintable() else repr(each)[1:-1] for each in text))

"""Rows on a terminal and as JSON: the first of them, in a stable order, and how many there are."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rollview.cli.terminal import plain
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


def page(found: Any, limit: int | None, first: Sequence[str] = (), ordered: bool = True) -> Page:
    """The first rows of a DataFrame or an Arrow table; `first` names columns to put and to sort in front."""
    names = tuple(getattr(found, "column_names", None) or found.columns)
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"two columns are called `{name}`", subject=name, hint="rename one of them with AS"
            )
    columns = (*first, *(name for name in names if name not in first))
    if hasattr(found, "column_names"):
        rows = _first_here(found.select(list(columns)), limit)
        return Page(columns, rows, found.num_rows)
    quoted = [f"`{name.replace('`', '``')}`" for name in columns]
    chosen = found.select(*quoted)
    if ordered:
        chosen = chosen.orderBy(*quoted)
    some = _rows_of((chosen if limit is None else chosen.limit(limit + 1)).toArrow())
    rows = some[:limit]
    return Page(columns, rows, found.count() if len(some) > len(rows) else len(rows))


def _first_here(table: Any, limit: int | None) -> tuple[tuple[Any, ...], ...]:
    """The first rows of an Arrow table, in the order that Spark would give them."""
    nested = {field.name for field in table.schema if field.type.num_fields}
    order = [(name, "ascending", "at_start") for name in table.column_names if name not in nested]
    chosen = table.sort_by(order) if order else table
    return _rows_of(chosen if limit is None else chosen.slice(0, limit))


def _rows_of(table: Any) -> tuple[tuple[Any, ...], ...]:
    """Python's values; instants as local times, as everywhere on the terminal."""
    columns = [
        [_local(value) if isinstance(value, datetime) else value for value in column.to_pylist()]
        for column in table.columns
    ]
    return tuple(zip(*columns, strict=True))


def _local(value: datetime) -> datetime:
    return value if value.tzinfo is None else value.astimezone().replace(tzinfo=None)


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
    nested = isinstance(value, list | tuple | dict)
    text = json.dumps(plain(value), ensure_ascii=False) if nested else str(value)
    return Text("".join(each if each.isprintable() else repr(each)[1:-1] for each in text))

"""Invented rows of a table: values that are small, often equal and often NULL, with the constants of a view's
text among them, so that its conditions and joins find something to turn on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp, parse_one

from rollview.algebra.bag import COUNT
from rollview.algebra.relation import Table
from rollview.rows import arrow_schema
from rollview.sql.place import DIALECT

INVENTED_ROWS = 24
"""Of each table."""


def constants_of(sql: str) -> Iterator[str]:
    """The constants of a view's text."""
    for literal in parse_one(sql, dialect=DIALECT).find_all(exp.Literal):
        yield literal.name


def invented(table: Table, constants: Sequence[str]) -> pa.Table:
    """The rows, always the same ones."""
    chance = random.Random(table.qualified)
    types = list(zip(table.columns, table.types, strict=True))
    schema = arrow_schema([*types, (COUNT, "bigint")])
    columns: list[list[Any]] = []
    for name, kind in types:
        values = list(_values(kind, constants))
        column = [chance.choice(values) if values else None for _ in range(INVENTED_ROWS)]
        if name not in table.key:
            # Not left to chance: every column has values that are missing.
            for place in chance.sample(range(INVENTED_ROWS), INVENTED_ROWS // 6):
                column[place] = None
        columns.append(column)
    counts = [1 if table.key else chance.choice((1, 1, 2)) for _ in range(INVENTED_ROWS)]
    rows = _with_one_per_key(table, list(zip(*columns, counts, strict=True)))
    arrays = [pa.array(each, field.type) for each, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _with_one_per_key(table: Table, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """What a table declares as its key is one: plans rely on it."""
    places = [table.columns.index(name) for name in table.key]
    by_key = {tuple(row[place] for place in places): row for row in rows}
    return list(by_key.values()) if table.key else rows


def _values(kind: str, constants: Sequence[str]) -> Iterator[Any]:
    """A few values of a type, and the constants that have it."""
    word = kind.lower().partition("(")[0]
    if word == "boolean":
        yield from (True, False)
    elif word in ("tinyint", "smallint", "int", "bigint"):
        yield from range(8)
        yield from (int(each) for each in constants if each.isdecimal() and int(each) < 100)
    elif word in ("float", "double"):
        yield from (0.0, 1.0, 2.5)
        yield from (float(each) for each in constants if _is_number(each))
    elif word == "decimal":
        yield from _decimals(kind)
    elif word == "date":
        yield from (date(2024, 1, 31) + timedelta(days=each) for each in (0, 1, 30, 366))
        yield from (each for each in map(_date, constants) if each)
    elif word in ("timestamp", "timestamp_ntz"):
        zone = UTC if word == "timestamp" else None
        first = datetime(2024, 1, 31, 10, tzinfo=zone)
        yield from (first + timedelta(hours=each) for each in (0, 1, 30, 9000))
        days = [each for each in map(_date, constants) if each]
        yield from (datetime(each.year, each.month, each.day, tzinfo=zone) for each in days)
    elif word == "string":
        yield from ("", "a", "b", "A b")
        yield from constants
    elif word == "binary":
        yield from (b"", b"a")


def _decimals(kind: str) -> Iterator[Decimal]:
    """Small ones, and one with as many digits as there may be."""
    precision, scale = map(int, kind[kind.index("(") + 1 : -1].split(","))
    yield from (Decimal(each).scaleb(-scale) for each in (0, 1, 3))
    yield Decimal(2 if precision > scale else 0)
    yield Decimal("7" * min(precision, 30)).scaleb(-scale)


def _is_number(text: str) -> bool:
    try:
        return abs(float(text)) < 1e6
    except ValueError:
        return False


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None

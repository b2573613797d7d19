"""What the tests of the lake write: a small change log, and one row of every type."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from rollview.lake import Commit, LakeTable
from rollview.rows import arrow_schema

CHANGES = (("k", "bigint"), ("name", "string"), ("_count", "bigint"), ("_csn", "bigint"))

EVERY_TYPE = (
    ("flag", "boolean"),
    ("tiny", "tinyint"),
    ("small", "smallint"),
    ("whole", "int"),
    ("big", "bigint"),
    ("single", "float"),
    ("double", "double"),
    ("narrow", "decimal(9,2)"),
    ("middle", "decimal(18,4)"),
    ("wide", "decimal(38,10)"),
    ("text", "string"),
    ("bytes", "binary"),
    ("day", "date"),
    ("instant", "timestamp"),
    ("local", "timestamp_ntz"),
    ("with.dot and space", "int"),
    ("_csn", "bigint"),
)
_UTC = dt.UTC
ROWS: list[tuple[Any, ...]] = [
    (
        True,
        -128,
        -(2**15),
        -(2**31),
        -(2**63),
        -1.5,
        float("-inf"),
        Decimal("-9999999.99"),
        Decimal("-12345678901234.5678"),
        Decimal("-1234567890123456789012345678.0123456789"),
        "",
        b"",
        dt.date(1, 1, 1),
        dt.datetime(1, 1, 1, tzinfo=_UTC),
        dt.datetime(1, 1, 1, 0, 0, 0, 1),
        7,
        1,
    ),
    (
        False,
        127,
        2**15 - 1,
        2**31 - 1,
        2**63 - 1,
        0.1,
        1e300,
        Decimal("0.01"),
        Decimal("0.0001"),
        Decimal("9999999999999999999999999999.9999999999"),
        'é\U0001f600\u2028\x85"\\' * 40,
        b"\x00\xff",
        dt.date(9999, 12, 31),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=_UTC),
        dt.datetime(1582, 10, 10, 12, 0, 0, 123456),
        None,
        2,
    ),
    (*(None for _ in EVERY_TYPE[:-1]), 3),
]


def every_type() -> pa.Table:
    """Extreme, ordinary and missing values of all types that a table can have."""
    rows = [dict(zip(dict(EVERY_TYPE), row, strict=True)) for row in ROWS]
    return pa.Table.from_pylist(rows, schema=arrow_schema(EVERY_TYPE))


def changes(csn: int, rows: int, seed: int = 0) -> pa.Table:
    """Rows of a change log, all of one csn."""
    chance = random.Random(f"{csn} {rows} {seed}")
    keys = [chance.randrange(1000) for _ in range(rows)]
    columns = [keys, [f"name {key % 7}" for key in keys], [1] * rows, [csn] * rows]
    return pa.table(columns, schema=arrow_schema(CHANGES))


def commit(step: int, writer: str = "capture", csn: int | None = None) -> Commit:
    """A commit whose csn is its step, if nothing else is said."""
    return Commit(writer, step, step if csn is None else csn, 1000.0 + step, f"{writer} {step}")


def change_log(folder: Path, steps: int = 0, rows: int = 10) -> LakeTable:
    """A change log with so many appends, the csn of each being its step."""
    table = LakeTable(folder)
    table.create(CHANGES)
    for step in range(1, steps + 1):
        table.append(changes(step, rows), commit(step))
    return table


def bag(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    """Rows without their order, to be compared."""
    return Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def content(table: LakeTable) -> Counter[tuple[Any, ...]]:
    """All rows of a table."""
    return bag(table.load(table.files()))

"""Results of queries, which come as text, as Arrow arrays, a column at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rollview.rows import arrow_schema, arrow_type
from rollview.sources.mariadb.packets import Row
from rollview.sources.mariadb.unrepresentable import exactly
from rollview.sources.source import COUNT

_FIRST_DAY = (date(1, 1, 1) - date(1970, 1, 1)).days


def text_values(kind: str, place: str) -> Callable[[list[Any]], pa.Array]:
    """How a column's texts become an array of a Spark SQL type."""
    arrow = arrow_type(kind)
    if kind == "binary":
        return lambda values: pa.array(values, arrow)
    if kind == "boolean":
        return lambda values: pa.array([None if value is None else value == b"1" for value in values], arrow)
    through = arrow
    if kind in ("timestamp", "timestamp_ntz"):
        # Arrow reads no zone from such a text; the session's is UTC.
        through = pa.timestamp("us")
    elif kind == "float":
        through = pa.float64()

    def convert(values: list[Any]) -> pa.Array:
        texts = pa.array(values, pa.binary()).cast(pa.string())
        read = texts.cast(through)
        if kind in ("date", "timestamp", "timestamp_ntz"):
            _expect_year(read)
        return read if kind == "string" else read.cast(arrow, safe=kind != "float")

    return exactly(convert, kind, place, lambda value: repr(value.decode(errors="replace")))


def _expect_year(array: pa.Array) -> None:
    """There is no year 0 in Spark's or Python's dates, but Arrow has one."""
    least = pc.min(array.cast(pa.date32(), safe=False).cast(pa.int32())).as_py()
    if least is not None and least < _FIRST_DAY:
        raise ValueError("a date before the year 1")


def table_of(columns: Sequence[tuple[str, str]], rows: Sequence[Row], place: str) -> pa.Table:
    """Rows as an Arrow table with `_count`, 1 for each; `place` names the table in errors."""
    schema = arrow_schema((*columns, (COUNT, "bigint")))
    by_column: list[Any] = list(zip(*rows, strict=True)) if rows and columns else [()] * len(columns)
    arrays = [
        text_values(kind, f"{place}.{name}")(list(values))
        for (name, kind), values in zip(columns, by_column, strict=True)
    ]
    arrays.append(pa.array([1] * len(rows), pa.int64()))
    return pa.Table.from_arrays(arrays, schema=schema)


def literal(value: Any) -> str:
    """A value of Arrow as SQL text that means the same in any session of ours."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, str):
        return f"_utf8mb4 X'{value.encode().hex()}'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime):
        in_utc = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return f"'{in_utc.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"'{value.isoformat()}'"
    return f"{value:f}" if isinstance(value, Decimal) else str(value)

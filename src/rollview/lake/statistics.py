"""Statistics of a data file, taken from its Parquet footer and written as Delta writes them.

They decide which files a reader skips, so a bound may be too wide but never too narrow. Booleans and binary
values get none, as in Delta. Neither do floating-point numbers: a footer does not tell whether there are NaN,
which Spark orders above everything else.
"""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rollview.errors import LakeError

INDEXED_COLUMNS = 32
"""How many columns get statistics (Delta's default); names that begin with an underscore always do."""

_STRING_LENGTH = 32
_LAST_CHARACTER = "\U0010ffff"


@dataclass(frozen=True)
class Bounds:
    """What a footer says of one column; `minimum` and `maximum` are None where they are unknown."""

    minimum: Any
    maximum: Any
    nulls: int | None


def statistics_of(file: Path) -> tuple[int, str]:
    """The number of rows of a Parquet file, and its statistics in Delta's JSON."""
    footer = pq.read_metadata(file)
    columns = {}
    for position in range(footer.num_columns):
        name = footer.schema.column(position).name
        if footer.schema.column(position).physical_type == "INT96":
            raise LakeError(
                f"{file.name} holds timestamps in the outdated INT96 form",
                subject=name,
                hint="set spark.sql.parquet.outputTimestampType to TIMESTAMP_MICROS in the Spark session",
            )
        if position < INDEXED_COLUMNS or name.startswith("_"):
            columns[name] = _bounds(footer, position)
    return footer.num_rows, _as_json(footer.num_rows, columns)


def _bounds(footer: Any, position: int) -> Bounds:
    """The bounds over all row groups; unknown as soon as one group does not know."""
    groups = [footer.row_group(group).column(position).statistics for group in range(footer.num_row_groups)]
    if any(group is None or not group.has_null_count for group in groups):
        return Bounds(None, None, None)
    nulls = sum(group.null_count for group in groups)
    filled = [group for group in groups if group.num_values > 0]
    if not filled or not all(group.has_min_max for group in filled):
        return Bounds(None, None, nulls)
    try:
        minimum = min(_lower(group.min) for group in filled)
        maximum = max(_upper(group.max) for group in filled)
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        # No bound of this type, or a date that Python cannot express.
        return Bounds(None, None, nulls)
    return Bounds(minimum, maximum, nulls)


def _lower(value: Any) -> Any:
    if isinstance(value, bool | float | bytes) or value is None:
        raise TypeError
    return value[:_STRING_LENGTH] if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    if isinstance(value, bool | float | bytes) or value is None:
        raise TypeError
    return _above(value) if isinstance(value, str) and len(value) > _STRING_LENGTH else value


def _above(value: str) -> str:
    """A short string that is greater than all that begin like this one: its last character, counted up."""
    prefix = value[:_STRING_LENGTH].rstrip(_LAST_CHARACTER)
    if not prefix:
        return value
    following = ord(prefix[-1]) + 1
    # The surrogates are no characters; UTF-8 has a gap there.
    return prefix[:-1] + chr(0xE000 if following == 0xD800 else following)


def _as_json(rows: int, columns: dict[str, Bounds]) -> str:
    parts = {
        "minValues": {name: _text(bounds.minimum) for name, bounds in columns.items()},
        "maxValues": {name: _text(bounds.maximum) for name, bounds in columns.items()},
        "nullCount": {name: _text(bounds.nulls) for name, bounds in columns.items()},
    }
    objects = [f'"{part}":{_object(values)}' for part, values in parts.items()]
    return f'{{"numRecords":{rows},{",".join(objects)}}}'


def _object(values: dict[str, str | None]) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in values.items() if text) + "}"


def _text(value: Any) -> str | None:
    """JSON of a value. Decimals are numbers with all their digits, which the json module cannot write."""
    if value is None:
        return None
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime.datetime):
        zone = "Z" if value.tzinfo else ""
        return f'"{value.replace(tzinfo=None).isoformat(timespec="microseconds")}{zone}"'
    if isinstance(value, datetime.date):
        return f'"{value.isoformat()}"'
    return json.dumps(value, ensure_ascii=False)

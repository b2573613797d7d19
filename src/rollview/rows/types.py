"""Column types: Spark SQL's names for them, and what Arrow calls the same."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa

from rollview.errors import UnsupportedError

_TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
_NAMES = {arrow: name for name, arrow in _TYPES.items()} | {
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    # Unsigned numbers take the next wider signed type.
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20,0)",
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a Spark SQL type name such as `bigint` or `decimal(15,2)`."""
    if decimal := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if name not in _TYPES:
        raise UnsupportedError(f"columns of type {name} are not supported", subject=name)
    return _TYPES[name]


def spark_type(arrow: pa.DataType) -> str:
    """The Spark SQL type name of an Arrow type."""
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_timestamp(arrow):
        return "timestamp" if arrow.tz else "timestamp_ntz"
    if arrow not in _NAMES:
        raise UnsupportedError(f"columns of type {arrow} are not supported", subject=str(arrow))
    return _NAMES[arrow]


def arrow_schema(columns: Iterable[tuple[str, str]]) -> pa.Schema:
    """The Arrow schema of columns given with their Spark SQL types."""
    return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in columns])

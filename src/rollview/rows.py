"""Rows are an Arrow table where they are few, and a description of Parquet files where they are many.

Neither needs Spark, so that sources and catalog stay free of it; `spark` makes a bag of either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from rollview.errors import UnsupportedError


@dataclass(frozen=True)
class ColumnRanges:
    """Values of a column: those within one of the closed ranges, of which there is at least one."""

    column: str
    ranges: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True)
class ScanFile:
    """A Parquet file; `constants` gives columns that are not in the file but the same for all its rows.

    Those are a Delta table's partition values, and `_count` where all rows were added or removed.
    """

    path: str
    constants: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FileScan:
    """The rows of some Parquet files; `schema` gives the wanted columns with their Spark SQL types.

    Rows that are not `within` all ranges are left out. A scan may use that only to read less: a
    scan may hold more rows than were looked for.
    """

    files: tuple[ScanFile, ...]
    schema: tuple[tuple[str, str], ...]
    within: tuple[ColumnRanges, ...] = ()


Rows = pa.Table | FileScan


# Column types: Spark SQL's names for them, and what Arrow calls the same.


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
_NESTED = re.compile(r"(array|struct)<(.+)>")
_NAME = re.compile(r"[^:<>(),]+")
_FIELD = re.compile(rf"({_NAME.pattern}):(.+)")


_NOT_STORED = "compute with whole numbers in it, such as unix_micros(a) - unix_micros(b)"


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a Spark SQL type name such as `bigint` or `decimal(15,2)`."""
    if decimal := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if (nested := _NESTED.fullmatch(name)) and (inner := _nested_type(nested[1], nested[2])) is not None:
        return inner
    if name not in _TYPES:
        raise UnsupportedError(f"columns of type {name} are not supported", subject=name)
    return _TYPES[name]


def _nested_type(kind: str, inside: str) -> pa.DataType | None:
    """An array or a struct; None where Spark's notation is ambiguous about where a name ends."""
    if kind == "array":
        return pa.list_(arrow_type(inside))
    fields = [_FIELD.fullmatch(part) for part in _parts(inside)]
    if not all(fields):
        return None
    return pa.struct([pa.field(each[1], arrow_type(each[2])) for each in fields if each])


def _parts(inside: str) -> Iterator[str]:
    """The parts between commas outside of all brackets."""
    depth, part = 0, ""
    for character in inside:
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            yield part
            part = ""
        else:
            part += character
    yield part


def type_sql(name: str) -> str:
    """A type in Spark's own notation as SQL: with the fields of structs in quotes, since `0` may be one."""
    nested = _NESTED.fullmatch(name)
    if nested is None:
        return name
    if nested[1] == "array":
        return f"array<{type_sql(nested[2])}>"
    fields = [_FIELD.fullmatch(part) for part in _parts(nested[2])]
    quoted = [f"`{each[1].replace('`', '``')}`:{type_sql(each[2])}" for each in fields if each]
    return f"struct<{','.join(quoted)}>" if len(quoted) == len(fields) else name


def spark_type(arrow: pa.DataType) -> str:
    """The Spark SQL type name of an Arrow type."""
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_timestamp(arrow):
        return "timestamp" if arrow.tz else "timestamp_ntz"
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return f"array<{spark_type(arrow.value_type)}>"
    if pa.types.is_struct(arrow) and all(_NAME.fullmatch(field.name) for field in arrow):
        return f"struct<{','.join(f'{field.name}:{spark_type(field.type)}' for field in arrow)}>"
    if pa.types.is_duration(arrow):
        raise UnsupportedError("columns of intervals cannot be stored", subject="interval", hint=_NOT_STORED)
    if arrow not in _NAMES:
        raise UnsupportedError(f"columns of type {arrow} are not supported", subject=str(arrow))
    return _NAMES[arrow]


def arrow_schema(columns: Iterable[tuple[str, str]]) -> pa.Schema:
    """The Arrow schema of columns given with their Spark SQL types."""
    return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in columns])

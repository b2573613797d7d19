"""Column types: Spark SQL's names for them, and what Arrow calls the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

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
_NESTED = re.compile(r"(array|struct)<(.+)>")
_NAME = re.compile(r"[^:<>(),]+")
_FIELD = re.compile(rf"({_NAME.pattern}):(.+)")


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
    """An array or a struct; None where Spark's way of writing it leaves open where a name ends."""
    if kind == "array":
        return pa.list_(arrow_type(inside))
    fields = [_FIELD.fullmatch(part) for part in _parts(inside)]
    if not all(fields):
        return None
    return pa.struct([pa.field(each[1], arrow_type(each[2])) for each in fields if each])


def _parts(inside: str) -> Iterator[str]:
    """What stands between commas, outside of all brackets."""
    depth, part = 0, ""
    for character in inside:
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            yield part
            part = ""
        else:
            part += character
    yield part


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
    if arrow not in _NAMES:
        raise UnsupportedError(f"columns of type {arrow} are not supported", subject=str(arrow))
    return _NAMES[arrow]


def arrow_schema(columns: Iterable[tuple[str, str]]) -> pa.Schema:
    """The Arrow schema of columns given with their Spark SQL types."""
    return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in columns])

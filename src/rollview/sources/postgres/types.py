"""PostgreSQL types as Spark SQL types, and values, which come as text, as Arrow columns.

| PostgreSQL | Spark SQL | note |
|---|---|---|
| boolean | boolean | |
| smallint, integer, bigint | smallint, int, bigint | |
| real, double precision | float, double | NaN and infinities included |
| numeric(p,s), p ≤ 38 | decimal(p,s) | a negative scale gives decimal(p−s,0), a scale above p decimal(s,s) |
| numeric | decimal(38,18) | a value that does not fit is an error, as is NaN |
| text, varchar, citext, name | string | |
| char(n) | string | with its trailing blanks, as SQL shows it |
| uuid, json, jsonb, xml, time, enums | string | the text that SQL shows |
| inet, cidr, macaddr, macaddr8 | string | the text that SQL shows |
| bytea | binary | |
| date | date | infinity, BC and years after 9999 are errors |
| timestamp | timestamp_ntz | the same |
| timestamp with time zone | timestamp | the same; an instant, whatever zone it was written in |
| a domain over one of these, or over a domain | as that one | |
| an array of one of these | string | the text that SQL shows, such as `{1,NULL,3}`, with times in UTC |

Other types have no equal: composite types, ranges, interval, time with time zone, money, bit strings,
geometric types, text search types, numeric with more than 38 digits. A column of such a type cannot be used
in views, nor can a generated one before version 18 (the log does not have it); the table's others can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rollview.errors import UnrepresentableValue
from rollview.rows import arrow_type
from rollview.sources.source import reload_hint

_PLAIN = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "float4": "float",
    "float8": "double",
    "bytea": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
TEXTS = ("text", "varchar", "bpchar", "name", "citext")
"""Types whose values are texts."""

SHOWN_AS_TEXT = ("uuid", "json", "jsonb", "xml", "time", "inet", "cidr", "macaddr", "macaddr8")
"""Types that Spark does not have, but whose text form is exact and the same everywhere."""

ENUM = "enum"
"""Stands for every type that lists its values."""

ARRAY = "array"
"""Stands for arrays of types that have an equal."""

_NOT_DECODED = (pa.ArrowException, ValueError, ArithmeticError, NotImplementedError)
"""Errors of the decoder that count as errors of the value: a loss of its table, never of all tables."""

_MOST_DIGITS = 38
_NUMERIC_HEADER = 4
_UNCHECKED = {
    f"decimal(38,{scale})": rf"^-?[0-9]{{0,{max(_MOST_DIGITS - scale, 1)}}}(\.|$)"
    for scale in range(_MOST_DIGITS + 1)
}
"""The types that also stand for numeric of any size, with the numbers that fit."""


def spark_type_of(kind: str, modifier: int) -> str | None:
    """The Spark SQL type of a type by name, and its modifier (−1: none); None if it has no equal."""
    if kind == "numeric":
        return _decimal(modifier)
    if kind in TEXTS or kind in SHOWN_AS_TEXT or kind in (ENUM, ARRAY):
        return "string"
    return _PLAIN.get(kind)


def _decimal(modifier: int) -> str | None:
    if modifier < _NUMERIC_HEADER:
        return "decimal(38,18)"
    packed = modifier - _NUMERIC_HEADER
    precision = packed >> 16 & 0xFFFF
    # Eleven bits with a sign, since version 15; before, scales were small and positive.
    scale = (packed & 0x7FF ^ 0x400) - 0x400
    precision, scale = max(precision - min(scale, 0), scale), max(scale, 0)
    return f"decimal({precision},{scale})" if precision <= _MOST_DIGITS else None


def arrow_column(texts: pa.Array | pa.ChunkedArray, kind: str, place: str) -> Any:
    """Values as texts, as the server sends them, as a column of a Spark SQL type.

    `place` names the column in errors.
    """
    if kind == "string":
        return texts
    try:
        if kind == "boolean":
            return pc.equal(texts, "t")
        if kind == "binary":
            return pa.array([_bytes(value) for value in texts.to_pylist()], pa.binary())
        if kind in _UNCHECKED and not _has_room(texts, kind):
            raise _misfit(texts, kind, place)
        return texts.cast(arrow_type(kind))
    except _NOT_DECODED as error:
        raise _misfit(texts, kind, place) from error


def _has_room(texts: pa.Array | pa.ChunkedArray, kind: str) -> bool:
    """Whether no number has more digits before the point than fit: Arrow would not notice."""
    fitting = pc.match_substring_regex(texts, _UNCHECKED[kind])
    return bool(pc.all(fitting, min_count=0).as_py())


def from_log(kind: str, place: str) -> Callable[[list[Any]], pa.Array]:
    """A function that makes a column of the log's values: bytes in UTF-8, or None."""
    return lambda values: arrow_column(pa.array(values, pa.string()), kind, place)


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else bytes.fromhex(value[2:])


def _misfit(texts: pa.Array | pa.ChunkedArray, kind: str, place: str) -> UnrepresentableValue:
    value = next((each for each in texts.to_pylist() if not _fits(each, kind)), None)
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return UnrepresentableValue(
        f"{place} is read as {kind}, but holds {shown}, which {kind} cannot represent",
        subject=place,
        hint=f"change the value at the source, then {reload_hint(place)}",
    )


def _fits(value: str | None, kind: str) -> bool:
    text = pa.array([value], pa.string())
    try:
        text.cast(arrow_type(kind))
    except _NOT_DECODED:
        return False
    return kind not in _UNCHECKED or _has_room(text, kind)

"""Keys on their way to the server: which may be shipped, and as what.

Values that are equal in Spark must be equal at the server; a key that cannot be a value of the column, such
as a text that is no uuid, finds nothing there and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from rollview.rows import arrow_type
from rollview.sources.postgres.connections import quote, text_literal
from rollview.sources.postgres.structure import PostgresColumn
from rollview.sources.postgres.types import ARRAY, ENUM
from rollview.sources.source import IN, Comparison, Constant

_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_ALIKE = ("string", "double", "float", "binary", "boolean", "date", "timestamp", "timestamp_ntz")
_AS_TEXT = (ENUM, ARRAY, "json", "jsonb", "xml", "time", "macaddr", "macaddr8", "citext")
"""Kinds whose text is compared, because keys may be no values of them; no index helps there."""

_NATIVE = {"varchar": "text"}
_NEVER = ("inet", "cidr")
_MOST_DIGITS = 38
_NAME_BYTES = 63


def comparable(theirs: str, own: str) -> bool:
    """Whether a key of one Spark type finds, in a column of another, all that is equal in Spark."""
    if own in _DIGITS:
        return theirs in _DIGITS
    if own.startswith("decimal"):
        if not (theirs in _DIGITS or theirs.startswith("decimal")):
            return False
        # Spark compares in a type that has room for both, as long as there is one; then no digit is lost.
        (whole, fraction), (own_whole, own_fraction) = _room(theirs), _room(own)
        return max(whole, own_whole) + max(fraction, own_fraction) <= _MOST_DIGITS
    return (theirs == own and own in _ALIKE) or (theirs, own) == ("float", "double")


def _room(kind: str) -> tuple[int, int]:
    if decimal := _DECIMAL.fullmatch(kind):
        return int(decimal[1]) - int(decimal[2]), int(decimal[2])
    return _DIGITS[kind], 0


@dataclass(frozen=True)
class ShippedKeys:
    """Keys as texts, with the server's types; `columns` are what they are compared with, as SQL text.

    `exact` says that no two different keys can find the same row.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    texts: pa.Table
    exact: bool


def ship(keys: pa.Table, columns: Mapping[str, PostgresColumn]) -> ShippedKeys | None:
    """The keys as they are sent, named by the columns that they are looked up in; None: they cannot be."""
    usable = [columns[name] for name in keys.column_names if columns[name].kind not in _NEVER]
    if not usable:
        return None
    kept = keys.select([column.name for column in usable])
    for column in usable:
        kept = kept.filter(_possible(kept.column(column.name), column))
    texts = [_texts(kept.column(column.name), column) for column in usable]
    places = [f"k{i}" for i in range(len(usable))]
    as_text = [column.kind in _AS_TEXT for column in usable]
    return ShippedKeys(
        tuple(
            f"t.{quote(c.name)}::text" if text else f"t.{quote(c.name)}"
            for c, text in zip(usable, as_text, strict=True)
        ),
        tuple(
            "text" if text else _NATIVE.get(c.kind, c.kind) for c, text in zip(usable, as_text, strict=True)
        ),
        pa.Table.from_arrays(texts, names=places),
        len(usable) == len(keys.column_names) and all(column.exact for column in usable),
    )


def _possible(values: pa.ChunkedArray, column: PostgresColumn) -> pa.ChunkedArray:
    """Which keys can be values of the column at all."""
    kind = column.kind
    if kind == "uuid":
        return pc.match_substring_regex(values, _UUID)
    if column.type == "string":
        possible = pc.invert(pc.match_substring(values, "\0"))
        if kind != "name":
            return possible
        # A longer text would be cut to fit, and then find the row of another key.
        return pc.and_(possible, pc.less_equal(pc.binary_length(values), _NAME_BYTES))
    if kind in ("int2", "int4", "int8"):
        bits = {"int2": 15, "int4": 31, "int8": 63}[kind]
        wide = values.cast(pa.int64())
        return pc.and_(pc.greater_equal(wide, -(1 << bits)), pc.less_equal(wide, (1 << bits) - 1))
    if column.type in ("date", "timestamp", "timestamp_ntz"):
        years = pc.year(values)
        return pc.and_(pc.greater_equal(years, 1), pc.less_equal(years, 9999))
    return pc.is_valid(values)


def _texts(values: pa.ChunkedArray, column: PostgresColumn) -> pa.ChunkedArray:
    """Keys as texts that the server reads as the same values."""
    if column.type == "binary":
        found = ["\\x" + value.hex() for value in values.to_pylist()]
        return pa.chunked_array([pa.array(found, pa.string())])
    if column.type == "double":
        values = values.cast(arrow_type("double"))
    return values.cast(pa.string())


# Pushed conditions: which the server and Spark agree on, and their SQL.


_TEXTS = ("text", "varchar")
_MOST_INTEGER = (1 << 63) - 1


def can_push(comparison: Comparison, column_type: str) -> bool:
    """Whether all constants are compared with values of a Spark type as Spark compares them."""
    return all(_alike(value, comparison.operator, column_type) for value in comparison.values)


def _alike(value: Constant, operator: str, kind: str) -> bool:
    if type(value) is int:
        return abs(value) <= _MOST_INTEGER and comparable("bigint", kind)
    if type(value) is Decimal:
        return kind.startswith("decimal") and value.is_finite() and comparable(_decimal(value), kind)
    # Texts are equal or not everywhere alike, but ordered by each server's own collation.
    if type(value) is str:
        return kind == "string" and operator in ("=", IN) and "\0" not in value
    return kind == "date" and isinstance(value, date) and not isinstance(value, datetime)


def _decimal(value: Decimal) -> str:
    """The type that Spark gives to a decimal constant."""
    _, digits, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    return f"decimal({max(len(digits) + max(int(exponent), 0), scale)},{scale})"


def condition_sql(column: PostgresColumn, comparison: Comparison) -> str | None:
    """A condition that can be pushed, as SQL; None where a type that is only shown as text is in the way."""
    if column.type == "string" and not (column.kind in _TEXTS and column.exact):
        return None
    left, texts = f"t.{quote(column.name)}", [_literal(value) for value in comparison.values]
    if comparison.operator == IN:
        return f"{left} IN ({', '.join(texts)})"
    return f"{left} {comparison.operator} {texts[0]}"


def _literal(value: Constant) -> str:
    if isinstance(value, str):
        return text_literal(value)
    if isinstance(value, date):
        return f"{text_literal(value.isoformat())}::date"
    return f"({value:f})" if isinstance(value, Decimal) else f"({value})"

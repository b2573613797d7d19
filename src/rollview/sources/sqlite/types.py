"""Declared SQLite types as Spark SQL types, and stored values as Arrow columns.

| declared | Spark SQL | stored as |
|---|---|---|
| BOOL, BOOLEAN | boolean | 0 or 1 |
| DATE | date | text `YYYY-MM-DD` |
| DATETIME, TIMESTAMP | timestamp_ntz | text `YYYY-MM-DD[ T]HH:MM[:SS[.ffffff]]`, or a date |
| DECIMAL(p,s), NUMERIC(p,s) | decimal(p,s) | integer, real (by its shortest decimal form) or text |
| DECIMAL(p), NUMERIC(p) | decimal(p,0) | the same |
| DECIMAL, NUMERIC | decimal(38,18) | the same |
| contains INT | bigint | integer |
| contains CHAR, CLOB or TEXT | string | text |
| contains REAL, FLOA or DOUB | double | real |
| contains BLOB or BINARY, is ANY, or nothing | binary | blob |
| anything else (UUID, JSON, TIME …) | string | text |

SQLite allows any value in any column. One that is not stored as listed raises `UnrepresentableValue`: a guess
could be silently wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from rollview.ascii_text import upper_letters
from rollview.errors import UnrepresentableValue
from rollview.rows import arrow_type

_WHOLE_NAMES = {
    "BOOL": "boolean",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "DATETIME": "timestamp_ntz",
    "TIMESTAMP": "timestamp_ntz",
    "ANY": "binary",
    "": "binary",
}
_CONTAINED = (
    ("INT", "bigint"),
    ("CHAR", "string"),
    ("CLOB", "string"),
    ("TEXT", "string"),
    ("BLOB", "binary"),
    ("BINARY", "binary"),
    ("REAL", "double"),
    ("FLOA", "double"),
    ("DOUB", "double"),
)
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_MOST_DIGITS = 38
_SHOWN_CHARACTERS = 80


class NotText(bytes):
    """A text of SQLite that is not UTF-8."""


def as_text(raw: bytes) -> str | NotText:
    """A stored text; fits no column if it is none."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return NotText(raw)


def spark_type_of(declared: str) -> str:
    """The Spark SQL type of a column declared so."""
    upper = upper_letters(declared.strip(" \t\n\f\r"))
    if decimal := _DECIMAL.fullmatch(upper):
        if decimal[1] is None:
            return "decimal(38,18)"
        precision = min(max(int(decimal[1]), 1), _MOST_DIGITS)
        return f"decimal({precision},{min(int(decimal[2] or 0), precision)})"
    name = upper.partition("(")[0].strip()
    if name in _WHOLE_NAMES:
        return _WHOLE_NAMES[name]
    return next((kind for part, kind in _CONTAINED if part in name), "string")


def _boolean(value: int) -> bool:
    if value not in (0, 1):
        raise ValueError(value)
    return bool(value)


def _date(value: str) -> date:
    # Python reads more forms than this one; two texts for one date would break looking up by key.
    if not _DATE.fullmatch(value):
        raise ValueError(value)
    return date.fromisoformat(value)


def _timestamp(value: str) -> datetime:
    if not _TIMESTAMP.fullmatch(value):
        raise ValueError(value)
    # Python 3.11 reads fractions of any length; the pattern has made sure that none is cut off.
    return datetime.fromisoformat(value)


def _decimal(value: float | str) -> Decimal:
    # The shortest decimal form of a real is what was written: 0.1 is 0.1, not its binary neighbour.
    if isinstance(value, float):
        return Decimal(repr(value))
    # Python takes `1_000`, blanks around and digits of all scripts for numbers. SQLite does not.
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise ValueError(value)
    return Decimal(value)


def _as_it_is(value: Any) -> Any:
    return value


_NOTHING = type(None)
_Reading = tuple[frozenset[type], Callable[[Any], Any]]
_READINGS: dict[str, _Reading] = {
    "bigint": (frozenset({int, _NOTHING}), _as_it_is),
    "string": (frozenset({str, _NOTHING}), _as_it_is),
    "double": (frozenset({float, int, _NOTHING}), _as_it_is),
    "binary": (frozenset({bytes, _NOTHING}), _as_it_is),
    "boolean": (frozenset({int, _NOTHING}), _boolean),
    "date": (frozenset({str, _NOTHING}), _date),
    "timestamp_ntz": (frozenset({str, _NOTHING}), _timestamp),
    "decimal": (frozenset({int, float, str, _NOTHING}), _decimal),
}
_MISFITS = (ValueError, TypeError, InvalidOperation, OverflowError, pa.ArrowInvalid, pa.ArrowTypeError)


def arrow_column(values: Sequence[Any], kind: str, place: str, required: bool = False) -> pa.Array:
    """Stored values as an Arrow column of a Spark SQL type; `place` names the column in errors.

    `required` refuses NULL: SQLite allows it in most primary keys, but a key with NULL in it is none.
    """
    allowed, convert = _READINGS[kind.partition("(")[0]]
    # One pass in C over the types, and per-value work only where the stored form differs from Arrow's.
    if not set(map(type, values)) <= allowed:
        raise _misfit(next(value for value in values if type(value) not in allowed), kind, place)
    arrow = arrow_type(kind)
    try:
        fitting = values
        if convert is not _as_it_is:
            fitting = [None if value is None else convert(value) for value in values]
        column = pa.array(fitting, arrow)
    except _MISFITS as error:
        raise _misfit(_first_misfit(values, convert, arrow), kind, place) from error
    if required and column.null_count:
        raise UnrepresentableValue(
            f"{place} belongs to the primary key but holds NULL",
            subject=place,
            hint="declare the column NOT NULL at the source and repair the row",
        )
    return column


def _first_misfit(values: Sequence[Any], convert: Callable[[Any], Any], arrow: pa.DataType) -> Any:
    for value in values:
        try:
            pa.array([None if value is None else convert(value)], arrow)
        except _MISFITS:
            return value
    return None


def shown(value: Any) -> str:
    """A stored value for people."""
    text = "NULL" if value is None else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def _misfit(value: Any, kind: str, place: str) -> UnrepresentableValue:
    return UnrepresentableValue(
        f"{place} is read as {kind}, but holds {shown(value)}, which is not a valid {kind}",
        subject=place,
        hint="repair the value at the source, or declare the column by what it holds",
    )

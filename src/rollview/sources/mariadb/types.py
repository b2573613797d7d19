"""Declared MariaDB types as Spark SQL types.

| declared | Spark SQL |
|---|---|
| TINYINT (also TINYINT(1), BOOLEAN, which hold −128 … 127) | tinyint |
| TINYINT UNSIGNED, SMALLINT | smallint |
| SMALLINT UNSIGNED, MEDIUMINT, MEDIUMINT UNSIGNED, INT | int |
| INT UNSIGNED, BIGINT | bigint |
| BIGINT UNSIGNED | decimal(20,0) |
| FLOAT, DOUBLE | float, double |
| DECIMAL(p,s) of up to 38 digits | decimal(p,s) |
| BIT(1) | boolean |
| BIT(2) … BIT(63), BIT(64) | bigint, decimal(20,0) |
| CHAR, VARCHAR, TEXT, JSON, ENUM, SET, UUID | string, as MariaDB writes it |
| BINARY, VARBINARY, BLOB | binary; BINARY(n) always has n bytes |
| DATE | date |
| DATETIME | timestamp_ntz |
| TIMESTAMP | timestamp |
| YEAR | int |

Not mapped, so that views cannot use such columns: TIME, INET4, INET6, geometries, DECIMAL of more than 38
digits, compressed columns, times in the format of MariaDB 5.3, text in an East Asian multi-byte character set
other than Unicode, and what is computed from a column with AUTO_INCREMENT, of which the log has wrong values.
'0000-00-00' and other dates that are none are errors (`UnrepresentableValue`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rollview.errors import UnrepresentableValue
from rollview.sources.source import setup_hint

_MOST_DIGITS = 38
_DECLARED = re.compile(r"(\w+)\s*(?:\((.*)\))?\s*(.*)", re.DOTALL)
_SIGNED = {
    "tinyint": ("tinyint", "smallint"),
    "smallint": ("smallint", "int"),
    "mediumint": ("int", "int"),
    "int": ("int", "bigint"),
    "bigint": ("bigint", "decimal(20,0)"),
}
_PLAIN = {
    "float": "float",
    "double": "double",
    "date": "date",
    "datetime": "timestamp_ntz",
    "timestamp": "timestamp",
    "year": "int",
    "uuid": "string",
    "binary": "binary",
    "varbinary": "binary",
    "tinyblob": "binary",
    "blob": "binary",
    "mediumblob": "binary",
    "longblob": "binary",
}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"}
UNICODE = frozenset({"utf8mb4", "utf8mb3", "utf8", "ucs2", "utf16", "utf16le", "utf32"})
_REFUSED_WORDS = ("compressed", "mariadb-5.3")


@dataclass(frozen=True)
class MariaDBColumn:
    """A column as it is declared. `charset` is that of a text, `generated` what it is computed by.

    `counter` is a column with AUTO_INCREMENT from which it is computed: then the log has wrong values of it.
    """

    name: str
    declared: str
    charset: str = ""
    nullable: bool = True
    generated: str = ""
    counter: str = ""


def base_type(declared: str) -> str:
    """The type's own name: `int` of `int(11) unsigned`."""
    found = _DECLARED.match(declared.lower())
    return found[1] if found else ""


def spark_type_of(column: MariaDBColumn, single_byte: frozenset[str]) -> str | None:
    """The Spark SQL type of a column; None if there is none. `single_byte` are character sets."""
    found = _DECLARED.fullmatch(column.declared.lower())
    if found is None or column.counter or any(word in found[3] for word in _REFUSED_WORDS):
        return None
    name, arguments, rest = found[1], found[2] or "", found[3]
    if name in _SIGNED:
        return _SIGNED[name]["unsigned" in rest]
    if name in _PLAIN:
        return _PLAIN[name]
    if name in _TEXTS:
        return "string" if column.charset in UNICODE or column.charset in single_byte else None
    if name == "decimal":
        precision, _, scale = arguments.partition(",")
        return f"decimal({int(precision)},{int(scale or 0)})" if int(precision) <= _MOST_DIGITS else None
    if name == "bit":
        bits = int(arguments or 1)
        return "boolean" if bits == 1 else "bigint" if bits < 64 else "decimal(20,0)"
    return None


def selected(column: MariaDBColumn, quoted: str) -> str:
    """The expression to select so that the returned text is the exact value."""
    name = base_type(column.declared)
    if name == "float":
        # As a FLOAT it would come with six digits; as a DOUBLE it comes with all.
        return f"CAST({quoted} AS DOUBLE)"
    return f"{quoted} + 0" if name == "bit" else quoted


# Values that Spark cannot represent: found by trying one after the other, once a whole column has failed.


MISFITS = (ValueError, TypeError, OverflowError, ArithmeticError, pa.ArrowInvalid, pa.ArrowTypeError)
_SHOWN_CHARACTERS = 80


def exactly(
    convert: Callable[[list[Any]], pa.Array], kind: str, place: str, shown: Callable[[Any], str] = repr
) -> Callable[[list[Any]], pa.Array]:
    """The same conversion, failing with the name of the column and the first value that does not fit."""

    def converted(values: list[Any]) -> pa.Array:
        try:
            return convert(values)
        except MISFITS as error:
            raise misfit(first_misfit(values, convert), kind, place, shown) from error

    return converted


def first_misfit(values: Sequence[Any], convert: Callable[[list[Any]], pa.Array]) -> Any:
    """The first value that cannot be converted on its own."""
    for value in values:
        try:
            convert([value])
        except MISFITS:
            return value
    return None


def misfit(value: Any, kind: str, place: str, shown: Callable[[Any], str] = repr) -> UnrepresentableValue:
    """The error for a value of a column."""
    text = shown(value)
    text = text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
    return UnrepresentableValue(
        f"{place} is read as {kind}, but holds {text}, which {kind} cannot represent",
        subject=place,
        hint=f"repair the value at the source, then {setup_hint(place.rpartition('.')[0])}",
    )

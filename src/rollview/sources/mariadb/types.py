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
digits, compressed columns, times in the format of MariaDB 5.3, and text in an East Asian multi-byte character
set other than Unicode. '0000-00-00' and other dates that are none are errors (`UnrepresentableValue`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
    """A column as it is declared. `charset` is that of a text, `generated` what it is computed by."""

    name: str
    declared: str
    charset: str = ""
    nullable: bool = True
    generated: str = ""


def base_type(declared: str) -> str:
    """The type's own name: `int` of `int(11) unsigned`."""
    found = _DECLARED.match(declared.lower())
    return found[1] if found else ""


def spark_type_of(column: MariaDBColumn, single_byte: frozenset[str]) -> str | None:
    """The Spark SQL type of a column; None if there is none. `single_byte` are character sets."""
    found = _DECLARED.fullmatch(column.declared.lower())
    if found is None or any(word in found[3] for word in _REFUSED_WORDS):
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
    """What to select so that the text that comes back is the exact value."""
    name = base_type(column.declared)
    if name == "float":
        # As a FLOAT it would come with six digits; as a DOUBLE it comes with all.
        return f"CAST({quoted} AS DOUBLE)"
    return f"{quoted} + 0" if name == "bit" else quoted

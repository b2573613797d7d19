"""Whether a column that was declared anew still holds all its values, each as it was.

Only what is known to keep them counts. A wider column may get values that do not fit the registered type;
that is noticed when one of them comes. What could be widened and narrowed again without an error (fractions
of seconds, digits behind the point) must stay as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rollview.sources.mariadb.types import MariaDBColumn

_DECLARED = re.compile(r"(\w+)\s*(?:\((.*)\))?\s*(.*)", re.DOTALL)
_LABEL = re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_ALIASES = {
    "integer": "int",
    "bool": "tinyint",
    "boolean": "tinyint",
    "numeric": "decimal",
    "dec": "decimal",
    "fixed": "decimal",
}
_LONG_BYTES = {"tiny": 255, "": 65_535, "medium": 16_777_215, "long": 4_294_967_295}
_LONG_TEXTS = {f"{size}text": limit for size, limit in _LONG_BYTES.items()}
_LONG_BINARIES = {f"{size}blob": limit for size, limit in _LONG_BYTES.items()}
_BYTES_PER_CHARACTER = 4
EVERY_CHARACTER = "utf8mb4"


@dataclass(frozen=True)
class _Type:
    name: str
    arguments: str
    unsigned: bool

    @property
    def size(self) -> int:
        return int(self.arguments) if self.arguments.isdigit() else 1


def _type_of(declared: str) -> _Type:
    found = _DECLARED.fullmatch(declared.strip())
    if found is None:
        return _Type(declared, "", False)
    name, rest = found[1].lower(), found[3].lower()
    return _Type(_ALIASES.get(name, name), found[2] or "", "unsigned" in rest or "zerofill" in rest)


def keeps_values(declared: str, anew: str) -> bool:
    """Whether every value of a type is, unchanged, one of another type."""
    old, new = _type_of(declared), _type_of(anew)
    if old.name in _BITS and new.name in _BITS:
        return _range(new)[0] <= _range(old)[0] and _range(old)[1] <= _range(new)[1]
    if old.name == "decimal" and new.name == "decimal":
        (digits, scale), (new_digits, new_scale) = _digits(old), _digits(new)
        return scale == new_scale and digits <= new_digits and old.unsigned >= new.unsigned
    if old.name in ("enum", "set") and new.name == old.name:
        labels = _LABEL.findall(old.arguments)
        return _LABEL.findall(new.arguments)[: len(labels)] == labels
    if old.name in ("char", "varchar", *_LONG_TEXTS):
        return _holds_text(old, new)
    if old.name in ("binary", "varbinary", *_LONG_BINARIES):
        return _holds_bytes(old, new)
    return old == new


def keeps_characters(column: MariaDBColumn, charset: str) -> bool:
    """Whether every text of a column is, unchanged, one of another character set."""
    return charset in (column.charset, EVERY_CHARACTER)


def _range(kind: _Type) -> tuple[int, int]:
    bits = _BITS[kind.name]
    return (0, (1 << bits) - 1) if kind.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _digits(kind: _Type) -> tuple[int, int]:
    precision, _, scale = (kind.arguments or "10").partition(",")
    return int(precision), int(scale or 0)


def _holds_text(old: _Type, new: _Type) -> bool:
    if old.name in _LONG_TEXTS:
        return _LONG_TEXTS.get(new.name, 0) >= _LONG_TEXTS[old.name]
    if new.name in _LONG_TEXTS:
        return _LONG_TEXTS[new.name] >= old.size * _BYTES_PER_CHARACTER
    # CHAR forgets blanks at the end, which a VARCHAR keeps.
    return new.name in ("varchar", old.name) and new.size >= old.size


def _holds_bytes(old: _Type, new: _Type) -> bool:
    if old.name in _LONG_BINARIES:
        return _LONG_BINARIES.get(new.name, 0) >= _LONG_BINARIES[old.name]
    if new.name in _LONG_BINARIES:
        return _LONG_BINARIES[new.name] >= old.size
    # BINARY fills up with zeros.
    return new.size >= old.size if new.name == "varbinary" else new == old

"""Text of the binary log, in the character set of its column, as UTF-8.

Unicode in its several encodings is what Python calls by other names. Of character sets with one byte per
character the server is asked once what each byte means, so that what is read from the log is, byte for byte,
what a query would have shown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

BINARY = 63
"""The number of the collation `binary`: bytes, not text."""

_UTF8 = frozenset({"utf8mb4", "utf8mb3", "utf8"})
_WIDE = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}
_EAST_ASIAN = {
    **{name: name for name in ("big5", "cp932", "gb2312", "gbk")},
    **{"eucjpms": "euc_jp", "euckr": "euc_kr", "sjis": "shift_jis", "ujis": "euc_jp"},
}
"""Of clients. A client cannot use the character sets with two or four bytes for every character."""
Decode = Callable[[bytes], str]


class Charsets:
    """The server's collations and character sets."""

    def __init__(self, cursor: Any) -> None:
        cursor.execute(
            "SELECT character_set_name, GROUP_CONCAT(id) FROM"
            " information_schema.collation_character_set_applicability GROUP BY character_set_name"
        )
        self._names = {int(number): name for name, ids in cursor.fetchall() for number in ids.split(",")}
        cursor.execute("SELECT character_set_name FROM information_schema.character_sets WHERE maxlen = 1")
        self.single_byte = frozenset(name for (name,) in cursor.fetchall()) - {"binary"}
        every_byte = bytes(range(256)).hex()
        names = sorted(self.single_byte)
        cursor.execute(
            "SELECT " + ", ".join(f"CONVERT(_{name} X'{every_byte}' USING utf8mb4)" for name in names)
        )
        self._tables: dict[str, str] = dict(zip(names, cursor.fetchone(), strict=True))

    def decoder(self, collation: int) -> Decode | None:
        """How text of a collation is read; None where it already is UTF-8."""
        name = self._names.get(collation, "")
        if name in _UTF8:
            return None
        if name in _WIDE:
            return partial(_decode_wide, _WIDE[name])
        if name in self._tables:
            return partial(_decode_by_table, self._tables[name])
        raise ValueError(f"text in the character set {name or collation} cannot be read")

    def as_client_sent(self, statement: bytes, collation: int) -> str | None:
        """A statement in a client's character set; None where that is UTF-8 or not known."""
        name = self._names.get(collation, "")
        if name in self._tables:
            return _decode_by_table(self._tables[name], statement)
        codec = _EAST_ASIAN.get(name)
        return None if codec is None else statement.decode(codec, errors="replace")


def _decode_wide(encoding: str, value: bytes) -> str:
    return value.decode(encoding)


def _decode_by_table(table: str, value: bytes) -> str:
    return "".join([table[byte] for byte in value])

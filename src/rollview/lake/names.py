"""Names from outside as names of folders: one place, so that no name leads out of the lake.

Letters, digits, `_`, `-` and `$` stay as they are, so that folders can be found by eye. Every other character
is written as `~` and the hex digits of its UTF-8 bytes; a name that is too long for a file system is cut,
with a digest of the whole behind it. Different names give different folders.
"""

from __future__ import annotations

from hashlib import sha256

_PLAIN = "_-$"
_MOST_BYTES = 120
_CUT = "~~"


def folder_name(name: str) -> str:
    """The folder for a table or a view of this name."""
    encoded = "".join(
        each if each.isalnum() or each in _PLAIN else "".join(f"~{byte:02x}" for byte in _bytes(each))
        for each in name
    )
    if not encoded or len(_bytes(encoded)) > _MOST_BYTES:
        start = _bytes(encoded)[: _MOST_BYTES // 2].decode("utf-8", "ignore")
        return f"{start}{_CUT}{sha256(_bytes(name)).hexdigest()[:32]}"
    return encoded


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")

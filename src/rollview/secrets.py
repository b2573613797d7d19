"""Passwords must not leave the process: not in errors, not in events, not in logs, not in the lake."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote

_HIDDEN = "***"
_SHORTEST_PART = 4
_SEPARATORS = re.compile(r"[@:/?#\[\]\s&=]")
_PASSWORD_IN_ADDRESS = re.compile(r"://[^/?#\s]*?:([^/?#\s]*)@")
_PASSWORD_SETTING = re.compile(r"password\s*=\s*('(?:\\.|[^'\\])*'|[^\s&]+)", re.IGNORECASE)


class Secrets:
    """Texts that nobody may read: whole, as they are written in an address or between quotes, and in the
    parts into which an address that was written wrongly tears them.
    """

    def __init__(self, values: Iterable[str]) -> None:
        texts: set[str] = set()
        for value in filter(None, values):
            texts |= {value, quote(value, safe=""), quote(value)}
            # As it stands between the quotes of JSON, or of Python.
            texts |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
            texts |= {part for part in _SEPARATORS.split(value) if len(part) >= _SHORTEST_PART}
        self._texts = sorted(texts, key=len, reverse=True)

    def hide(self, text: str) -> str:
        """The text with every secret replaced."""
        for secret in self._texts:
            text = text.replace(secret, _HIDDEN)
        return text


def passwords_in(address: str) -> Iterator[str]:
    """The passwords that an address or a `key=value` setting holds."""
    for match in _PASSWORD_IN_ADDRESS.finditer(address):
        yield unquote(match[1])
        yield match[1]
    for match in _PASSWORD_SETTING.finditer(address):
        yield match[1].strip("'")

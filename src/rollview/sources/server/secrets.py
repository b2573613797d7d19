"""Passwords must not leave the process: not in errors, not in logs, not in the lake."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

_HIDDEN = "***"


class Secrets:
    """Texts that nobody may read, also as they are written in an address."""

    def __init__(self, values: Iterable[str]) -> None:
        texts = {form for value in values if value for form in (value, quote(value, safe=""))}
        self._texts = sorted(texts, key=len, reverse=True)

    def hide(self, text: str) -> str:
        """The text with every secret replaced."""
        for secret in self._texts:
            text = text.replace(secret, _HIDDEN)
        return text

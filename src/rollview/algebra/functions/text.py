"""Text functions: arguments of other types are cast to text first, as Spark does."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from rollview.algebra.functions.casts import to_text
from rollview.algebra.functions.null import Value


def on_text(function: Callable[[str], Value]) -> Callable[[Value], Value]:
    """A function of one text; NULL in, NULL out."""

    def applied(value: Value) -> Value:
        return None if value is None else function(value if type(value) is str else to_text(value))

    return applied


def concatenated(*parts: Value) -> str:
    """`||` and CONCAT."""
    return "".join(map(to_text, parts))


def trim(value: str) -> str:
    """TRIM: spaces alone, no other blanks."""
    return value.strip(" ")


def trim_left(value: str) -> str:
    """LTRIM."""
    return value.lstrip(" ")


def trim_right(value: str) -> str:
    """RTRIM."""
    return value.rstrip(" ")


def substring(value: Value, start: Value, length: Value = None) -> str:
    """SUBSTRING: places are counted from 1, negative ones from the end, also those before the text."""
    text = to_text(value)
    first = int(start)
    first = first - 1 if first > 0 else len(text) + first if first < 0 else 0
    end = len(text) if length is None else first + int(length)
    return text[max(first, 0) : max(end, 0)]


def like(value: Value, pattern: str) -> bool:
    """LIKE: % stands for any text, _ for one character; there is no escape."""
    return _pattern(pattern).fullmatch(to_text(value)) is not None


@lru_cache(maxsize=1024)
def _pattern(pattern: str) -> re.Pattern[str]:
    wild = {"%": ".*", "_": "."}
    return re.compile("".join(wild.get(letter) or re.escape(letter) for letter in pattern), re.DOTALL)

"""Lines, digits and letters of formats that are ASCII only.

Python's own `splitlines`, `isdigit`, `int`, `float`, `upper` and `lower` follow Unicode: they end a line at
U+2028, take `²` for a digit and `1_0` for ten, and make `I` of `ı`. Logs, names of files, positions and
keywords do not.
"""

from __future__ import annotations

import re
import string

_WHOLE = re.compile("[0-9]+")
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_UPPER = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def lines_of(text: str) -> list[str]:
    """The lines of a text, which end at a line feed and nowhere else; empty ones are left out."""
    return [line for line in text.split("\n") if line]


def whole_number(text: str) -> int | None:
    """The number that digits make; None for everything else, signs and blanks included."""
    return int(text) if _WHOLE.fullmatch(text) else None


def number_of(text: str) -> float | None:
    """A number such as `20` or `1.5`; None for everything else."""
    return float(text) if _NUMBER.fullmatch(text) else None


def url_scheme(text: str) -> str:
    """The scheme of a URL such as `s3://bucket/prefix`, `s3` there; empty for a path."""
    found = _URL.match(text)
    return lower_letters(found[1]) if found else ""


def upper_letters(text: str) -> str:
    """The text with the letters of ASCII in upper case, as keywords of most languages are compared."""
    return text.translate(_UPPER)


def lower_letters(text: str) -> str:
    """The text with the letters of ASCII in lower case."""
    return text.translate(_LOWER)

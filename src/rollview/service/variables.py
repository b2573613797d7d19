"""`${NAME}` in a setting: the environment's variable, written as the place where it stands demands.

In an address (`scheme://user:password@host/name?option=value`) a value is percent-encoded, so that a password
may have any characters; not so where it is the host, which may come with a port, or the whole part before the
`@`, which may be user and password. In `key=value` settings, as libpq has them, it is quoted. A value that is
all of a setting is taken as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import quote

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SECRET_NAME = re.compile(r"pass|pwd|secret|token|credential|(api|private|access)_?key", re.IGNORECASE)


def expand(text: str, value_of: Callable[[str], str]) -> str:
    """The setting with its variables replaced."""
    found = list(VARIABLE.finditer(text))
    for match in reversed(found):
        value = _written(text, match, value_of(match[1]))
        text = text[: match.start()] + value + text[match.end() :]
    return text


def is_secret(name: str) -> bool:
    """Whether a variable or a setting of this name holds what nobody may read."""
    return _SECRET_NAME.search(name) is not None


def _written(text: str, match: re.Match[str], value: str) -> str:
    before, after = text[: match.start()], text[match.end() :]
    if not before and not after:
        return value
    if address := _ADDRESS.match(before):
        return _in_address(before[address.end() :], after, value)
    if before.endswith("=") and "'" not in before.rpartition(" ")[2]:
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return value


def _in_address(before: str, after: str, value: str) -> str:
    is_behind_host = "/" in before or "?" in before
    authority = re.split(r"[/?]", after, maxsplit=1)[0]
    if not is_behind_host and "@" not in authority:
        return value
    if not before and authority.startswith("@"):
        return value
    return quote(value, safe="")

"""`[HOST:]PORT`: where a command listens."""

from __future__ import annotations

import re
from typing import NamedTuple

from rollview.errors import OptionError

LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+):)?(?P<port>[0-9]{1,5})")
_MOST_PORT = 65_535


class ListenAddress(NamedTuple):
    """Where to listen; port 0 is one that is free."""

    host: str
    port: int


def parse_address(text: str, option: str) -> ListenAddress:
    """`PORT`, `HOST:PORT` or `[IPv6]:PORT`; without a host, only this machine can connect."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or int(found["port"]) > _MOST_PORT:
        hint = f"a port, such as {option} 9464, or an address and a port: {option} 0.0.0.0:9464"
        raise OptionError(f"{option}: `{text}` is not an address to listen on", subject=text, hint=hint)
    return ListenAddress((found["host"] or LOOPBACK).strip("[]"), int(found["port"]))

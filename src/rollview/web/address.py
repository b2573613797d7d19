"""Where the page listens, and who may open it."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from rollview.errors import OptionError

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8642
TOKEN_VARIABLE = "ROLLVIEW_UI_TOKEN"
_SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class Address:
    """A host and a port to listen on; port 0 takes any that is free."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def shown(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Access:
    """Who may open the page, and whether they may do more than look.

    Without a token, anybody who can reach the address may.
    """

    address: Address = field(default_factory=Address)
    token: str = field(default="", repr=False)
    is_generated: bool = False
    allows_actions: bool = False
    form_key: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    """Only pages of this process have it; a form without it came from elsewhere."""

    def knows(self, token: str) -> bool:
        """Whether this is the token; takes the same time for every wrong one."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    @property
    def pass_value(self) -> str:
        """The cookie of a browser that has shown the token; the token cannot be derived from it."""
        return hmac.new(self.token.encode(), b"rollview page", hashlib.sha256).hexdigest()

    def has_pass(self, value: str) -> bool:
        """Whether a browser has shown the token before."""
        return hmac.compare_digest(value.encode(), self.pass_value.encode())

    def made_here(self, key: str) -> bool:
        """Whether a form was on a page of this process."""
        return hmac.compare_digest(key.encode(), self.form_key.encode())

    def url(self, port: int) -> str:
        """The URL to open, once it listens; with the token if it was just made."""
        address = Address(self.address.host, port)
        return f"http://{address.shown}/" + (f"?token={self.token}" if self.is_generated else "")


def access(address: Address, token_file: Path | None, allows_actions: bool) -> Access:
    """Takes the token from the file or the environment; for an address beyond this machine makes one."""
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if token_file is not None:
        try:
            token = token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise OptionError(
                f"the token file {token_file} cannot be read: {reason}", subject=str(token_file)
            ) from error
    if (token or token_file is not None) and len(token) < _SHORTEST_TOKEN:
        place = str(token_file) if token_file is not None else TOKEN_VARIABLE
        hint = f"at least {_SHORTEST_TOKEN} characters, such as `openssl rand -hex 16` makes"
        raise OptionError(f"the token in {place} is too short", subject=place, hint=hint)
    if token or address.is_loopback:
        return Access(address, token, False, allows_actions)
    return Access(address, secrets.token_urlsafe(24), True, allows_actions)

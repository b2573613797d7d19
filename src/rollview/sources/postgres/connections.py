"""Connections to the server, kept for the next use, and its errors said in our words."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from rollview.errors import AccessDenied, RollviewError, SourceFailed, SourceUnavailable
from rollview.sources.postgres.address import Address

Connection = psycopg.Connection[tuple[Any, ...]]

_MOST_IDLE = 4
_AWAY = ("08", "57P", "53300", "25P03")
_NOT_LET_IN = re.compile(
    r"FATAL:\s+(?:password authentication failed|(?:role|database) .* does not exist"
    r"|no pg_hba\.conf entry|pg_hba\.conf rejects"
    r"|.* authentication failed for user|role .* is not permitted to log in|permission denied for database)"
    r"|no password supplied"
)
"""Messages of a server that refuses us. libpq keeps the code of such an error to itself, so a server that
speaks another language counts as away; it is retried in the same way."""


class Connections:
    """A few connections, each used by one thread at a time. All are in autocommit mode."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._closed = False

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection for a while. One that saw an error is not used again."""
        with explained(self.address):
            connection = self._take()
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            self._give_back(connection)

    def close(self) -> None:
        """Closes those that are idle; others are closed by their users."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> Connection:
        while True:
            with self._lock:
                self._closed = False
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                # Poolers share servers, and a plan that a server keeps does not survive ALTER TYPE.
                return psycopg.connect(self.address.conninfo, autocommit=True, prepare_threshold=None)
            try:
                # The server may have been restarted since.
                connection.execute("SELECT 1")
                return connection
            except psycopg.Error:
                connection.close()

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()


@contextmanager
def explained(address: Address) -> Iterator[None]:
    """Turns the driver's errors into ours. Nothing of the driver's own goes along: it knows the password."""
    try:
        yield
    except psycopg.Error as error:
        raise explain(address, error) from None


def explain(address: Address, error: psycopg.Error) -> RollviewError:
    """The error in our words."""
    said = str(error).strip()
    reason = address.secrets.hide_foreign(said)
    state = error.sqlstate or ""
    lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not state
    if lost and _NOT_LET_IN.search(said):
        hint = "check user, password and database in the source's `dsn`"
        return AccessDenied(f"source {address.source}: {reason}", subject=address.source, hint=hint)
    if lost or state.startswith(_AWAY):
        return SourceUnavailable(
            f"source {address.source} cannot be reached: {reason}",
            subject=address.source,
            hint="is the server running, and is `dsn` correct? `rollview run` retries automatically",
        )
    hint = "`rollview setup` says what its administrator must grant" if state == "42501" else ""
    return SourceFailed(f"source {address.source}: {reason}", subject=address.source, hint=hint)


@contextmanager
def transaction(connection: Connection, kind: str = "") -> Iterator[None]:
    """A transaction, begun with these modes; committed at the end, rolled back on any error."""
    connection.execute(f"BEGIN {kind}".encode())
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if not connection.closed:
            connection.execute("ROLLBACK")
        raise


def role_of(connection: Connection) -> str:
    """Who we are at the server."""
    row = connection.execute("SELECT current_user::text").fetchone()
    assert row is not None
    return str(row[0])


MAY_CREATE = "has_database_privilege(current_database(), 'CREATE')"
"""To create schemas and publications."""


def may(connection: Connection, privilege: str) -> bool:
    """Whether we have a privilege, as an SQL expression asks for it."""
    row = connection.execute(f"SELECT {privilege}".encode()).fetchone()
    assert row is not None
    return bool(row[0])


def quote(name: str) -> str:
    """An identifier as SQL text."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """A text as SQL text; `standard_conforming_strings` is on."""
    return "'" + text.replace("'", "''") + "'"

"""Statements of setup, all in one transaction that makes nobody wait."""

from __future__ import annotations

from collections.abc import Iterable

import psycopg

from rollview.errors import SourceFailed
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection, transaction

_LOCK_SECONDS = 3
_ATTEMPTS = 10


def run_all(connection: Connection, address: Address, statements: Iterable[str]) -> None:
    """All in one transaction. Others must not wait behind a lock that we cannot get: it is tried again."""
    for attempt in range(_ATTEMPTS):
        try:
            with transaction(connection):
                connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'".encode())
                for statement in statements:
                    connection.execute(statement.encode())
            return
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            if attempt == _ATTEMPTS - 1:
                raise SourceFailed(
                    f"source {address.source}: a table stayed locked for {_ATTEMPTS * _LOCK_SECONDS} s by"
                    " a transaction that uses it and is still open",
                    subject=address.source,
                    hint="end that transaction (see pg_stat_activity and pg_prepared_xacts), then try again",
                ) from None

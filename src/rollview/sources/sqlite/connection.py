"""Connections to a SQLite file, and its errors said in our words.

No connection creates a file. Nothing here opens the database file in any other way: closing a plain file
descriptor would drop the locks that SQLite holds for this whole process (POSIX advisory locks).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rollview.errors import SourceError, SourceFailed, SourceMissing, SourceUnavailable

_BUSY = {"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL"}


def quote(name: str) -> str:
    """An identifier as SQL text."""
    return '"' + name.replace('"', '""') + '"'


def connect(path: Path, timeout: float) -> sqlite3.Connection:
    """A connection without implicit transactions, for use by any thread (by one at a time)."""
    if not path.is_file():
        raise SourceMissing(
            f"there is no SQLite database at {path}",
            subject=str(path),
            hint="check `path` of the source in the project file",
        )
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
    )
    # Keys of sub-queries go to temporary tables; these never need a file.
    connection.execute("PRAGMA temp_store = memory")
    # The WAL shows where commits were, so our own small writes must not be what lets it start over.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


@contextmanager
def opened(path: Path, timeout: float) -> Iterator[sqlite3.Connection]:
    """A connection for a while; what it left open is rolled back."""
    with explained(path):
        connection = connect(path, timeout)
        try:
            yield connection
        finally:
            connection.close()


@contextmanager
def transaction(connection: sqlite3.Connection, kind: str = "DEFERRED") -> Iterator[None]:
    """A transaction: committed at the end, rolled back on any error."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def is_undecodable(error: sqlite3.Error) -> bool:
    """Whether a text was read that is not UTF-8."""
    return "Could not decode to UTF-8" in str(error)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise _explain(path, error) from error


def _explain(path: Path, error: sqlite3.Error) -> SourceError:
    name = getattr(error, "sqlite_errorname", "")
    if any(name.startswith(busy) for busy in _BUSY):
        return SourceUnavailable(
            f"{path} stayed locked by another program: {error}",
            subject=str(path),
            hint="try again, or raise the source's option `timeout` (seconds)",
        )
    if name == "SQLITE_NOTADB":
        return SourceMissing(
            f"{path} is not a SQLite database", subject=str(path), hint="check `path` of the source"
        )
    if is_undecodable(error):
        return SourceFailed(
            f"{path} holds text that is not UTF-8: {error}",
            subject=str(path),
            hint="store such values as BLOB, or repair them at the source",
        )
    return SourceFailed(f"{path}: SQLite says: {error}", subject=str(path))

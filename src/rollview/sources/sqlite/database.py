"""One SQLite file as rollview uses it: snapshots whose counter is known, and whether the file is the same.

A *snapshot* is a read transaction that has read the counter, so it is known exactly what it sees. In WAL mode
it disturbs nobody. In rollback-journal mode a reader keeps writers from committing, whatever we do; there the
snapshot also records its counter as a cut, so that capture will not step over what an answer saw.
"""

from __future__ import annotations

import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rollview.errors import SourceChanged, SourceUnavailable
from rollview.sources.source import reload_hint
from rollview.sources.sqlite.captured import CUTS_TABLE, CapturedTable, State, state_of
from rollview.sources.sqlite.connection import connect, explained, opened, transaction
from rollview.sources.sqlite.fingerprint import (
    Inspection,
    SchemaRow,
    inspect,
    schema_rows,
    with_unlogged,
)

_CUT_TIMEOUT_SECONDS = 1.0


@dataclass(frozen=True)
class DatabaseSnapshot:
    """A connection inside a transaction, and what the transaction sees of the capture."""

    connection: sqlite3.Connection
    state: State
    found: Inspection
    wal: bool

    @property
    def readable(self) -> dict[str, CapturedTable]:
        """The captured tables whose logs can be read, damaged or not."""
        return {name: table for name, table in self.found.tables.items() if name not in self.found.unreadable}


class Database:
    """A file, with the memory of which file it was and which schema was found intact."""

    def __init__(self, source: str, path: Path, timeout: float) -> None:
        self.source = source
        self.path = path
        self.timeout = timeout
        self._lock = threading.Lock()
        self._identity: tuple[int, int] | None = None
        self._inspected: tuple[list[SchemaRow], Inspection] | None = None

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        with opened(self.path, self.timeout) as connection:
            self._compare_file()
            yield connection

    def connect(self) -> sqlite3.Connection:
        """A connection that the caller closes."""
        with explained(self.path):
            connection = connect(self.path, self.timeout)
        self._compare_file()
        return connection

    def start_afresh(self) -> None:
        """Forgets what is known: setup and removal may do to the file what they like."""
        with self._lock:
            self._identity = self._inspected = None

    def begin(self, connection: sqlite3.Connection) -> DatabaseSnapshot:
        """A read transaction, begun on an idle connection, with the capture checked."""
        connection.execute("BEGIN")
        return self.read_state(connection)

    def read_state(self, connection: sqlite3.Connection) -> DatabaseSnapshot:
        """The state that the connection's transaction sees; its snapshot begins with this."""
        state = state_of(connection, self.source)
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        return DatabaseSnapshot(connection, state, self._inspect(connection), mode == "wal")

    @contextmanager
    def snapshot(self, watched: bool) -> Iterator[DatabaseSnapshot]:
        """A snapshot for an answer. `watched` says that capture here sees every commit as it happens."""
        with self.opened() as connection:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            if mode == "wal":
                with transaction(connection):
                    snapshot = self.read_state(connection)
                    if not watched:
                        self._try_to_cut(snapshot.state.version)
                    yield snapshot
            else:
                # The cut is committed together with the reading, before any other commit is possible.
                with transaction(connection, "IMMEDIATE"):
                    snapshot = self.read_state(connection)
                    cut(connection, snapshot.state.version)
                    yield snapshot

    def _try_to_cut(self, version: int) -> None:
        """Leaves a note for a capture that comes when the WAL no longer shows where commits were.

        If that fails the worst is that the question must be asked again (`ReadPointLost`).
        """
        try:
            with opened(self.path, _CUT_TIMEOUT_SECONDS) as connection:
                cut(connection, version)
        except SourceUnavailable:
            return

    def _inspect(self, connection: sqlite3.Connection) -> Inspection:
        """Looks closely only where the schema is not the one that was looked at before."""
        rows = schema_rows(connection)
        with self._lock:
            known = self._inspected
        if known is None or known[0] != rows:
            known = (rows, inspect(connection, self.source, rows))
            with self._lock:
                self._inspected = known
        return with_unlogged(connection, known[1])

    def _compare_file(self) -> None:
        status = self.path.stat()
        identity = (status.st_dev, status.st_ino)
        with self._lock:
            if self._identity is None:
                self._identity = identity
            if self._identity != identity:
                raise SourceChanged(
                    f"the file {self.path} of source {self.source} was replaced by another one",
                    subject=str(self.path),
                    hint=reload_hint(self.source),
                )


def cut(connection: sqlite3.Connection, version: int) -> None:
    """Records a committed counter that no captured transaction may span."""
    connection.execute(f"INSERT OR IGNORE INTO {CUTS_TABLE} VALUES (?, NULL)", (version,))


def cut_end(connection: sqlite3.Connection, version: int, before: int | None) -> None:
    """The same for the end of a transaction, with the end of the one before it, if that is known."""
    cut(connection, version)
    connection.execute(
        f"UPDATE {CUTS_TABLE} SET origin = ? WHERE version = ? AND origin IS NULL", (before, version)
    )


def cut_origin(connection: sqlite3.Connection, version: int) -> str:
    """The same for a counter from which a capture begins; returns the token that is kept with it."""
    cut(connection, version)
    connection.execute(
        f"UPDATE {CUTS_TABLE} SET origin = ? WHERE version = ? AND typeof(origin) <> 'text'",
        (uuid.uuid4().hex[:16], version),
    )
    (token,) = connection.execute(f"SELECT origin FROM {CUTS_TABLE} WHERE version = ?", (version,)).fetchone()
    return str(token)

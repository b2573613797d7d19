"""Consistent snapshots, and exactly what each of them sees.

`START TRANSACTION WITH CONSISTENT SNAPSHOT` begins to see between two commits, and the server reports the
place in its binary log that this is. Three things make that inexact, and are dealt with here:

- Two connections that do this at the same time may get each other's place. So it is done by one at a time
  (`GET_LOCK`), and the place is read until it is the same twice.
- An XA COMMIT is written to the log first and comes into effect a moment later. Until then `XA RECOVER` still
  lists the transaction. So before the snapshot the end of the log and that list are taken: the snapshot
  counts if no XA transaction that was listed had been decided in the log, and none was decided in the log
  between the two looks. Otherwise another snapshot is taken, a moment later.
- TRUNCATE, and whatever else redefines a table, takes effect first and is logged then. A reader of the
  table waits until that is over, and keeps others from it until his transaction ends. So the tables are
  touched at once, and the snapshot counts if no such statement was logged since.

A place has a meaning only together with the server and the age of its file. Only the log has the age:
a stream is opened for it, once per file, and again when something may have been reset.

One case remains, a crash of the server in that moment: MariaDB 10.11 does not repair it. The transaction is
then committed in the log and in doubt in the tables, until somebody decides it once more. Capture stops
there (`LogLost`), because the same thing is not committed twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pymysql

from rollview.errors import SourceChanged, SourceUnavailable
from rollview.sources.mariadb.binlog.log_stream import LogStream
from rollview.sources.mariadb.binlog.server_log import (
    ServerState,
    Xid,
    in_doubt,
    server_state,
    snapshot_position,
    statements,
    written_position,
    xa_events,
)
from rollview.sources.mariadb.binlog.statements import defines_tables
from rollview.sources.mariadb.connection import Server
from rollview.sources.mariadb.position import Position, ReadPoint
from rollview.sources.mariadb.structure import quote

_LOCK = "rollview snapshot"
_SCAN_BYTES = 1 << 20
_MOMENT_SECONDS = 0.002
_SETTLED_SECONDS = 1.0
_READINGS = 50
_REDEFINED = 1412
"""The error of a table that was truncated or altered since the snapshot began."""


@dataclass
class _Watch:
    """The known XA transactions from a place in the log on, up to `scanned`.

    `decided` were decided in that part of the log, and perhaps without effect yet. `strangers` were listed
    when the watch began: whether they had been decided before is not known. A decision takes effect within
    moments, so one that is still listed a good while later had not been.
    """

    scanned: Position
    strangers: frozenset[Xid]
    began: float = field(default_factory=time.monotonic)
    decided: set[Xid] = field(default_factory=set)

    def follow(self, events: list[tuple[str, Xid]], upto: Position) -> None:
        """Takes note of events up to a place."""
        for kind, xid in events:
            self.strangers -= {xid}
            if kind == "START":
                self.decided.discard(xid)
            else:
                self.decided.add(xid)
        self.scanned = upto

    def waits(self, listed: frozenset[Xid]) -> bool:
        """Whether all that is listed is in doubt in the log, too."""
        self.strangers &= listed
        self.decided &= listed
        settled = time.monotonic() - self.began > _SETTLED_SECONDS
        return not self.decided and (settled or not self.strangers)


class Snapshots:
    """Opens snapshots of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._watch: _Watch | None = None
        self._file: tuple[ServerState, str, int] | None = None

    @contextmanager
    def opened(self, connection: Any, tables: Iterable[str]) -> Iterator[ReadPoint]:
        """A snapshot of tables in a connection that is idle; the end of the last transaction that it sees."""
        deadline, names = time.monotonic() + self._server.timeout_seconds, tuple(tables)
        with connection.cursor() as cursor:
            while (position := self._attempt(cursor)) is None or not _hold(cursor, names, position):
                cursor.execute("ROLLBACK")
                if time.monotonic() > deadline:
                    raise SourceUnavailable(
                        f"source {self._server.source}: XA transactions are resolved, or tables altered, so"
                        f" often that no exact snapshot was possible in {self._server.timeout_seconds:.0f} s",
                        subject=self._server.source,
                        hint="try again, or raise the source's option `timeout` (seconds)",
                    )
                time.sleep(_MOMENT_SECONDS)
            try:
                yield self._read_point(cursor, position)
            except BaseException:
                # The connection may be unusable now: the first error counts.
                with suppress(pymysql.err.Error, OSError):
                    cursor.execute("ROLLBACK")
                raise
            cursor.execute("ROLLBACK")

    def _read_point(self, cursor: Any, position: Position) -> ReadPoint:
        state = server_state(cursor, self._server.address.database)
        if state.lacks:
            raise SourceChanged(
                f"source {self._server.source}: {state.lacks}, so that changes are missed",
                subject=self._server.source,
                hint="run `rollview setup`: it says what is needed",
            )
        with self._lock:
            known = self._file
        if known is None or known[:2] != (state, position.file):
            stream = LogStream(self._server, Position(position.file, 0), None)
            stream.close()
            if stream.server != state.identity:
                raise SourceUnavailable(
                    f"source {self._server.source}: its address leads to more than one server",
                    subject=self._server.source,
                    hint="give the address of one server",
                )
            known = (state, position.file, stream.position().created)
            with self._lock:
                self._file = known
        return ReadPoint(Position(position.file, position.offset, known[2]), state.identity)

    def _attempt(self, cursor: Any) -> Position | None:
        """A snapshot whose place is certain; None if XA transactions were just being decided."""
        with self._lock, self._alone(cursor):
            before = written_position(cursor)
            listed = in_doubt(cursor)
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            position = self._stable_position(cursor)
            return position if self._is_certain(cursor, before, listed, position) else None

    @contextmanager
    def _alone(self, cursor: Any) -> Iterator[None]:
        cursor.execute("SELECT GET_LOCK(%s, %s)", (_LOCK, self._server.timeout_seconds / 2))
        if cursor.fetchone() != (1,):
            raise SourceUnavailable(
                f"source {self._server.source}: other readers kept the lock `{_LOCK}` for too long",
                subject=self._server.source,
                hint="try again, or raise the source's option `timeout` (seconds)",
            )
        try:
            yield
        finally:
            cursor.execute("DO RELEASE_LOCK(%s)", (_LOCK,))

    def _stable_position(self, cursor: Any) -> Position:
        last = snapshot_position(cursor)
        for _ in range(_READINGS):
            now = snapshot_position(cursor)
            if now == last:
                return now
            last = now
        raise SourceUnavailable(
            f"source {self._server.source}: the position of a snapshot in the binary log keeps changing",
            subject=self._server.source,
            hint="try again",
        )

    def _is_certain(self, cursor: Any, before: Position, listed: frozenset[Xid], position: Position) -> bool:
        between = xa_events(cursor, before, position, _SCAN_BYTES)
        if between is None or not self._all_wait(cursor, before, listed):
            return False
        return not any(kind == "COMMIT" for kind, _ in between)

    def _all_wait(self, cursor: Any, before: Position, listed: frozenset[Xid]) -> bool:
        """Whether the listed transactions were in doubt at a place in the log."""
        if not listed:
            # All that was decided up to here is in effect, so a watch that begins here knows all.
            self._watch = _Watch(before, frozenset())
            return True
        if self._watch is not None:
            events = xa_events(cursor, self._watch.scanned, before, _SCAN_BYTES)
            if events is not None:
                self._watch.follow(events, before)
                return self._watch.waits(listed)
        self._watch = _Watch(before, listed)
        return False


def _hold(cursor: Any, tables: Iterable[str], position: Position) -> bool:
    """Keeps tables as they are until the transaction ends; whether they are what they were at its place."""
    try:
        for name in tables:
            cursor.execute(f"SELECT 1 FROM {quote(name)} LIMIT 1")
    except pymysql.err.Error as error:
        if error.args[:1] != (_REDEFINED,):
            raise
        return False
    since = statements(cursor, position, written_position(cursor), _SCAN_BYTES)
    return since is not None and not any(map(defines_tables, since))

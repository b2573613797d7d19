"""Capture: batches of transactions from the binary log.

One stream stays open between calls. A call first asks the server how far its log is written, and reads up to
there: so it returns at once when nothing is new, and misses nothing that was committed before it began. A
call that continues from elsewhere, as after a batch that was not kept, opens another stream.

After reading, it looks at the tables and at the server: a change there that the log does not show was made
before, so the batch itself reports it.
"""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rollview.errors import LogLost, NotSetUp, RollviewError, SourceUnavailable
from rollview.sources.mariadb.binlog.damage import Damage
from rollview.sources.mariadb.binlog.fingerprint import Fingerprint
from rollview.sources.mariadb.binlog.log_stream import LogStream
from rollview.sources.mariadb.binlog.logged_tables import LoggedTables
from rollview.sources.mariadb.binlog.server_log import (
    compares_names_in_any_case,
    server_state,
    written_position,
)
from rollview.sources.mariadb.binlog.transactions import Transactions
from rollview.sources.mariadb.connection import Server
from rollview.sources.mariadb.position import LogPosition, Position, parse_log_position
from rollview.sources.mariadb.registered import GLOBAL_TABLE, Registered, read_registered
from rollview.sources.source import Batch, Loss, reload_hint

_QUIET_SECONDS = 2.0
_LONGEST_SECONDS = 10.0
_OTHER_LOG = Damage("it was set up with another binary log than the one that the server has now")


@dataclass
class _Reading:
    """An open stream, what it makes of the events, and its log position.

    `state` is the server that it is asked beside, and how often something was reset there.
    """

    stream: LogStream
    transactions: Transactions
    log_position: str
    state: tuple[str, int] = ("", 0)

    def step(self, patience_seconds: float) -> bool:
        """Takes one event; False if none came."""
        event = self.stream.next(patience_seconds)
        if event is None:
            return False
        self.transactions.feed(event, self.stream.position)
        return True

    def close(self) -> None:
        self.stream.close()
        self.transactions.close()


class Capture:
    """The transactions of one database. Its streams are called `server_id`, or each by an id of its own."""

    def __init__(
        self,
        server: Server,
        server_id: int | None,
        fingerprint: Fingerprint,
        new_folder: Callable[[], Path],
    ) -> None:
        self._server = server
        self._new_folder = new_folder
        self._fingerprint = fingerprint
        self._server_id = server_id
        self._lock = threading.Lock()
        self._reading: _Reading | None = None
        self._folder: Path | None = None
        self._spilled: list[tuple[int, Path]] = []

    def begin_at(self, start: Position, prepared: Position | None = None) -> LogPosition:
        """The log position of a place, with the age of its file; this also shows that the log may be read."""
        stream = LogStream(self._server, start, self._server_id)
        stream.close()
        reached = Position(start.file, start.offset, stream.position().created)
        return LogPosition(reached, prepared, stream.server)

    def take(self, after: str, limit: int) -> Batch:
        """The transactions after a log position: about `limit` rows, at least one transaction."""
        with self._lock:
            try:
                was_open = self._reading is not None
                try:
                    return self._take(after, limit)
                except SourceUnavailable:
                    # A stream that was left open may be that of a server which has been restarted since.
                    if not was_open:
                        raise
                    self._stop()
                    return self._take(after, limit)
            except BaseException:
                # The stream cannot return these rows again, so the next call begins where this one did.
                self._stop()
                raise

    def _take(self, after: str, limit: int) -> Batch:
        log_position = parse_log_position(after)
        with self._server.session() as connection, connection.cursor() as cursor:
            state = server_state(cursor, self._server.address.database)
            if state.lacks:
                return Batch(
                    (), after, self._losses(dict.fromkeys(self._tables(cursor), Damage(state.lacks)))
                )
            target = written_position(cursor)
        if target.ordinal < log_position.reached.ordinal:
            # The server would say so, too, but less clearly; an open stream would just be silent.
            raise LogLost(
                f"source {self._server.source}: its binary log ends at {target}, but was captured up to"
                f" {log_position.reached}: the log was reset, the server has lost transactions or is a"
                " different one",
                subject=self._server.source,
                hint=reload_hint(self._server.source),
            )
        if self._reading is not None and self._reading.state != (state.identity, state.resets):
            # Whether it is still the same log is seen when it is opened.
            self._stop()
        reading = self._reading_at(after, log_position)
        reading.state = (state.identity, state.resets)
        transactions = reading.transactions
        deadline = time.monotonic() + _LONGEST_SECONDS
        while reading.stream.ordinal < target.ordinal or not transactions.between:
            try:
                with self._server.explained():
                    came = reading.step(_QUIET_SECONDS)
            except RollviewError:
                # Complete transactions are handed out first; the next call meets the same error at once.
                if transactions.reached.ordinal <= log_position.reached.ordinal:
                    raise
                came = False
            if not came:
                transactions.drop_open()
                batch = self._batch(reading, after, log_position)
                self._stop()
                return batch
            if transactions.between and self._enough(transactions, limit, deadline):
                break
        batch = self._batch(reading, after, log_position)
        if transactions.registered_again:
            self._stop()
        return batch

    def _enough(self, transactions: Transactions, limit: int, deadline: float) -> bool:
        return transactions.rows >= limit or transactions.registered_again or time.monotonic() > deadline

    def _batch(self, reading: _Reading, after: str, log_position: LogPosition) -> Batch:
        transactions = reading.transactions
        if transactions.reached.ordinal > log_position.reached.ordinal:
            reading.log_position = str(transactions.log_position)
        elif log_position.server not in ("", reading.stream.server):
            reading.log_position = str(replace(log_position, server=reading.stream.server))
        else:
            reading.log_position = after
        found = tuple(each for each in transactions.take_batch() if each.rows or each.lost or each.global_id)
        has_untrusted, transactions.has_untrusted_part = transactions.has_untrusted_part, False
        notes = (_untrusted_part(self._server.source),) if has_untrusted else ()
        return Batch(found, reading.log_position, self._look(), notes)

    def _look(self) -> dict[str, Loss]:
        """The tables that are, at this moment, not what is registered, and why."""
        with self._server.session() as connection, connection.cursor() as cursor:
            tables = self._tables(cursor)
            damaged = self._fingerprint.damaged(connection, tables)
            lacks = server_state(cursor, self._server.address.database).lacks
            if not lacks:
                written = written_position(cursor).ordinal
                damaged |= {name: _OTHER_LOG for name, table in tables.items() if table.since > written}
        return self._losses({**damaged, **dict.fromkeys(tables if lacks else (), Damage(lacks))})

    def _losses(self, damaged: Mapping[str, Damage]) -> dict[str, Loss]:
        places = {f"{self._server.source}.{name}": damage for name, damage in damaged.items()}
        return {place: damage.loss_of(place) for place, damage in places.items()}

    def replay(self, after: str, source_txids: Sequence[int], upto: str) -> Batch:
        """The same batch once more, read by a stream of its own."""
        log_position, end = parse_log_position(after), parse_log_position(upto)
        reading = self._open(after, log_position)
        try:
            with self._server.explained():
                while reading.transactions.reached.ordinal < end.reached.ordinal:
                    if not reading.step(self._server.timeout_seconds):
                        break
            # Tables that were registered since do not add transactions to what was one batch.
            wanted = set(source_txids)
            found = tuple(each for each in reading.transactions.take_batch() if each.source_txid in wanted)
        finally:
            reading.close()
        if [each.source_txid for each in found] != list(source_txids):
            raise LogLost(
                f"source {self._server.source}: its binary log returned different transactions on replay,"
                f" between {log_position.reached} and {end.reached}",
                subject=self._server.source,
                hint=reload_hint(self._server.source),
            )
        return Batch(found, upto)

    def acknowledge(self, upto: str) -> None:
        """Deletes the files of large transactions that are kept elsewhere by now."""
        ordinal = parse_log_position(upto).reached.ordinal
        with self._lock:
            gone = [path for at, path in self._spilled if at < ordinal]
            self._spilled = [(at, path) for at, path in self._spilled if at >= ordinal]
        for path in gone:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Ends the stream and deletes what was written beside it."""
        with self._lock:
            self._stop()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def restart(self) -> None:
        """Lets the next call begin with what is registered then."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _reading_at(self, after: str, log_position: LogPosition) -> _Reading:
        if self._reading is None or self._reading.log_position != after:
            self._stop()
            self._reading = self._open(after, log_position)
        return self._reading

    def _open(self, after: str, log_position: LogPosition) -> _Reading:
        with self._server.session() as connection, connection.cursor() as cursor:
            tables, charsets = self._tables(cursor), self._server.charsets(connection)
            any_case = compares_names_in_any_case(cursor)
        stream = LogStream(self._server, log_position.start, self._server_id)
        log_position = replace(log_position, server=stream.server)
        source, database = self._server.source, self._server.address.database
        logged = LoggedTables(source, self._server.address, tables, charsets, any_case)
        transactions = Transactions(
            source, database, logged, log_position, lambda: self._new_file(stream.ordinal)
        )
        return _Reading(stream, transactions, after)

    def _tables(self, cursor: Any) -> dict[str, Registered]:
        source = self._server.source
        tables = read_registered(cursor, self._server.address)
        if tables is None:
            raise NotSetUp(
                f"source {source} is not set up for capture", subject=source, hint="run `rollview setup`"
            )
        return tables

    def _new_file(self, ordinal: int) -> Path:
        """The file of a part of a large transaction that lies before a place."""
        if self._folder is None:
            self._folder = self._new_folder()
        path = self._folder / f"{uuid.uuid4().hex}.parquet"
        self._spilled.append((ordinal, path))
        return path


def _untrusted_part(source: str) -> str:
    """The note, given once, on transactions that call themselves parts of global ones and are none."""
    return (
        f"source {source}: an XA transaction announces itself as a part of a global one by its name. Every"
        " user can do that, so it is taken as a transaction of its own; announced by a row in"
        f" `{GLOBAL_TABLE}`, a part counts"
    )

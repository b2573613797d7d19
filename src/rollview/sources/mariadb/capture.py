"""Capture: batches of transactions from the binary log.

One stream stays open between calls. A call first asks the server how far its log is written, and reads up to
there: so it returns at once when nothing is new, and misses nothing that was committed before it began. A
call that wants to go on from elsewhere, as after a batch that was not kept, opens another stream.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rollview.errors import LogLost, NotSetUp, RollviewError, SourceUnavailable
from rollview.sources.mariadb.charsets import Charsets
from rollview.sources.mariadb.connection import Server
from rollview.sources.mariadb.log_stream import LogStream
from rollview.sources.mariadb.logged_tables import LoggedTables
from rollview.sources.mariadb.position import LogPosition, Position, parse_log_position
from rollview.sources.mariadb.registered import Registered, read_registered
from rollview.sources.mariadb.server_log import written_position
from rollview.sources.mariadb.transactions import Transactions
from rollview.sources.reload_hint import reload_hint
from rollview.sources.source import Batch

_QUIET_SECONDS = 2.0
_LONGEST_SECONDS = 10.0


@dataclass
class _Reading:
    """An open stream, what it makes of the events, and the log position at which it stands."""

    stream: LogStream
    transactions: Transactions
    log_position: str

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

    def __init__(self, server: Server, server_id: int | None) -> None:
        self._server = server
        self._server_id = server_id
        self._lock = threading.Lock()
        self._reading: _Reading | None = None
        self._folder: Path | None = None
        self._spilled: list[tuple[int, Path]] = []

    def begin_at(self, start: Position) -> Position:
        """The same place, with the age of its file; this also shows that the log may be read."""
        stream = LogStream(self._server, start, self._server_id)
        stream.close()
        return Position(start.file, start.offset, stream.position().created)

    def take(self, after: str, limit: int) -> Batch:
        """What was committed after a log position: about `limit` rows, at least one transaction."""
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
                # What was read is lost to the stream, so the next call begins where this one did.
                self._stop()
                raise

    def _take(self, after: str, limit: int) -> Batch:
        log_position = parse_log_position(after)
        with self._server.session() as connection, connection.cursor() as cursor:
            target = written_position(cursor)
        if self._reading is None and target.ordinal < log_position.reached.ordinal:
            # The server would say so, too, but less clearly.
            raise LogLost(
                f"source {self._server.source}: its binary log ends at {target}, but was captured up to"
                f" {log_position.reached}: the server has lost transactions or is a different one",
                subject=self._server.source,
                hint=reload_hint(self._server.source),
            )
        reading = self._reading_at(after, log_position)
        transactions = reading.transactions
        deadline = time.monotonic() + _LONGEST_SECONDS
        while reading.stream.ordinal < target.ordinal or not transactions.between:
            try:
                with self._server.explained():
                    came = reading.step(_QUIET_SECONDS)
            except RollviewError:
                # What is complete is handed out first; the next call meets the same error at once.
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
        if transactions.registered_anew:
            self._stop()
        return batch

    def _enough(self, transactions: Transactions, limit: int, deadline: float) -> bool:
        return transactions.rows >= limit or transactions.registered_anew or time.monotonic() > deadline

    def _batch(self, reading: _Reading, after: str, log_position: LogPosition) -> Batch:
        transactions = reading.transactions
        if transactions.reached.ordinal > log_position.reached.ordinal:
            reading.log_position = str(transactions.log_position)
        else:
            reading.log_position = after
        return Batch(transactions.take_batch(), reading.log_position)

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
        tables, charsets = self._registered()
        stream = LogStream(self._server, log_position.start, self._server_id)
        source, database = self._server.source, self._server.address.database
        logged = LoggedTables(source, database, tables, charsets)
        transactions = Transactions(
            source, database, logged, log_position, lambda: self._new_file(stream.ordinal)
        )
        return _Reading(stream, transactions, after)

    def _registered(self) -> tuple[dict[str, Registered], Charsets]:
        source = self._server.source
        with self._server.session() as connection, connection.cursor() as cursor:
            tables = read_registered(cursor, self._server.address.database)
            if tables is None:
                raise NotSetUp(
                    f"source {source} is not set up for capture", subject=source, hint="run `rollview setup`"
                )
            return tables, self._server.charsets(connection)

    def _new_file(self, ordinal: int) -> Path:
        """Where a part of a large transaction is written that lies before a mark."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="rollview-"))
        path = self._folder / f"{uuid.uuid4().hex}.parquet"
        self._spilled.append((ordinal, path))
        return path

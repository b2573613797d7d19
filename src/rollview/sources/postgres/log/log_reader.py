"""Reads the log: keeps the stream open from batch to batch, and reopens it wherever it must.

The log position alone says where to continue, so a batch that was not kept, a restart of either side or a
broken connection all end in the same way: the stream is opened again, from the last log position.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import psycopg

from rollview.errors import RollviewError, SourceUnavailable
from rollview.rows import FileScan
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection, Connections, explained
from rollview.sources.postgres.log.damage import Damage, combined
from rollview.sources.postgres.log.log_stream import MESSAGES_SINCE, LogStream, Replication
from rollview.sources.postgres.log.logged_tables import LoggedTables, links_before
from rollview.sources.postgres.log.slot import end_reader, expect_log, expect_server, log_lost, log_removed
from rollview.sources.postgres.log.watch import Observation, PartitionIdentity, Watch, find_owner, lacking
from rollview.sources.postgres.partitions import Followed, Follower
from rollview.sources.postgres.position import NO_PARTITIONS, LogPosition, Partitions, log_position_of
from rollview.sources.postgres.read.read_point import nudge, present
from rollview.sources.postgres.setup.global_parts import counts, untrusted_part
from rollview.sources.settings import temporary_folder
from rollview.sources.source import Batch, CapturedTransaction, Loss, setup_hint

# Files for transactions that are too large for memory, kept until the warehouse has taken their rows.


class SpillFiles:
    """A folder, there from the first file on until `close`."""

    def __init__(self, new_folder: Callable[[], Path]) -> None:
        self._new_folder = new_folder
        self._folder: Path | None = None
        self._held: list[tuple[int, Path]] = []

    def new(self) -> Path:
        """The path of a new file."""
        if self._folder is None:
            self._folder = self._new_folder()
        return self._folder / f"{uuid.uuid4().hex}.parquet"

    def hold(self, captured: Iterable[CapturedTransaction]) -> None:
        """Notes which files hold rows of these transactions."""
        for transaction in captured:
            for rows in transaction.rows.values():
                if isinstance(rows, FileScan):
                    end = log_position_of(transaction.log_position).position
                    self._held += [(end, Path(file.path)) for file in rows.files]

    def drop(self, upto: int) -> None:
        """Removes the files of transactions that end at a position or before it."""
        for position, path in self._held:
            if position <= upto:
                path.unlink(missing_ok=True)
        self._held = [(position, path) for position, path in self._held if position > upto]

    def close(self) -> None:
        """Removes all files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder, self._held = None, []


HOLD_SECONDS = 10.0
"""After how long a stream that nobody reads is closed: a server that is shut down waits for its readers."""

_CATCH_UP_SECONDS = 2.0
_TAKE_OVER_SECONDS = 10.0
_IDLE_MOVE_BYTES = 1 << 20
_IDLE_MOVE_SECONDS = 10.0
_HALF = 1 << 31


class LogReader:
    """The log of one source. One thread reads at a time."""

    def __init__(
        self,
        address: Address,
        connections: Connections,
        hold_seconds: float = HOLD_SECONDS,
        new_folder: Callable[[], Path] = temporary_folder,
    ) -> None:
        self._address = address
        self._connections = connections
        self._watch = Watch(address)
        self._hold_seconds = hold_seconds
        self._lock = threading.RLock()
        self._spill = SpillFiles(new_folder)
        self._identity = PartitionIdentity(address)
        self._stream: LogStream | None = None
        self._place = ""
        self._confirmed = 0
        self._next_xid = 0
        self._moved_at = 0.0
        self._timer: threading.Timer | None = None

    def take(self, after: str, limit: int) -> Batch:
        """The transactions after a log position, up to the present if there are not too many."""
        return self._persistently(lambda: self._take(after, limit))

    def replay(self, after: str, source_txids: Sequence[int], upto: str) -> Batch:
        """The same transactions once more."""
        if not source_txids:
            return Batch((), upto)
        return self._persistently(lambda: self._replay(after, source_txids, upto))

    def acknowledge(self, upto: str) -> None:
        """Lets the server drop its log. Without a stream that happens when the next one is opened."""
        log_position = log_position_of(upto)
        with self._lock:
            self._spill.drop(log_position.position)
            if log_position.start > self._confirmed:
                self._confirmed = log_position.start
                self._confirm()

    def close(self) -> None:
        """Ends the stream and removes its files."""
        with self._lock:
            self.release()
            self._spill.close()

    def release(self) -> None:
        """Ends the stream. The next batch opens it again."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._stream is not None:
                self._stream.replication.close()
                self._stream = None

    def _take(self, after: str, limit: int) -> Batch:
        before = log_position_of(after)
        with self._connections.connection() as connection:
            stream, observed = self._filled(connection, after, limit)
            followed = self._followed(connection, stream, observed, before)
            self._identity.set(connection, lacking(observed))
        lost = self._lost(observed, before.position, followed)
        if stream is not self._stream:
            # Transactions before the error are captured first; the next call meets it again.
            end = str(stream.collector.end)
            return Batch(self._captured(stream), end, lost, self._notes(stream))
        captured, notes = self._captured(stream), self._notes(stream)
        partitions = {table: each.links for table, each in followed.items()}
        log_position = stream.collector.start_at(stream.position)._replace(partitions=partitions)
        if partitions != before.partitions:
            # From here on it is known of more relations in the log, or of less, whose they are.
            self.release()
        elif not captured and not self._is_worth(stream, log_position, before):
            return Batch((), after, lost, notes)
        stream.is_awaited = False
        self._place, self._moved_at = str(log_position), time.monotonic()
        return Batch(captured, self._place, lost, notes)

    def _notes(self, stream: LogStream) -> tuple[str, ...]:
        """The notes on the batch, for the user."""
        has_untrusted, stream.collector.has_untrusted_part = stream.collector.has_untrusted_part, False
        return (untrusted_part(self._address),) if has_untrusted else ()

    def _followed(
        self, connection: Connection, stream: LogStream, observed: Observation, before: LogPosition
    ) -> dict[int, Followed]:
        """The changes of the partitions of each partitioned table, by the table's id."""
        follower = Follower(connection, stream.position, stream.collector.tables.disturbed)
        return {
            table.id: follower.follow(
                f"{self._address.source}.{table.name}",
                links_before(before.partitions, table),
                observed.fingerprint.tables[table.id].partitions,
            )
            for table in observed.registration.tables.values()
            if table.is_partitioned and table.id in observed.fingerprint.tables
        }

    def _filled(self, connection: Connection, after: str, limit: int) -> tuple[LogStream, Observation]:
        """The stream with a batch, and how the source is, looked at after all of it was read.

        The stream is given up if there is an error after the batch.
        """
        while True:
            now = present(connection)
            self._next_xid = now.next_xid
            stream = self._stream_at(connection, after, now.server)
            deadline = time.monotonic() + _CATCH_UP_SECONDS
            try:
                stream.fill(limit, now.position, deadline, lambda: nudge(connection))
            except psycopg.errors.UndefinedObject as error:
                # The present state of the source says more than the error in the log.
                self._watch.observe(connection)
                raise log_lost(self._address, str(error)) from None
            except psycopg.errors.UndefinedFile as error:
                raise log_removed(self._address, str(error)) from None
            except RollviewError:
                self.release()
                if not stream.collector.size:
                    raise
            observed = self._watch.observe(connection)
            if observed.registration == stream.registration:
                return stream, observed
            # Setup has been there: the same once more, by what is registered now.
            self.release()

    def _lost(
        self, observed: Observation, position: int, followed: Mapping[int, Followed]
    ) -> dict[str, Loss]:
        """The tables of which changes may be missing: damaged ones, and those complete only from later on.

        Also those with partitions that came or went with rows.
        """
        found: dict[str, Loss] = {}
        for name, table in observed.registration.tables.items():
            place = f"{self._address.source}.{name}"
            now = [observed.damaged[name]] if name in observed.damaged else []
            missed = [
                Damage(reason, columns)
                for reason, columns, since in table.renewals
                if since is not None and position <= since
            ]
            damaged = combined([*now, *missed])
            if damaged is not None and not damaged.columns:
                found[place] = Loss(damaged.reason, setup_hint(place))
            elif table.id in followed and (reason := followed[table.id].reason):
                found[place] = Loss(reason, setup_hint(place), is_truncate=True)
            elif damaged is not None:
                found[place] = Loss(damaged.reason, setup_hint(place), damaged.columns)
        return found

    def _replay(self, after: str, source_txids: Sequence[int], upto: str) -> Batch:
        found: list[CapturedTransaction] = []
        with self._connections.connection() as connection:
            now = present(connection)
            self._next_xid = now.next_xid
            self.release()
            end = log_position_of(upto)
            stream = self._stream_at(connection, after, now.server, end.partitions)
            target = end.position
            while len(found) < len(source_txids) and stream.position < target:
                deadline = time.monotonic() + _CATCH_UP_SECONDS
                most = len(source_txids) - len(found)
                stream.fill(sys.maxsize, target, deadline, lambda: nudge(connection), most)
                found += self._captured(stream, frozenset(source_txids))
        if [each.source_txid for each in found] != list(source_txids):
            self.release()
            raise log_lost(self._address, "the log returned different transactions on replay")
        # Transactions between the last of them and the log position changed no captured table.
        self._place = upto
        if end.partitions != log_position_of(after).partitions:
            self.release()
        return Batch(tuple(found), upto)

    def _is_worth(self, stream: LogStream, log_position: LogPosition, after: LogPosition) -> bool:
        """Whether to report that nothing happened. Each time costs the warehouse a step, so not always."""
        if stream.is_awaited or stream.replication.version < MESSAGES_SINCE:
            return log_position != after
        is_far = log_position.start - after.start > _IDLE_MOVE_BYTES
        is_late = time.monotonic() - self._moved_at > _IDLE_MOVE_SECONDS
        # A capture before the position from which a table is complete has to get past it.
        is_before = any(
            since is not None and after.position <= since
            for table in stream.registration.tables.values()
            for _, _, since in table.renewals
        )
        return log_position != after and (is_far or is_late or is_before)

    def _captured(self, stream: LogStream, wanted: Container[int] = ()) -> tuple[CapturedTransaction, ...]:
        captured = stream.collector.end_batch(self._widened, wanted)
        self._spill.hold(captured)
        return captured

    def _widened(self, xid: int) -> int:
        """A transaction id of the log, which has 32 bits, in 64: the nearest one to the present."""
        distance = (self._next_xid - xid) % (1 << 32)
        return self._next_xid - (distance if distance < _HALF else distance - (1 << 32))

    def _stream_at(
        self, connection: Connection, after: str, server: str, more: Partitions = NO_PARTITIONS
    ) -> LogStream:
        """The stream, if it is at this log position; else a new one, which knows of more partitions."""
        if self._stream is not None and self._place == after:
            return self._stream
        self.release()
        log_position = log_position_of(after)
        expect_server(self._address, log_position.server, server)
        expect_log(connection, self._address, log_position.start)
        deadline = time.monotonic() + _TAKE_OVER_SECONDS
        while True:
            try:
                end_reader(connection, self._address)
                replication = Replication(self._address, log_position.start)
                break
            except psycopg.errors.ObjectInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        try:
            registration = self._watch.observe(connection, ()).registration
        except BaseException:
            # Nobody else has it in hand, and a server that is shut down waits for its readers.
            replication.close()
            raise
        known = {
            table: {**more.get(table, {}), **log_position.partitions.get(table, {})}
            for table in more.keys() | log_position.partitions.keys()
        }
        tables = LoggedTables(
            self._address.source,
            registration,
            known,
            self._spill.new,
            partial(find_owner, self._connections, self._address),
            self._address.delta_schema,
            partial(counts, self._connections, self._address),
        )
        self._stream = LogStream(self._address, replication, log_position, registration, tables)
        self._place = after
        self._confirm()
        return self._stream

    def _confirm(self) -> None:
        if self._stream is None or not self._confirmed:
            return
        replication = self._stream.replication
        try:
            replication.report(self._confirmed)
            # A position that stays behind would make a server that is shut down wait for it.
            replication.report(0)
        except psycopg.OperationalError:
            self.release()

    def _persistently(self, action: Callable[[], Batch]) -> Batch:
        """A stream may have been broken since it was last used: then everything is done once more."""
        with self._lock, explained(self._address):
            was_held = self._stream is not None
            try:
                try:
                    batch = action()
                except SourceUnavailable:
                    if not was_held:
                        raise
                    self.release()
                    batch = action()
            except BaseException:
                self.release()
                raise
            self._hold()
            return batch

    def _hold(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stream is not None:
            self._timer = threading.Timer(self._hold_seconds, self.release)
            self._timer.daemon = True
            self._timer.start()

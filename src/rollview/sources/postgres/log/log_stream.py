"""An open stream of the log, read message by message into transactions."""

from __future__ import annotations

import select
import struct
import sys
import time
from collections.abc import Callable

import psycopg
from psycopg import pq

from rollview.errors import UnrepresentableValue
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import quote, text_literal
from rollview.sources.postgres.log import pgoutput
from rollview.sources.postgres.log.collector import Collector, Transaction, participants_of
from rollview.sources.postgres.log.logged_tables import LoggedRelation, LoggedTable, LoggedTables
from rollview.sources.postgres.log.pgoutput import DELETE, INSERT, OLD, UPDATE, End, ValueNotLogged, tuple_at
from rollview.sources.postgres.log.slot import GIDS_SINCE
from rollview.sources.postgres.position import LogPosition, position_text
from rollview.sources.postgres.read.read_point import MARKER_PREFIX
from rollview.sources.postgres.registration import Registration

# The connection that reads the log: PostgreSQL's streaming replication protocol, over libpq.
#
# https://www.postgresql.org/docs/current/protocol-replication.html describes the messages. The server sends
# what was committed in order of commit, each transaction in one piece. Only `report`
# lets it drop what it has sent.

MESSAGES_SINCE = 140000
"""From this version on the log returns messages that were written to it."""

KEEPALIVE = 0x6B
HEADER_BYTES = 25
"""Every piece of data begins with its kind, two positions and a time."""

_REPORT = struct.Struct(">c4QB")
_KEEPALIVE = struct.Struct(">cQQB")
_UNREADABLE: dict[str, type[psycopg.Error]] = {
    "42704": psycopg.errors.UndefinedObject,
    "58P01": psycopg.errors.UndefinedFile,
}
"""Errors in the middle of the log: there was no publication then, or the server has removed the file."""

_MICROSECONDS_TO_2000 = 946_684_800_000_000


class Replication:
    """An open stream, from a position on. All methods raise `psycopg.OperationalError` when it breaks."""

    def __init__(self, address: Address, start: int) -> None:
        self._address = address
        self._connection = pq.PGconn.connect(address.replication_conninfo.encode())
        self.received = start
        """How far the server has looked: it has sent every commit before this position."""
        if self._connection.status != pq.ConnStatus.OK:
            raise psycopg.OperationalError(_error(self._connection))
        version = self.version = self._connection.server_version
        publication = text_literal(quote(address.publication))
        options = f"publication_names {publication}, proto_version '{3 if version >= GIDS_SINCE else 1}'"
        options += ", messages 'true'" if version >= MESSAGES_SINCE else ""
        options += ", two_phase 'on'" if version >= GIDS_SINCE else ""
        command = f'START_REPLICATION SLOT "{address.slot}" LOGICAL {position_text(start)} ({options})'
        result = self._connection.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            state = result.error_field(pq.DiagnosticField.SQLSTATE) or b""
            self.close()
            if state == b"55006":
                raise psycopg.errors.ObjectInUse("the replication slot has another reader")
            raise psycopg.OperationalError(result.error_message.decode(errors="replace"))
        self._connection.nonblocking = 1
        self.next = self._reader()

    def _reader(self) -> Callable[[], bytes | None]:
        """A function that returns the next message, None if there is none yet; called for every row."""
        connection = self._connection
        get = connection.get_copy_data

        def next_message() -> bytes | None:
            length, data = get(1)
            if length == 0:
                connection.consume_input()
                length, data = get(1)
            if length > 0:
                return bytes(data)
            if length == 0:
                return None
            raise _ended(connection)

        return next_message

    def wait(self, seconds: float) -> None:
        """Waits until there may be a message, but not longer than this."""
        select.select([self._connection.socket], [], [], max(seconds, 0.0))

    def handle_keepalive(self, message: bytes) -> None:
        """Takes note of a keepalive, and answers it if an answer is wanted."""
        _, received, _, wants_answer = _KEEPALIVE.unpack_from(message)
        self.received = max(self.received, received)
        if wants_answer:
            self.report(0)

    def report(self, confirmed: int, ask: bool = False) -> None:
        """Says that all before a position is kept safely (0: nothing new), and may ask for a sign of life.

        A server takes a position that is not after an earlier one for what it is: nothing new.
        """
        now = time.time_ns() // 1000 - _MICROSECONDS_TO_2000
        written = max(confirmed, self.received)
        self._connection.put_copy_data(_REPORT.pack(b"r", written, confirmed, confirmed, now, ask))
        while self._connection.flush():
            select.select([], [self._connection.socket], [], self._address.timeout)

    def close(self) -> None:
        """Ends the stream; the server keeps what was not confirmed."""
        self._connection.finish()


def _ended(connection: pq.abc.PGconn) -> psycopg.Error:
    """Why the server has ended the stream. Of what it cannot read any more it says so in its own way."""
    result = connection.get_result()
    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode() if result is not None else ""
    message = (
        (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode() if result is not None else ""
    )
    if state in _UNREADABLE:
        return _UNREADABLE[state](message)
    return psycopg.OperationalError(f"the server has ended the stream: {message or _error(connection)}")


def _error(connection: pq.abc.PGconn) -> str:
    return connection.error_message.decode(errors="replace").strip() or "the connection was lost"


_NUDGE_SECONDS = 0.05
_STEP_SECONDS = 0.02
_BODY = HEADER_BYTES + 1
_IMAGE = HEADER_BYTES + 5
_ROW = HEADER_BYTES + 6
_ROW_KINDS = frozenset((INSERT, UPDATE, DELETE))
_OPEN_TO_ALL = "rollview"
"""The prefix by which messages, and names of prepared transactions, made parts of global ones before."""


class LogStream:
    """Transactions as they come. Commits before `after.position` have been captured and are passed over.

    `registration` says which tables are captured; another one needs another stream.
    """

    def __init__(
        self,
        address: Address,
        replication: Replication,
        after: LogPosition,
        registration: Registration,
        tables: LoggedTables,
    ) -> None:
        self._address = address
        self._after = after.position
        self._open: Transaction | None = None
        self._has_deltas = any(each.schema == address.delta_schema for each in registration.tables.values())
        self.registration = registration
        self.replication = replication
        self.collector = Collector(after, tables)
        self.is_awaited = False
        """Whether something came, since this was last reset, that a caller may be waiting for."""

    @property
    def position(self) -> int:
        """All commits before it have come."""
        return max(self._after, self.replication.received)

    def fill(
        self,
        limit: int,
        target: int,
        deadline: float,
        nudge: Callable[[], None],
        most: int = sys.maxsize,
    ) -> None:
        """Reads until a batch is full, or all before a position has come, or time is up.

        Full is one with `limit` changed rows or `most` transactions. It never ends inside of a transaction.
        `nudge` makes the server send what it holds back.
        """
        relations, replication, rows = self.collector.tables.relations, self.replication, 0
        announcing = self.collector.tables.announcing
        next_message = replication.next
        patience: _Patience | None = None
        while True:
            message = next_message()
            if message is None:
                if self._open is None and (self.position >= target or time.monotonic() > deadline):
                    return
                patience = patience or _Patience(self._address.timeout, replication, nudge)
                patience.wait(self._open is not None)
                continue
            if message[0] == KEEPALIVE:
                replication.handle_keepalive(message)
                continue
            patience = None
            kind = message[HEADER_BYTES]
            if kind in _ROW_KINDS:
                number = int.from_bytes(message[_BODY:_IMAGE], "big")
                relation = relations.get(number)
                if relation is not None and self._open is not None:
                    changed = self._row(kind, message, relation)
                    if self._has_deltas:
                        self._open.counted[relation.table.registered.id] += changed
                    rows += changed
                elif number in announcing and kind == INSERT:
                    self._take_part(*tuple_at(message, _ROW, None)[0])
            elif self._control(kind, message) and (
                self.position >= target or self.collector.size >= (1 if rows >= limit else most)
            ):
                return

    def _row(self, kind: int, message: bytes, relation: LoggedRelation) -> int:
        """Adds what happened to one row; how many changed rows that makes."""
        assert self._open is not None
        table = relation.table
        if self._is_too_early(table):
            return 0
        if self._open.lost and self._open.has_lost(table):
            self._open.fill(table)
            return 0
        if relation.damage is not None:
            if relation.strays:
                return self._lose_strays(self._open, relation)
            self._open.lose_columns(table, relation.damage)
        try:
            if table.mark_place >= 0:
                return self._made(self._open, kind, message, relation)
            if kind == INSERT:
                relation.add(tuple_at(message, _ROW, None)[0], 1)
                return 1
            if message[_IMAGE] != OLD:
                raise ValueNotLogged
            if relation.is_watched and self._is_refuted(self._open, relation):
                return 0
            old, place = tuple_at(message, _ROW, None)
            relation.add(old, -1)
            if kind == UPDATE:
                relation.add(tuple_at(message, place + 1, old)[0], 1)
                return 2
            return 1
        except ValueNotLogged:
            self._open.lose_old(relation)
            return 0
        except UnrepresentableValue as error:
            self._open.lose_for(table, error)
            return 0

    def _made(self, transaction: Transaction, kind: int, message: bytes, relation: LoggedRelation) -> int:
        """A row that a writer made of a delta. That it is deleted one day is of no interest."""
        if kind != INSERT:
            return 0
        values = tuple_at(message, _ROW, None)[0]
        if mark := relation.mark_in(values):
            transaction.note_mark(relation.table, mark)
        relation.add(values, 1)
        return 1

    def _lose_strays(self, transaction: Transaction, relation: LoggedRelation) -> int:
        """Rows of what was a partition for a moment: readings may have seen them, and nobody knows whose."""
        for table in relation.strays:
            reason = f"partition {relation.partition} of table {table.name} came and went, and rows with it"
            transaction.lose_rows(table, reason)
        return 0

    def _is_refuted(self, transaction: Transaction, relation: LoggedRelation) -> bool:
        """Whether a partition that was seen to be empty had rows before."""
        relation.is_disturbed = True
        if transaction.commit >= relation.empty_until:
            return False
        table = relation.table
        reason = f"table {relation.partition} was attached to table {table.name}, and its rows with it"
        transaction.lose_rows(table, reason)
        return True

    def _is_too_early(self, table: LoggedTable) -> bool:
        """Whether the open transaction is from before the capture of a table began."""
        assert self._open is not None
        since, halves, before = table.registered.beginning
        commit = self._open.commit
        return commit < since or (bool(halves) and self._open.xid in halves and commit < (before or 0))

    def _control(self, kind: int, message: bytes) -> bool:
        """All other messages; whether a transaction has ended, or nothing is open."""
        if kind == pgoutput.BEGIN:
            commit, seconds, xid = pgoutput.begin(message, _BODY)
            # Of what was captured before nothing is kept, so that its rows cost nothing.
            self._open = Transaction(commit, xid, seconds) if commit >= self._after else None
        elif kind == pgoutput.COMMIT:
            commit, end = pgoutput.commit(message, _BODY)
            if (transaction := self._open) is not None:
                self.collector.end_rows(transaction)
                self._finish(transaction, End(commit, end, transaction.time, transaction.xid))
            self.replication.received = max(self.replication.received, end)
            return True
        elif kind == pgoutput.RELATION:
            self.collector.tables.describe(pgoutput.relation(message, _BODY))
        elif kind == pgoutput.MESSAGE:
            self._marker(*pgoutput.logical_message(message, _BODY))
        elif kind == pgoutput.TRUNCATE:
            for table_id in pgoutput.truncated(message, _BODY):
                relation = self.collector.tables.relations.get(table_id)
                if relation is not None and self._open is not None:
                    for table in relation.strays or (relation.table,):
                        is_whole = not relation.strays and not relation.partition
                        if not self._is_too_early(table):
                            self._open.lose_rows(table, f"{relation.shown} was truncated", is_whole)
        else:
            return self._two_phase(kind, message)
        return False

    def _two_phase(self, kind: int, message: bytes) -> bool:
        """Prepared transactions: what they did comes first, what became of them later."""
        prepared = self.collector.prepared
        if kind == pgoutput.BEGIN_PREPARE:
            position, xid, gid = pgoutput.begin_prepare(message, _BODY)
            self._open = Transaction(position, xid, gid=gid)
            self._open.is_named = gid.startswith(f"{_OPEN_TO_ALL}:")
        elif kind == pgoutput.PREPARE and self._open is not None:
            self.collector.end_rows(self._open)
            prepared[self._open.gid] = self._open
            self._open = None
        elif kind == pgoutput.COMMIT_PREPARED:
            end = pgoutput.commit_prepared(message, _BODY)
            transaction = prepared.pop(end.gid, None)
            # Of one that changed nothing the server may send the end alone: a savepoint was rolled back.
            # All others have come before: every log position leads back to those that are in doubt.
            if transaction is not None and end.commit >= self._after:
                self._finish(transaction, end)
            self.replication.received = max(self.replication.received, end.end)
            return True
        elif kind == pgoutput.ROLLBACK_PREPARED:
            ended, gid = pgoutput.rollback_prepared(message, _BODY)
            prepared.pop(gid, None)
            self.replication.received = max(self.replication.received, ended)
        return self._open is None

    def _finish(self, transaction: Transaction, end: End) -> None:
        self._open = None
        self.collector.finish(transaction, end)

    def _marker(self, is_part: bool, prefix: str, _: bytes) -> None:
        if prefix == MARKER_PREFIX:
            self.is_awaited = True
        elif prefix == _OPEN_TO_ALL and is_part and self._open is not None:
            self._open.is_named = True

    def _take_part(self, global_id: bytes, sources: bytes) -> None:
        """A role that may do so has said that the open transaction is a part of a global one."""
        participants = participants_of(sources.decode())
        if self._open is not None and self._address.source in participants:
            self._open.global_id, self._open.participants = global_id.decode(), participants


class _Patience:
    """Called while nothing comes: asks the server how far it is, and at last makes it write to the log."""

    def __init__(self, timeout: float, replication: Replication, nudge: Callable[[], None]) -> None:
        self._began = time.monotonic()
        self._timeout = timeout
        self._replication = replication
        self._nudge: Callable[[], None] | None = nudge

    def wait(self, is_inside: bool) -> None:
        """Waits a little; inside of a transaction only for so long."""
        waited = time.monotonic() - self._began
        if is_inside and waited > self._timeout:
            raise psycopg.OperationalError("the server stopped sending in the middle of a transaction")
        if not is_inside:
            self._replication.report(0, ask=True)
            if waited > _NUDGE_SECONDS and self._nudge is not None:
                self._nudge()
                self._nudge = None
        self._replication.wait(_STEP_SECONDS)

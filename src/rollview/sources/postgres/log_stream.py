"""An open stream of the log, read message by message into transactions."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import psycopg

from rollview.errors import UnrepresentableValue
from rollview.sources.postgres import pgoutput
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.collector import GLOBAL_PREFIX, Collector, Transaction, global_part
from rollview.sources.postgres.logged_tables import LoggedRelation, LoggedTable, LoggedTables
from rollview.sources.postgres.pgoutput import DELETE, INSERT, OLD, UPDATE, End, ValueNotLogged, tuple_at
from rollview.sources.postgres.position import LogPosition
from rollview.sources.postgres.read_point import MARKER_PREFIX
from rollview.sources.postgres.registration import Registration
from rollview.sources.postgres.replication import HEADER_BYTES, KEEPALIVE, Replication
from rollview.sources.postgres.slot import log_lost

_NUDGE_SECONDS = 0.05
_STEP_SECONDS = 0.02
_BODY = HEADER_BYTES + 1
_IMAGE = HEADER_BYTES + 5
_ROW = HEADER_BYTES + 6
_ROW_KINDS = frozenset((INSERT, UPDATE, DELETE))


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
        """Whether something came, since this was last set back, that somebody may be waiting for."""

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
                replication.look(message)
                continue
            patience = None
            kind = message[HEADER_BYTES]
            if kind in _ROW_KINDS:
                relation = relations.get(int.from_bytes(message[_BODY:_IMAGE], "big"))
                if relation is not None and self._open is not None:
                    changed = self._row(kind, message, relation)
                    if self._has_deltas:
                        self._open.counted[relation.table.registered.id] += changed
                    rows += changed
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
            if gid.startswith(f"{GLOBAL_PREFIX}:"):
                self._take_part(gid.partition(":")[2])
        elif kind == pgoutput.PREPARE and self._open is not None:
            self.collector.end_rows(self._open)
            prepared[self._open.gid] = self._open
            self._open = None
        elif kind == pgoutput.COMMIT_PREPARED:
            end = pgoutput.commit_prepared(message, _BODY)
            transaction = prepared.pop(end.gid, None)
            if end.commit >= self._after:
                if transaction is None:
                    reason = f"the log no longer has the changes of prepared transaction {end.gid}"
                    raise log_lost(self._address, reason)
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

    def _marker(self, is_part: bool, prefix: str, content: bytes) -> None:
        if prefix == MARKER_PREFIX:
            self.is_awaited = True
        elif prefix == GLOBAL_PREFIX and is_part:
            self._take_part(content.decode(errors="replace"))

    def _take_part(self, text: str) -> None:
        if self._open is not None:
            identity, participants = global_part(text, self._address.source)
            if identity:
                self._open.global_id, self._open.participants = identity, participants


class _Patience:
    """What is done while nothing comes: the server is asked how far it is, and at last nudged."""

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

"""Events become transactions: groups of row events that were committed, in the order of their commits.

A group begins with a GTID event and ends with its commit. The group of an XA transaction ends with its
PREPARE; its rows are kept, as they were logged, until a later group of a single statement decides it. The
transaction belongs there, because only then does anybody see it.

A change of a single table that its rows do not show is a loss of that table, at the transaction that
does it. Errors of the log itself stop capture.
"""

from __future__ import annotations

import pickle
import re
import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rollview.errors import LogLost, UnrepresentableValue
from rollview.rows import Rows
from rollview.sources.changed_rows import ChangedRows
from rollview.sources.mariadb.binlog import events
from rollview.sources.mariadb.binlog.damage import Damage, both_damages, combined
from rollview.sources.mariadb.binlog.events import Event, Gtid, LoggedStatement
from rollview.sources.mariadb.binlog.logged_tables import LoggedTable, LoggedTables, UnreadableTable
from rollview.sources.mariadb.binlog.row_image import UnknownImage, Values
from rollview.sources.mariadb.binlog.statements import End, Meaning, meaning_of
from rollview.sources.mariadb.binlog.table_map import table_id
from rollview.sources.mariadb.position import LogPosition, Position
from rollview.sources.mariadb.registered import GLOBAL_TABLE, registered_damage
from rollview.sources.source import CapturedTransaction, Loss, reload_hint

# Groups of events that are being read, and those of XA transactions that wait to be decided.

_KEPT_BYTES = 1 << 20
_MOST_REMEMBERED = 1_000_000


class Prepared:
    """An XA transaction in doubt: where its group began, and its events, on disk if they are many."""

    def __init__(self, start: Position, has_nontransactional_writes: bool) -> None:
        self.start = start
        self.has_nontransactional_writes = has_nontransactional_writes
        # It lives from the PREPARE to the decision.
        self._kept = tempfile.SpooledTemporaryFile(_KEPT_BYTES)  # noqa: SIM115

    def keep(self, event: Event) -> None:
        pickle.dump(tuple(event), self._kept)

    def events(self) -> Iterator[Event]:
        """The kept events in order."""
        self._kept.seek(0)
        while True:
            try:
                yield Event(*pickle.load(self._kept))
            except EOFError:
                return

    def close(self) -> None:
        self._kept.close()


@dataclass
class Group:
    """The transaction that is being read; `skipped` if it was taken before.

    `damaged` are the tables that it changed in a way that is not known, `released` those that are no longer
    captured. With `has_nontransactional_writes` it also wrote tables without transactions.

    The log keeps what a return to a savepoint took back, and the return, in such groups, and where a
    temporary table was made. So it is remembered what was `written` since the first of the `savepoints`.
    """

    gtid: Gtid
    start: Position
    skipped: bool
    has_nontransactional_writes: bool
    prepared: Prepared | None = None
    touched: dict[str, ChangedRows] = field(default_factory=dict)
    damaged: dict[str, Damage] = field(default_factory=dict)
    released: frozenset[str] = frozenset()
    global_id: str = ""
    participants: tuple[str, ...] = ()
    is_named: bool = False
    written: list[tuple[ChangedRows, Values, int]] = field(default_factory=list)
    savepoints: dict[str, int] = field(default_factory=dict)
    has_forgotten: bool = False

    def add(self, changed: ChangedRows, images: list[Values], counts: tuple[int, int]) -> None:
        """Rows of a table: `counts` are those of the first, third … and of the second, fourth … image."""
        add, count, other = changed.add, *counts
        for values in images:
            add(values, count)
            count, other = other, count
        if self._remembers:
            self.written += [(changed, values, counts[i % 2]) for i, values in enumerate(images)]
            if len(self.written) > _MOST_REMEMBERED:
                self.written, self.savepoints, self.has_forgotten = [], {}, True

    def is_lost(self, table: str) -> bool:
        """Whether nothing is known of what it did to a table; of some columns, it may be."""
        return table in self.damaged and not self.damaged[table].columns

    @property
    def _remembers(self) -> bool:
        return not self.has_forgotten and (self.has_nontransactional_writes or bool(self.savepoints))

    def set_savepoint(self, name: str) -> None:
        """Remembers the position from which a rollback to it discards."""
        if not self.has_forgotten:
            self.savepoints[_savepoint_key(name)] = len(self.written)

    def undo(self, savepoint: str) -> bool:
        """Takes back what was written since a savepoint, by adding its opposite; whether that is known."""
        # A savepoint before the first change is not logged.
        first = 0 if self._remembers and not self.savepoints else None
        start = self.savepoints.get(_savepoint_key(savepoint), first)
        if start is None:
            return False
        for changed, values, count in reversed(self.written[start:]):
            changed.add(values, -count)
        del self.written[start:]
        return True

    def mark_global(self, global_id: str, participants: str) -> None:
        """Makes the transaction a part of a global one; participants are separated by commas."""
        self.global_id = global_id
        self.participants = tuple(sorted(name.strip() for name in participants.split(",") if name.strip()))


def _savepoint_key(name: str) -> str:
    """The server compares the names of savepoints without case and accents."""
    letters = unicodedata.normalize("NFD", name)
    return "".join(letter.upper() for letter in letters if not unicodedata.combining(letter))


Xid = tuple[int, bytes, bytes]
_OPEN_TO_ALL = b"rollview:"
"""How the names of XA transactions began that made them parts of global ones before: anybody can name one."""
_RELEASED = Damage("it was taken out of capture, perhaps by the setup of another project")
_NOT_TAKEN_BACK = Damage("a transaction returned to a savepoint, and it is not known what it took back")
_STATEMENTS = frozenset({events.QUERY, events.QUERY_COMPRESSED, events.EXECUTE_LOAD_QUERY})
_SAVEPOINT = re.compile(
    r"\s*(SAVEPOINT|ROLLBACK\s+TO(?:\s+SAVEPOINT)?)\s+(.*?)\s*;?\s*", re.IGNORECASE | re.DOTALL
)


_Parts = list[tuple[str, Callable[[], Rows]]]


class Transactions:
    """Takes events one by one. `reached` is where the last group ended; `rows` are counted per batch."""

    def __init__(
        self, source: str, database: str, tables: LoggedTables, after: LogPosition, spill: Callable[[], Path]
    ) -> None:
        self.reached = after.start
        self.rows = 0
        self.registered_again = False
        self.has_untrusted_part = False
        """Whether a transaction calls itself a part of a global one by its name, and is none."""
        self._floor = after.reached
        self._server = after.server
        self._source = source
        self._database = database
        self._tables = tables
        self._spill = spill
        self._maps: dict[int, LoggedTable | UnreadableTable | None] = {}
        self._own_maps: set[int] = set()
        self._group: Group | None = None
        self._in_doubt: dict[Xid, Prepared] = {}
        self._changed: dict[LoggedTable, ChangedRows] = {}
        self._found: list[tuple[_Parts, dict[str, Any]]] = []

    @property
    def between(self) -> bool:
        """Whether no group is open."""
        return self._group is None

    @property
    def log_position(self) -> LogPosition:
        """Where to continue after the last group."""
        # Until the floor is reached nothing new has been read, and the first in-doubt group may be unread.
        if self.reached.ordinal < self._floor.ordinal:
            raise AssertionError("asked for a log position before the one that reading began with")
        first = next(iter(self._in_doubt.values()), None)
        return LogPosition(self.reached, first.start if first else None, self._server)

    def take_batch(self) -> tuple[CapturedTransaction, ...]:
        """The transactions since the last call, their rows converted."""
        changed, found = self._changed, self._found
        self._changed, self._found, self.rows = {}, [], 0
        for each in changed.values():
            each.finish()
        return tuple(_transaction(parts, head) for parts, head in found)

    def close(self) -> None:
        """Forgets what was kept of in-doubt transactions."""
        self.drop_open()
        for prepared in self._in_doubt.values():
            prepared.close()

    def drop_open(self) -> None:
        if self._group is not None:
            for changed in self._group.touched.values():
                changed.drop_transaction()
            if self._group.prepared is not None:
                self._group.prepared.close()
            self._group = None

    def feed(self, event: Event, here: Callable[[], Position]) -> None:
        """One event, and the place at which it ends."""
        kind, group = event.kind, self._group
        if kind == events.GTID:
            self._open(event)
        elif kind in (events.FORMAT_DESCRIPTION, events.INCIDENT):
            # After a crash a file may end within a group, which then was never committed.
            self.drop_open()
            self._maps.clear()
            if kind == events.INCIDENT and self.reached.ordinal >= self._floor.ordinal:
                raise self._lost("the server reports changes that it could not write to its binary log")
        elif group is None:
            pass
        elif kind == events.TABLE_MAP:
            self._map(event, group)
        elif kind in events.ROWS:
            self._change(event, group)
        elif kind == events.XID:
            self._commit(group, event.timestamp, here())
        elif kind == events.XA_PREPARE:
            self._prepare(group)
        elif kind in _STATEMENTS:
            self._statement(event, group, here())
        if self._group is None and kind != events.XID:
            self.reached = here()

    def _open(self, event: Event) -> None:
        gtid, begin = events.parse_gtid(event), self.reached
        has_nontransactional_writes = not gtid.transactional
        prepared = Prepared(begin, has_nontransactional_writes) if gtid.prepares else None
        self._group = Group(
            gtid, begin, begin.ordinal < self._floor.ordinal, has_nontransactional_writes, prepared
        )

    def _map(self, event: Event, group: Group) -> None:
        number = table_id(event.body)
        if group.prepared is not None:
            if self._tables.is_own(event.body):
                self._own_maps.add(number)
                group.prepared.keep(event)
            else:
                self._own_maps.discard(number)
        elif not group.skipped:
            self._maps[number] = self._tables.known(event.body, group.start.ordinal)

    def _change(self, event: Event, group: Group) -> None:
        number = table_id(event.body)
        if group.prepared is not None:
            if number in self._own_maps:
                group.prepared.keep(event)
            return
        table = self._maps.get(number)
        if group.skipped or table is None:
            return
        if isinstance(table, UnreadableTable):
            self._lose(group, table.name, table.damage)
            return
        data, at = events.parse_rows(event)
        try:
            images = table.images.read(data, at, event.kind in events.UPDATED)
        except UnknownImage as error:
            if table.name in (GLOBAL_TABLE, self._tables.registry):
                raise self._lost(f"rows of {self._source}.{table.name} cannot be read: {error}") from error
            self._lose(group, table.name, Damage(f"its rows cannot be read: {error}"))
            return
        if table.name == self._tables.registry:
            self.registered_again = True
            self._register(event.kind, images, group)
        elif table.name == GLOBAL_TABLE:
            if event.kind in events.WRITTEN:
                group.mark_global(*(value.decode() for value in images[0]))
        else:
            self._add(table, event.kind, images, group)

    def _register(self, kind: int, images: list[Values], group: Group) -> None:
        """Setup was here: it lets tables go, or takes them as they are now."""
        # A replaced row may be logged as deleted and written.
        if kind in events.DELETED:
            group.released |= {name.decode() for name, _ in images}
            return
        for name, described in images[1::2] if kind in events.UPDATED else images:
            group.released -= {name.decode()}
            if damage := registered_damage(described.decode()):
                self._lose(group, name.decode(), damage)

    def _add(self, table: LoggedTable, kind: int, images: list[Values], group: Group) -> None:
        if table.damage is not None:
            self._lose(group, table.name, table.damage)
        if group.is_lost(table.name):
            return
        changed = self._changed.get(table)
        if changed is None:
            changed = self._changed[table] = ChangedRows(table.columns, table.convert, self._spill)
        if group.touched.setdefault(table.name, changed) is not changed:
            self._lose(group, table.name, Damage("its structure changed within a transaction"))
            return
        self.rows += len(images)
        updates, count = kind in events.UPDATED, 1 if kind in events.WRITTEN else -1
        try:
            group.add(changed, images, (-1, 1) if updates else (count, count))
        except UnrepresentableValue as error:
            self._lose(group, table.name, _misfit(error, group.gtid.text))

    def _statement(self, event: Event, group: Group, end: Position) -> None:
        statement = events.parse_query(event)
        if group.gtid.decides:
            self._decide(group, statement.text, event.timestamp, end)
            return
        if savepoint := _SAVEPOINT.fullmatch(statement.text):
            if group.prepared is not None:
                group.prepared.keep(event)
            elif savepoint[1].upper() == "SAVEPOINT":
                group.set_savepoint(savepoint[2])
            elif not group.undo(savepoint[2]):
                for table in group.touched:
                    self._lose(group, table, _NOT_TAKEN_BACK)
            return
        meaning = self._meaning_of(statement, group)
        if meaning.damage and group.prepared is not None:
            group.prepared.keep(event)
        for table, damage in meaning.damage.items():
            self._lose(group, table, replace(damage, reason=f"{damage.reason}: {_short(statement.text)}"))
        if meaning.end == End.ROLLBACK:
            self.drop_open()
        elif meaning.end == End.COMMIT or group.gtid.standalone:
            self._commit(group, event.timestamp, end)

    def _meaning_of(self, statement: LoggedStatement, group: Group) -> Meaning:
        """The effect of a statement on the tables that are captured at its place, or ever were."""
        ordinal = group.start.ordinal
        tables = {
            name: each for name, each in self._tables.tables.items() if each.since <= ordinal or each.again
        }
        found = Meaning()
        for each in self._tables.readings(statement):
            meaning = meaning_of(each, self._database, tables, self._tables.any_case)
            found = Meaning(found.end or meaning.end, both_damages(found.damage, meaning.damage))
        return Meaning(found.end) if group.skipped else found

    def _lose(self, group: Group, table: str, damage: Damage) -> None:
        group.damaged[table] = combined((group.damaged.get(table), damage)) or damage

    def _prepare(self, group: Group) -> None:
        if group.prepared is not None and group.gtid.xid is not None:
            self._in_doubt[group.gtid.xid] = group.prepared
            self._own_maps.clear()
        self._group = None

    def _decide(self, group: Group, text: str, timestamp: int, end: Position) -> None:
        xid = group.gtid.xid
        assert xid is not None
        prepared = self._in_doubt.pop(xid, None)
        if not group.skipped and text.split()[1].upper() == "COMMIT":
            if prepared is None:
                # The log of MariaDB 10.11 is not safe for XA when the server crashes during a PREPARE.
                raise self._lost(f"{_short(text)}: its rows are not in the log, or from before capture began")
            group.has_nontransactional_writes = prepared.has_nontransactional_writes
            self._replay(prepared, group, end)
            group.is_named = xid[1].startswith(_OPEN_TO_ALL)
            self._commit(group, timestamp, end)
        if prepared is not None:
            prepared.close()
        self._group = None

    def _replay(self, prepared: Prepared, group: Group, end: Position) -> None:
        """Reads the rows of an XA transaction as if they had been written when it was decided."""
        group.gtid = group.gtid._replace(decides=False, standalone=False)
        for event in prepared.events():
            if event.kind == events.TABLE_MAP:
                self._map(event, group)
            elif event.kind in events.ROWS:
                self._change(event, group)
            else:
                self._statement(event, group, end)

    def _commit(self, group: Group, timestamp: int, end: Position) -> None:
        self._group = None
        self.reached = end
        if group.skipped:
            return
        for name in group.released:
            self._lose(group, name, _RELEASED)
        parts: _Parts = []
        for name, changed in group.touched.items():
            place = f"{self._source}.{name}"
            if group.is_lost(name):
                changed.drop_transaction()
            elif (rows := changed.end_transaction()) is not None:
                parts.append((place, rows))
        self.has_untrusted_part |= group.is_named and not group.global_id
        # Older releases took what merely calls itself a part, so it can be asked for again.
        if parts or group.damaged or group.global_id or group.is_named:
            head = {
                "source_txid": end.ordinal,
                "place": end.ordinal,
                "commit_time": float(timestamp),
                "log_position": str(self.log_position),
                "transaction_id": group.gtid.text,
                "global_id": group.global_id,
                "participants": group.participants,
                "lost": {
                    f"{self._source}.{name}": damage.loss_of(f"{self._source}.{name}")
                    for name, damage in group.damaged.items()
                },
            }
            self._found.append((parts, head))

    def _lost(self, reason: str) -> LogLost:
        hint = reload_hint(self._source)
        return LogLost(f"source {self._source}: {reason}", subject=self._source, hint=hint)


def _transaction(parts: _Parts, head: dict[str, Any]) -> CapturedTransaction:
    """A transaction with its rows. A table of which a value cannot be represented is lost."""
    rows: dict[str, Rows] = {}
    lost: dict[str, Loss] = dict(head.pop("lost"))
    for name, converted in parts:
        try:
            rows[name] = converted()
        except UnrepresentableValue as error:
            # With other damage it is not enough to correct the row.
            damage = replace(_misfit(error, head["transaction_id"]), is_misfit=name not in lost)
            lost[name] = damage.loss_of(name)
    return CapturedTransaction(rows=rows, lost=lost, **head)


def _misfit(error: UnrepresentableValue, gtid: str) -> Damage:
    return Damage(f"{error.message} (written by transaction {gtid})", hint=error.hint, is_misfit=True)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 120 else line[:117] + "..."

"""What came from the log, put together: rows by table, transactions in order of commit, batches of them.

A prepared transaction is sent when it is prepared and decided later: until then its rows wait here, and every
log position points back to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from rollview.errors import UnrepresentableValue
from rollview.rows import Rows
from rollview.sources.postgres.damage import Damage, combined
from rollview.sources.postgres.pgoutput import End, Relation, Values
from rollview.sources.postgres.position import LogPosition
from rollview.sources.postgres.registration import Registered
from rollview.sources.postgres.types import from_log
from rollview.sources.reload_hint import setup_hint
from rollview.sources.server.changed_rows import ChangedRows
from rollview.sources.source import CapturedTransaction, Loss

GLOBAL_PREFIX = "rollview"
"""Of messages that make a transaction a part of a global one: `GLOBAL_ID:source,source`."""

_Pending = dict[str, Callable[[], Rows]]


def global_part(text: str, source: str) -> tuple[str, tuple[str, ...]]:
    """The global id and the participants that a marker names; nothing if it is not about this source."""
    identity, _, names = text.rpartition(":")
    participants = tuple(sorted({name.strip() for name in names.split(",") if name.strip()}))
    return (identity, participants) if identity and source in participants else ("", ())


class LoggedTable:
    """A captured table in the log: how to find its registered columns among those that are sent."""

    def __init__(self, source: str, table: Registered, spill: Callable[[], Path]) -> None:
        self.name = f"{source}.{table.name}"
        self.damage: Damage | None = None
        self._table = table
        self._pick: Callable[[Values], Any] | None = None
        self._columns = [(column.name, column.type) for column in table.columns]
        self._convert = [from_log(column.type, f"{self.name}.{column.name}") for column in table.columns]
        self._spill = spill
        self.begin_batch()

    def describe(self, relation: Relation) -> None:
        """How rows come from here on. Columns that were added since setup do no harm.

        Of a column that is not what it was, NULL stands in for all values.
        """
        places = {name: (place, kind, typmod) for place, (name, kind, typmod) in enumerate(relation.columns)}
        order, damages = [], []
        for column in self._table.columns:
            place, kind, modifier = places.get(column.name, (-1, 0, 0))
            reason = ""
            if place < 0:
                reason = f"column {column.name} of table {self.name} was dropped or renamed"
            elif (kind, modifier) != (column.type_id, column.modifier):
                reason = f"column {column.name} of table {self.name} has another type than at setup"
            if reason:
                damages.append(Damage(reason, (column.name,)))
            order.append(-1 if reason else place)
        self.damage = combined(damages)
        self._pick = _picker(order, len(relation.columns))

    def begin_batch(self) -> None:
        """From here on rows belong to another batch."""
        self.changed = ChangedRows(self._columns, self._convert, self._spill)

    def add(self, values: Values, count: int) -> None:
        """One row of the present transaction."""
        self.changed.add(values if self._pick is None else self._pick(values), count)


def _picker(order: list[int], width: int) -> Callable[[Values], Any] | None:
    """What takes the values at these places; None if it is all of them, in order."""
    if order == list(range(width)):
        return None
    if -1 in order:
        return lambda values: tuple(None if place < 0 else values[place] for place in order)
    if len(order) == 1:
        only = order[0]
        return lambda values: (values[only],)
    return itemgetter(*order) if order else lambda values: ()


@dataclass(slots=True)
class Transaction:
    """One that is being read. `lost` are tables of which it changed rows that the log does not have."""

    commit: int
    xid: int
    time: float = 0.0
    gid: str = ""
    global_id: str = ""
    participants: tuple[str, ...] = ()
    rows: _Pending = field(default_factory=dict)
    lost: dict[str, Loss] = field(default_factory=dict)

    def lose(self, table: LoggedTable, reason: str) -> None:
        """Changed rows of a table are not there, so the others are of no use; the first reason counts."""
        self._lose(table, Loss(reason, setup_hint(table.name)))

    def lose_rows(self, table: LoggedTable) -> None:
        """A table was emptied, and the log does not say of which rows."""
        reason = f"table {table.name} was truncated"
        self._lose(table, Loss(reason, setup_hint(table.name), is_truncate=True))

    def lose_columns(self, table: LoggedTable, damage: Damage) -> None:
        """Values of some columns are not there; the rows are, without them."""
        known = self.lost.get(table.name)
        if known is None or known.columns:
            columns = dict.fromkeys((*(known.columns if known else ()), *damage.columns))
            reason = known.message if known else damage.reason
            self.lost[table.name] = Loss(reason, setup_hint(table.name), tuple(columns))

    def lose_for(self, table: LoggedTable, error: UnrepresentableValue) -> None:
        """The same because of a value that Spark cannot represent."""
        self._lose(table, _misfit(error, table.name))

    def _lose(self, table: LoggedTable, loss: Loss) -> None:
        known = self.lost.get(table.name)
        if known is None or known.columns:
            self.lost[table.name] = loss
        table.changed.drop_transaction()

    def has_lost(self, table: LoggedTable) -> bool:
        """Whether rows of a table are of no use here."""
        return table.name in self.lost and not self.lost[table.name].columns

    def convert(self) -> dict[str, Rows]:
        """The rows by table. Of one with a value that Spark cannot represent, they are lost."""
        converted = {}
        for name, rows in self.rows.items():
            try:
                converted[name] = rows()
            except UnrepresentableValue as error:
                self.lost[name] = _misfit(error, name)
        return converted


class _Finished(NamedTuple):
    transaction: Transaction
    end: End
    log_position: LogPosition


class Collector:
    """The transactions of a batch, and those that are prepared and in doubt."""

    def __init__(self, source: str, server: str) -> None:
        self._source = source
        self._server = server
        self.tables: dict[int, LoggedTable | None] = {}
        self.prepared: dict[str, Transaction] = {}
        self._finished: list[_Finished] = []

    @property
    def size(self) -> int:
        """How many transactions the batch has so far."""
        return len(self._finished)

    def start_at(self, position: int) -> LogPosition:
        """The log position of a position: it begins where the oldest in-doubt transaction was prepared."""
        if not self.prepared:
            return LogPosition(position, position, self._server)
        start = min(position, *(each.commit for each in self.prepared.values()))
        return LogPosition(position, start, self._server)

    def end_rows(self, transaction: Transaction) -> None:
        """All rows of a transaction have come."""
        for table in self.tables.values():
            if table is not None and (rows := table.changed.end_transaction()) is not None:
                transaction.rows[table.name] = rows

    def finish(self, transaction: Transaction, end: End) -> None:
        """A transaction was committed; one that concerns nobody is passed over."""
        if transaction.rows or transaction.global_id or transaction.lost:
            self._finished.append(_Finished(transaction, end, self.start_at(end.end)))

    def end_batch(self, source_txid_of: Callable[[int], int]) -> tuple[CapturedTransaction, ...]:
        """The batch's transactions; `source_txid_of` widens a transaction id. Rows are converted at once."""
        for table in self.tables.values():
            if table is not None:
                table.changed.finish()
        captured = tuple(self._captured(each, source_txid_of) for each in self._finished)
        for transaction in self.prepared.values():
            transaction.rows = {name: _held(rows) for name, rows in transaction.convert().items()}
        for table in self.tables.values():
            if table is not None:
                table.begin_batch()
        self._finished = []
        return captured

    def _captured(self, each: _Finished, source_txid_of: Callable[[int], int]) -> CapturedTransaction:
        transaction = each.transaction
        source_txid, rows = source_txid_of(transaction.xid), transaction.convert()
        return CapturedTransaction(
            source_txid,
            each.end.time,
            rows,
            str(each.log_position),
            str(source_txid),
            transaction.global_id,
            transaction.participants,
            transaction.lost,
        )


def _misfit(error: UnrepresentableValue, table: str) -> Loss:
    """The loss of a table with a value that Spark cannot represent."""
    return Loss(error.message, f"change the value at the source, then {setup_hint(table)}")


def _held(rows: Rows) -> Callable[[], Rows]:
    return lambda: rows

"""Collects messages of the log: rows by table, transactions in order of commit, batches of them.

A prepared transaction is sent when it is prepared and decided later: until then its rows wait here, and every
log position points back to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rollview.errors import UnrepresentableValue
from rollview.rows import Rows
from rollview.sources.postgres.log.damage import Damage
from rollview.sources.postgres.log.logged_tables import LoggedRelation, LoggedTable, LoggedTables
from rollview.sources.postgres.log.pgoutput import End
from rollview.sources.postgres.position import NO_PARTITIONS, LogPosition
from rollview.sources.source import CapturedTransaction, Loss, setup_hint

_Pending = dict[str, Callable[[], Rows]]


def participants_of(names: str) -> tuple[str, ...]:
    """The sources that the announcement of a part names."""
    return tuple(sorted({name.strip() for name in names.split(",") if name.strip()}))


@dataclass(slots=True)
class Transaction:
    """One that is being read. `lost` are tables of which it changed rows that the log does not have.

    `counted` are the changed rows by the tables' ids; `marked`, by delta, those of which writers say that
    they have made it. `is_named` says that it calls itself a part of a global one in a way that is open to
    everybody, which does not make it one.
    """

    commit: int
    xid: int
    time: float = 0.0
    gid: str = ""
    global_id: str = ""
    participants: tuple[str, ...] = ()
    is_named: bool = False
    rows: _Pending = field(default_factory=dict)
    lost: dict[str, Loss] = field(default_factory=dict)
    counted: Counter[int] = field(default_factory=Counter)
    marked: dict[str, Counter[int]] = field(default_factory=dict)

    @property
    def has_effect(self) -> bool:
        """Whether it concerns anybody."""
        return bool(self.rows or self.global_id or self.lost)

    def note_mark(self, table: LoggedTable, mark: str) -> None:
        """A statement has made its part of a delta, for so many changed rows of a table."""
        changed, rows = mark.split(" ", 2)[:2]
        self.marked.setdefault(table.name, Counter())[int(changed)] += int(rows)

    def is_whole(self, table: LoggedTable) -> bool:
        """Whether a delta was made of all rows of the tables that it was made of.

        It is not where triggers were switched off in between, or failed.
        """
        marked = self.marked.get(table.name, Counter())
        return all(self.counted[each] == rows for each, rows in marked.items())

    def lose_old(self, relation: LoggedRelation) -> None:
        """Old rows are not in the log, so the others are unusable; the first reason counts."""
        reason = f"{relation.shown} was changed while it did not have REPLICA IDENTITY FULL"
        hint = setup_hint(relation.table.name)
        if relation.partition:
            statement = f"ALTER TABLE {relation.partition} REPLICA IDENTITY FULL"
            hint = f"as new partitions do not have it: `{statement}`; then {hint}"
        self._lose(relation.table, Loss(reason, hint))

    def lose_rows(self, table: LoggedTable, reason: str, leaves_empty: bool = False) -> None:
        """A table was emptied or filled in part or as a whole, and the log does not say with which rows."""
        hint = setup_hint(table.name)
        self._lose(table, Loss(reason, hint, is_truncate=True, leaves_empty=leaves_empty))

    def fill(self, table: LoggedTable) -> None:
        """A table that was emptied has got rows again."""
        known = self.lost.get(table.name)
        if known is not None and known.leaves_empty:
            self.lost[table.name] = replace(known, leaves_empty=False)

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
        if known is None or known.columns or (known.is_truncate and loss.leaves_empty):
            self.lost[table.name] = loss
        table.changed.drop_transaction()

    def has_lost(self, table: LoggedTable) -> bool:
        return table.name in self.lost and not self.lost[table.name].columns

    def convert(self) -> dict[str, Rows]:
        """The rows by table. Of one with a value that Spark cannot represent, they are lost."""
        converted = {}
        for name, rows in self.rows.items():
            try:
                converted[name] = rows()
            except UnrepresentableValue as error:
                # With columns that are lost it is not enough to correct the row.
                self.lost[name] = replace(_misfit(error, name), is_misfit=name not in self.lost)
        return converted


class _Finished(NamedTuple):
    transaction: Transaction
    end: End
    log_position: LogPosition


class Collector:
    """The transactions of a batch, and those that are prepared and in doubt."""

    def __init__(self, after: LogPosition, tables: LoggedTables) -> None:
        self._after = after
        self.tables = tables
        self.prepared: dict[str, Transaction] = {}
        self.has_untrusted_part = False
        """Whether a transaction calls itself a part of a global one, and is none."""
        self._finished: list[_Finished] = []

    @property
    def size(self) -> int:
        return len(self._finished)

    @property
    def end(self) -> LogPosition:
        return self._finished[-1].log_position

    def start_at(self, position: int) -> LogPosition:
        """The log position of a position: it begins where the oldest in-doubt transaction was prepared."""
        start = min([position, *(each.commit for each in self.prepared.values())])
        return LogPosition(position, start, self._after.server, self._after.partitions)

    def end_rows(self, transaction: Transaction) -> None:
        """All rows of a transaction have come."""
        for table in self.tables.all():
            if table.mark_place >= 0 and not transaction.is_whole(table):
                table.changed.drop_transaction()
            if (rows := table.changed.end_transaction()) is not None:
                transaction.rows[table.name] = rows

    def finish(self, transaction: Transaction, end: End) -> None:
        """A transaction was committed; one that concerns nobody is passed over.

        Older releases took one that merely calls itself a part, so it can be asked for again.
        """
        self.has_untrusted_part |= transaction.is_named and not transaction.global_id
        if transaction.has_effect or transaction.is_named:
            self._finished.append(_Finished(transaction, end, self.start_at(end.end)))

    def end_batch(
        self, source_txid_of: Callable[[int], int], wanted: Container[int] = ()
    ) -> tuple[CapturedTransaction, ...]:
        """The batch's transactions; `source_txid_of` widens a transaction id. Rows are converted at once.

        One that does nothing is among them only if it is `wanted`.
        """
        self._finished = [
            each
            for each in self._finished
            if each.transaction.has_effect or source_txid_of(each.transaction.xid) in wanted
        ]
        for table in self.tables.all():
            table.changed.finish()
        captured = tuple(self._captured(each, source_txid_of) for each in self._shortened())
        for transaction in self.prepared.values():
            transaction.rows = {name: _held(rows) for name, rows in transaction.convert().items()}
        for table in self.tables.all():
            table.begin_batch()
        self._finished = []
        return captured

    def _shortened(self) -> list[_Finished]:
        """The finished transactions, with partitions, which may be many, only at positions where one may
        stop.

        That is at the end, and before a part of a global transaction.
        """
        if not self._after.partitions:
            return self._finished
        before_part = [bool(each.transaction.global_id) for each in self._finished[1:]]
        return [
            each
            if may_stop
            else each._replace(log_position=each.log_position._replace(partitions=NO_PARTITIONS))
            for each, may_stop in zip(self._finished, [*before_part, True], strict=False)
        ]

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
            place=each.end.end,
        )


def _misfit(error: UnrepresentableValue, table: str) -> Loss:
    """The loss of a table with a value that Spark cannot represent."""
    return Loss(error.message, f"change the value at the source, then {setup_hint(table)}", is_misfit=True)


def _held(rows: Rows) -> Callable[[], Rows]:
    return lambda: rows

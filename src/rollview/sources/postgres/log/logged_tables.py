"""Captured tables in the log: what belongs to them, and how to find their columns among those that are sent.

A partition is sent under its own id. Mostly the log position says whose it is, else the server does. One that
is unknown to both was a partition for a moment only, and then its rows are missing from the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from rollview.sources.changed_rows import ChangedRows
from rollview.sources.deltas import MARK
from rollview.sources.postgres.log.damage import Damage, combined
from rollview.sources.postgres.log.pgoutput import Relation, Values
from rollview.sources.postgres.position import PartitionLink, Partitions
from rollview.sources.postgres.registration import Registered, Registration
from rollview.sources.postgres.structure import keeps_values
from rollview.sources.postgres.types import from_log

FindOwner = Callable[[Relation, Sequence[Registered]], tuple[Sequence[Registered], bool]]
"""Which of some partitioned tables a relation is a partition of, if any. Those of which it may have been one,
and True, if that is no longer known."""


class LoggedTable:
    """A captured table, and what has changed of it in the present batch.

    Of one with deltas that writers make, `mark_place` is the place of the marks in a row, otherwise −1.
    """

    def __init__(self, source: str, table: Registered, spill: Callable[[], Path], deltas: str = "") -> None:
        self.name = f"{source}.{table.name}"
        self.registered = table
        names = [column.name for column in table.columns]
        self.mark_place = names.index(MARK) if table.schema == deltas else -1
        self._columns = [(column.name, column.type) for column in table.columns]
        self._convert = [from_log(column.type, f"{self.name}.{column.name}") for column in table.columns]
        self._spill = spill
        self.begin_batch()

    def begin_batch(self) -> None:
        """From here on rows belong to another batch."""
        self.changed = ChangedRows(self._columns, self._convert, self._spill)


class LoggedRelation:
    """A relation of the log: a captured table, or the `partition` of one, by name.

    `strays` are the tables of which it may have been a partition, if that is not known. Of one that
    `is_watched` it is noted whether old rows of it were changed (`is_disturbed`); before the position
    `empty_until` it can have had none.
    """

    def __init__(self, table: LoggedTable, partition: str = "", strays: Sequence[LoggedTable] = ()) -> None:
        self.table = table
        self.partition = partition
        self.strays = tuple(strays)
        self.damage: Damage | None = None
        self.is_watched = False
        self.is_disturbed = False
        self.empty_until = 0
        self._pick: Callable[[Values], Any] | None = None

    @property
    def shown(self) -> str:
        """As sentences name it."""
        return (
            f"partition {self.partition} of table {self.table.name}"
            if self.partition
            else (f"table {self.table.name}")
        )

    def describe(self, relation: Relation) -> None:
        """How rows come from here on. Columns that were added since setup do no harm.

        Of a column that is not what it was, NULL stands in for all values.
        """
        if self.strays:
            self.damage = Damage(f"it was a partition, {self.partition}, and is none any more")
            return
        places = {name: (place, kind, typmod) for place, (name, kind, typmod) in enumerate(relation.columns)}
        order, damages = [], []
        for column in self.table.registered.columns:
            place, kind, modifier = places.get(column.name, (-1, 0, 0))
            reason = ""
            if place < 0:
                reason = f"column {column.name} of table {self.table.name} was dropped or renamed"
            elif not keeps_values(column, kind, modifier):
                reason = f"column {column.name} of table {self.table.name} has another type than at setup"
            if reason:
                damages.append(Damage(reason, (column.name,)))
            order.append(-1 if reason else place)
        self.damage = combined(damages)
        self._pick = _picker(order, len(relation.columns))

    def add(self, values: Values, count: int) -> None:
        """One row of the present transaction."""
        self.table.changed.add(self._picked(values), count)

    def mark_in(self, values: Values) -> str:
        """The mark in a row of a delta; empty if the row is none."""
        mark = self._picked(values)[self.table.mark_place]
        return mark.decode() if mark else ""

    def _picked(self, values: Values) -> Any:
        return values if self._pick is None else self._pick(values)


def _picker(order: list[int], width: int) -> Callable[[Values], Any] | None:
    """A function that picks the values at these places; None if it is all of them, in order."""
    if order == list(range(width)):
        return None
    if -1 in order:
        return lambda values: tuple(None if place < 0 else values[place] for place in order)
    if len(order) == 1:
        only = order[0]
        return lambda values: (values[only],)
    return itemgetter(*order) if order else lambda values: ()


class LoggedTables:
    """All captured tables of a registration, with the partitions that a log position names.

    `relations` has those that the log has described; None is one that is of no interest. `deltas` is
    the schema of view deltas that writers make. `announcing` are those whose rows say of their transactions
    that they are parts of global ones.
    """

    def __init__(
        self,
        source: str,
        registration: Registration,
        partitions: Partitions,
        spill: Callable[[], Path],
        find_owner: FindOwner,
        deltas: str = "",
        announces: Callable[[Relation], bool] = lambda _: False,
    ) -> None:
        self._source = source
        self._announces = announces
        self._deltas = deltas
        self._spill = spill
        self._find_owner = find_owner
        self._registered = {table.id: table for table in registration.tables.values()}
        self._partitioned = [table for table in self._registered.values() if table.is_partitioned]
        self._links = {
            node: (table, link)
            for table in self._partitioned
            for node, link in links_before(partitions, table).items()
        }
        self._tables: dict[int, LoggedTable] = {}
        self.relations: dict[int, LoggedRelation | None] = {}
        self.announcing: set[int] = set()

    def all(self) -> Iterable[LoggedTable]:
        """The tables that the log has had something of."""
        return self._tables.values()

    @property
    def disturbed(self) -> frozenset[int]:
        """The watched partitions of which old rows were changed."""
        found = self.relations.items()
        return frozenset(node for node, each in found if each is not None and each.is_disturbed)

    def describe(self, relation: Relation) -> None:
        """A relation, before its first change and after every change of its columns."""
        if relation.id not in self.relations:
            self.relations[relation.id] = self._of(relation)
        if (logged := self.relations[relation.id]) is not None:
            logged.describe(relation)

    def _of(self, relation: Relation) -> LoggedRelation | None:
        if relation.id in self._registered:
            return LoggedRelation(self._table(self._registered[relation.id]))
        if self._announces(relation):
            self.announcing.add(relation.id)
            return None
        name = f"{relation.schema}.{relation.name}"
        if relation.id in self._links:
            table, link = self._links[relation.id]
            logged = LoggedRelation(self._table(table), name)
            logged.is_watched, logged.empty_until = bool(link.until), link.until
            return None if link.is_gone else logged
        names = {column for column, _, _ in relation.columns}
        similar = [table for table in self._partitioned if names.issuperset(table.by_name)]
        owners, is_past = self._find_owner(relation, similar) if similar else ((), False)
        if not owners:
            return None
        tables = [self._table(owner) for owner in owners]
        logged = LoggedRelation(tables[0], name, tables if is_past else ())
        logged.is_watched = True
        return logged

    def _table(self, table: Registered) -> LoggedTable:
        if table.id not in self._tables:
            self._tables[table.id] = LoggedTable(self._source, table, self._spill, self._deltas)
        return self._tables[table.id]


def links_before(partitions: Partitions, table: Registered) -> Mapping[int, PartitionLink]:
    """The partitions of a table, as a log position names them.

    If the table was not captured yet at that position, those count that it was registered with.
    """
    return partitions.get(table.id, table.links)

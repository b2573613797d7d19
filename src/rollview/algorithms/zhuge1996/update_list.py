"""UL(T): update messages as the Strobe algorithms read them, and which source states they lead to.

**Source.** zhuge1996 §5.3 (UL, IL, key(U), removal of pairs), §4.1 (source state vectors).
**Symbols.** UL(T) → `changes`; IL(T) → `insertions(changes)`; key(U) → `_key_of`; ss → `StateVector`.
**Deviations.** Tuples of one relation are put into one bag, so that a transaction of thousands of updates
is a handful of operations. A table that occurs twice in a view is two relations, and its updates are
updates of both.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rollview.algebra.bag import Bag, column_getter
from rollview.algebra.expression import Row
from rollview.algebra.history import Change, Transaction
from rollview.algebra.node import Block
from rollview.algebra.view import View
from rollview.algorithms.effects import Compensated, Effect, Install, Process, RowsOf, Spawn, Stored
from rollview.algorithms.key_delete import key_delete, without_duplicates
from rollview.algorithms.source_evaluate import source_evaluate

Relations = Generator[Effect, Any, dict[int, Bag]]


def insertions(changes: Iterable[Change]) -> list[Change]:
    """IL(T)."""
    return [change for change in changes if change.count > 0]


def deletions(changes: Iterable[Change]) -> list[Change]:
    """The updates that are not in IL(T)."""
    return [change for change in changes if change.count < 0]


def without_pairs(block: Block, changes: Sequence[Change]) -> list[Change]:
    """UL(T) without tuples that were first inserted and then deleted; updates of other tables left out.

    A key has at most one tuple at a time, so its insertions and deletions take turns.
    """
    tables = {relation.table.qualified: relation.table for relation in block.relations}
    kept: dict[int, Change] = {}
    inserted: dict[tuple[str, Row], int] = {}
    for place, change in enumerate(changes):
        if change.table not in tables:
            continue
        table = tables[change.table]
        key = (change.table, column_getter(table.columns, table.key)(change.row))
        if change.count > 0:
            inserted[key] = place
        elif key in inserted:
            del kept[inserted.pop(key)]
            continue
        kept[place] = change
    return list(kept.values())


def by_relation(block: Block, changes: Iterable[Change]) -> Relations:
    """For each relation that the changes touch, its changed tuples, each once."""
    rows: dict[str, dict[Row, None]] = {}
    for change in changes:
        rows.setdefault(change.table, {})[change.row] = None
    bags: dict[int, Bag] = {}
    for position, relation in enumerate(block.relations):
        if relation.table.qualified in rows:
            tuples = tuple((row, 1) for row in rows[relation.table.qualified])
            bags[position] = yield RowsOf(relation.columns, tuples, relation)
    return bags


@dataclass
class StateVector:
    """The source state vector that all updates taken so far add up to.

    There is none in the middle of a transaction that is taken update by update.
    """

    last: dict[str, int]
    midway: bool = False

    @classmethod
    def of(cls, view: View) -> StateVector:
        """The first source state."""
        return cls({table.source: 0 for table in view.tables})

    def take(self, transaction: Transaction, whole: bool = True) -> None:
        """Another update, or all of a transaction; `whole` if the transaction ends with it."""
        self.midway = not whole
        if whole:
            self.last[transaction.source] = max(self.last.get(transaction.source, 0), transaction.version)

    def claim(self) -> tuple[tuple[str, int], ...] | None:
        """The vector for `Install`."""
        return None if self.midway else tuple(self.last.items())


# AL, UQS and pending(Q): what Strobe, T-Strobe and G-Strobe remember between messages.
#
# **Source.** zhuge1996 §5.2, Algorithm 1; §5.3, Algorithm 2.
# **Symbols.** MV → the stored view; AL → `ActionList.actions`; UQS → `unanswered`; pending(Q) →
# `Query.pending`; V⟨U⟩ → `source_evaluate` with the relation's rows known; key_delete(MV, U) → `Deletion`;
# insert(MV, A) → `Insertion`.
# **Deviations.** None.


@dataclass(frozen=True)
class Deletion:
    """key_delete(·, U) for deleted tuples of one relation."""

    relation: int
    rows: Bag


@dataclass(frozen=True)
class Insertion:
    """insert(MV, A)."""

    rows: Bag


@dataclass(eq=False)
class Query:
    """Q: the union of V⟨U⟩ for inserted tuples, and the deletions received while it is under way."""

    inserted: Mapping[int, Bag]
    pending: list[Deletion] = field(default_factory=list)


@dataclass
class ActionList:
    """The actions that wait for a moment at which applying all of them gives a consistent view."""

    view: View
    versions: StateVector
    actions: list[Deletion | Insertion] = field(default_factory=list)
    unanswered: list[Query] = field(default_factory=list)

    @property
    def block(self) -> Block:
        """V."""
        return self.view.blocks[0]

    def receive(self, transaction: Transaction, whole: bool = True) -> None:
        """Notes whose updates are being processed."""
        self.versions.take(transaction, whole)

    def delete(self, relation: int, rows: Bag) -> None:
        """A deletion was received: it concerns every query under way, and MV."""
        for query in self.unanswered:
            query.pending.append(Deletion(relation, rows))
        self.actions.append(Deletion(relation, rows))

    def may_update(self) -> bool:
        """Whether applying AL leads to a consistent view: UQS = ∅."""
        return not self.unanswered

    def take(self) -> list[Deletion | Insertion]:
        """AL, which is empty from then on."""
        actions, self.actions = self.actions, []
        return actions


def begin_query(warehouse: ActionList, inserted: Mapping[int, Bag]) -> Generator[Effect, Any, None]:
    """Sends Q on its way; pending(Q) is empty at first."""
    query = Query(inserted)
    warehouse.unanswered.append(query)
    yield Spawn(_evaluate(warehouse, query))


def _evaluate(warehouse: ActionList, query: Query) -> Process:
    """The answer of a query without what was deleted meanwhile is appended to AL."""
    block = warehouse.block
    answer: Bag | None = None
    for relation, rows in query.inserted.items():
        part = yield from source_evaluate(block, {relation: rows})
        answer = part if answer is None else without_duplicates(answer, part)
    assert answer is not None, "a query has at least one inserted tuple"
    compensated = answer
    for deletion in query.pending:
        compensated = key_delete(block, compensated, deletion.relation, deletion.rows)
    warehouse.unanswered.remove(query)
    warehouse.actions.append(Insertion(compensated))
    if query.pending:
        yield Compensated(answer.plus(compensated.negate()))
    yield from update_view(warehouse)


def update_view(warehouse: ActionList) -> Generator[Effect, Any, None]:
    """Applies AL to MV as a single transaction, if this is a moment to do so."""
    if not warehouse.actions or not warehouse.may_update():
        return
    versions, actions = warehouse.versions.claim(), warehouse.take()
    view: Bag = yield Stored(warehouse.view.name)
    for action in actions:
        if isinstance(action, Deletion):
            view = key_delete(warehouse.block, view, action.relation, action.rows)
        else:
            view = without_duplicates(view, action.rows)
    yield Install(warehouse.view.name, view, versions)

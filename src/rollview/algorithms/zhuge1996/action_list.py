"""AL, UQS and pending(Q): what Strobe, T-Strobe and G-Strobe remember between messages.

**Source.** zhuge1996 §5.2, Algorithm 1; §5.3, Algorithm 2.
**Symbols.** MV → the stored view; AL → `ActionList.actions`; UQS → `unanswered`; pending(Q) →
`Query.pending`; V⟨U⟩ → `source_evaluate` with the relation's rows known; key_delete(MV, U) → `Deletion`;
insert(MV, A) → `Insertion`.
**Deviations.** None.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rollview.algebra.bag import Bag
from rollview.algebra.block import Block
from rollview.algebra.history import Transaction
from rollview.algebra.view import View
from rollview.algorithms.effects import Compensated, Effect, Install, Process, Spawn, Stored
from rollview.algorithms.key_delete import key_delete, without_duplicates
from rollview.algorithms.source_evaluate import source_evaluate
from rollview.algorithms.zhuge1996.update_list import StateVector


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
    """The answer of a query without what was deleted meanwhile goes on AL."""
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

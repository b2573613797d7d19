"""T-Strobe (Transaction-Strobe): Strobe with all updates of a source's transaction taken as one.

**Source.** zhuge1996 §5.3, Algorithm 2.

**Guarantees.** Strong in the single-update and source-local scenarios; weak with global transactions, whose
parts it takes for transactions of their own (§5.4).

**Assumes.** What Strobe assumes. A transaction of a source arrives in one message.

**Symbols.** UL(T) → `without_pairs`; IL(T) → `insertions`; Q = ⋃ V⟨U⟩ → `begin_query` with the inserted
tuples of every relation; AL, UQS, pending(Q) → `ActionList`.

**Deviations.** The paper calls the removal of pairs an optimization, but Algorithm 2 needs it: it puts all
deletions of T on AL before the answer, so a tuple that T inserted and deleted again would come back with the
answer to its own insertion. Tuples of one relation are asked for together: one expression per relation of
the union instead of one per tuple. If a transaction inserts into two relations, each expression finds the
tuples that join both insertions, since the other one is there already; the union drops what is found twice.
A modification is a deletion and an insertion in one UL(T), so both reach MV at the same time. A transaction
without insertions asks nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from rollview.algebra.history import Transaction
from rollview.algebra.view import View
from rollview.algorithms.effects import Effect, Process, Receive
from rollview.algorithms.zhuge1996.update_list import (
    ActionList,
    StateVector,
    begin_query,
    by_relation,
    deletions,
    insertions,
    update_view,
    without_pairs,
)


def processes(view: View) -> Iterator[Process]:
    """One process takes transactions as they arrive; each query runs beside it."""
    yield maintain(ActionList(view, StateVector.of(view)))


def maintain(warehouse: ActionList) -> Process:
    """Upon receipt of transactions, processes them in order."""
    while True:
        transaction: Transaction = yield Receive()
        warehouse.receive(transaction)
        yield from process_transaction(warehouse, transaction)


def process_transaction(warehouse: ActionList, transaction: Transaction) -> Generator[Effect, Any, None]:
    """Deletions are appended to AL at once, all insertions together when their query has been answered."""
    updates = without_pairs(warehouse.block, transaction.changes)
    deleted = yield from by_relation(warehouse.block, deletions(updates))
    inserted = yield from by_relation(warehouse.block, insertions(updates))
    for relation, rows in deleted.items():
        warehouse.delete(relation, rows)
    if inserted:
        yield from begin_query(warehouse, inserted)
    yield from update_view(warehouse)

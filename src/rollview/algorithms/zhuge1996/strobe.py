"""Strobe: insertions are asked for, deletions need no question, the view moves when all is quiet.

**Source.** zhuge1996 §5.2, Algorithm 1.

**Guarantees.** Strong in the single-update scenario. It does not know transactions: it takes their updates
one by one and may show the middle of one, so it only converges in the other two scenarios (§5.3, Example 4).

**Assumes.** The view is one block that keeps the key of every relation, and keys are keys at every source
state. Messages of one source arrive in the order in which they were sent, updates and answers alike, none is
lost or repeated, and the warehouse does not crash. An answer shows the state after a prefix of its source's
commits.

**Symbols.** U → a change; MV → the stored view; AL, UQS, pending(Q) → `ActionList`.

**Deviations.** None. The published algorithm holds when a key is used again while a query is under way: the
deletion in pending(Q) also takes away a re-inserted tuple of that key which the answer already shows, but the
re-insertion has a query of its own, and that finds it. By the order of messages, a moment with UQS = ∅ is the
view at exactly the versions received, which is what it claims.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from rollview.algebra.history import Change, Transaction
from rollview.algebra.view import View
from rollview.algorithms.effects import Effect, Process, Receive
from rollview.algorithms.zhuge1996.update_list import (
    ActionList,
    StateVector,
    begin_query,
    by_relation,
    update_view,
)


def processes(view: View) -> Iterator[Process]:
    """One process takes updates as they arrive; each query runs beside it."""
    yield maintain(ActionList(view, StateVector.of(view)))


def maintain(warehouse: ActionList) -> Process:
    """Upon receipt of updates, processes them in order."""
    while True:
        transaction: Transaction = yield Receive()
        for number, change in enumerate(transaction.changes, 1):
            warehouse.receive(transaction, whole=number == len(transaction.changes))
            yield from process_update(warehouse, change)


def process_update(warehouse: ActionList, update: Change) -> Generator[Effect, Any, None]:
    """A deletion is appended to AL at once, an insertion when its query has been answered."""
    rows = yield from by_relation(warehouse.block, [update])
    if update.count < 0:
        for relation, deleted in rows.items():
            warehouse.delete(relation, deleted)
    elif rows:
        yield from begin_query(warehouse, rows)
    yield from update_view(warehouse)

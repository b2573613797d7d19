"""Conventional maintenance: what a warehouse does that has not heard of anomalies.

**Source.** zhuge1996 §1, Example 1, after Blakeley, Larson and Tompa (1986).
**Guarantees.** Nothing once an update commits while another one's query is under way. A baseline to learn
from: it is never chosen for a view. A view of one relation has no queries, so it converges.
**Assumes.** The view is one block that keeps the key of every relation.
**Deviations.** None.
"""

from __future__ import annotations

from collections.abc import Iterator

from rollview.algebra.bag import Bag
from rollview.algebra.history import Transaction
from rollview.algebra.view import View
from rollview.algorithms.effects import Install, Process, Receive, RowsOf, Spawn, Stored
from rollview.algorithms.key_delete import key_delete
from rollview.algorithms.source_evaluate import source_evaluate


def live_refusal(view: View) -> str:
    """Why not even convergence can be promised to a view; empty if it can."""
    if len(view.blocks[0].relations) == 1:
        return ""
    return (
        "it never corrects an answer, so what commits while a query is under way can leave the view wrong for"
        " good (zhuge1996, Example 1); only a view of one table has no queries, and converges"
    )


def processes(view: View) -> Iterator[Process]:
    """One process that takes updates as they arrive; each insertion's query runs beside it."""
    yield maintain(view)


def maintain(view: View) -> Process:
    """Deletions are applied at once, insertions when their query has been answered."""
    block = view.blocks[0]
    while True:
        transaction: Transaction = yield Receive()
        for change in transaction.changes:
            for position, relation in enumerate(block.relations):
                if relation.table.qualified != change.table:
                    continue
                rows: Bag = yield RowsOf(relation.columns, ((change.row, abs(change.count)),), relation)
                if change.count > 0:
                    yield Spawn(insert(view, position, rows))
                else:
                    state: Bag = yield Stored(view.name)
                    yield Install(view.name, key_delete(block, state, position, rows))


def insert(view: View, position: int, rows: Bag) -> Process:
    """Adds whatever the sources answer, at whatever states they answered it."""
    answer = yield from source_evaluate(view.blocks[0], {position: rows})
    state: Bag = yield Stored(view.name)
    yield Install(view.name, state.plus(answer).net_effect())

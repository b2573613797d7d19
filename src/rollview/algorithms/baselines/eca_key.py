"""ECA-Key: where the view keeps all keys, deletions need no query and insertions no compensation.

**Source.** Zhuge, Garcia-Molina, Hammer, Widom, SIGMOD 1995, the variant of ECA for views with keys, which
zhuge1996 §1 and Figure 2 compare with. That text is not among the project's papers.
**Guarantees.** Strong for single-update and source-local transactions of one source on a fifo network; so
also if they are parts of global ones.
**Assumes.** As `eca`, and the view keeps the key of every relation: a row occurs once, and a row that two
insertions both find is the same row.
**Symbols.** U → a change; Q = V⟨U⟩ → `Insertion`; UQS → `unanswered`; COLLECT → `collected`, which here is
the working copy of MV; key-delete → `key_delete`.
**Deviations.** In the usual text a deletion only applies key-delete to COLLECT. If the deleted
row is the very one that an open query carries, its answer then brings the row back, since the source joins
whatever row it is sent. So a deletion also withdraws the query of the row that it deletes. zhuge1996's
Strobe closes the same gap with pending(Q); here only that one row needs it, because one source answers a
query at one state, after every deletion that arrived before the answer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from rollview.algebra.bag import Bag
from rollview.algebra.dependencies import keeps_keys
from rollview.algebra.expression import Row
from rollview.algebra.history import Change, Transaction
from rollview.algebra.node import Block
from rollview.algebra.view import View
from rollview.algorithms.baselines import eca
from rollview.algorithms.effects import Effect, Install, Process, Receive, RowsOf, Spawn, Stored
from rollview.algorithms.key_delete import key_delete
from rollview.algorithms.zhuge1996.update_list import StateVector


def refusal(view: View) -> str:
    """Why a view cannot be served; empty if it can."""
    if reason := eca.refusal(view):
        return reason
    if view.block is not None and not keeps_keys(view.block):
        return "the view does not keep the key of every relation"
    return ""


def processes(view: View) -> Iterator[Process]:
    """One process that takes updates as they arrive; each insertion's query runs beside it."""
    yield maintain(view)


@dataclass(frozen=True, eq=False)
class Insertion:
    """A query V⟨U⟩: the inserted row in place of its relation."""

    position: int
    row: Row
    rows: Bag


@dataclass(eq=False)
class Maintenance:
    """The control state that the processes of a view share."""

    collected: Bag
    versions: StateVector
    unanswered: list[Insertion] = field(default_factory=list)


def maintain(view: View) -> Process:
    """Deletions act on COLLECT at once; insertions are asked for."""
    block = view.blocks[0]
    stored: Bag = yield Stored(view.name)
    state = Maintenance(stored, StateVector.of(view))
    while True:
        transaction: Transaction = yield Receive()
        state.versions.take(transaction)
        sent = []
        for change in transaction.changes:
            sent += yield from receive_update(block, state, change)
        for insertion in sent:
            # The transaction itself may have deleted the row again.
            if insertion in state.unanswered:
                yield Spawn(query(view, state, insertion))
        yield from install_when_quiet(view, state)


def receive_update(
    block: Block, state: Maintenance, change: Change
) -> Generator[Effect, Any, list[Insertion]]:
    """The queries that a change asks for, one for each occurrence of its table; none for a deletion."""
    insertions = []
    for position, relation in enumerate(block.relations):
        if relation.table.qualified != change.table:
            continue
        rows: Bag = yield RowsOf(relation.columns, ((change.row, abs(change.count)),), relation)
        if change.count > 0:
            insertions.append(Insertion(position, change.row, rows))
        else:
            state.collected = key_delete(block, state.collected, position, rows)
            withdraw(state, position, change.row)
    state.unanswered.extend(insertions)
    return insertions


def withdraw(state: Maintenance, position: int, row: Row) -> None:
    """Nobody waits any longer for the query of a row that has been deleted meanwhile."""
    state.unanswered[:] = [
        insertion for insertion in state.unanswered if (insertion.position, insertion.row) != (position, row)
    ]


def query(view: View, state: Maintenance, insertion: Insertion) -> Process:
    """An insertion's query; its answer is added to COLLECT without duplicates."""
    answer = yield from eca.evaluate_at_source(view.blocks[0], {insertion.position: insertion.rows})
    if insertion not in state.unanswered:
        return
    state.unanswered.remove(insertion)
    state.collected = state.collected.plus(answer).distinct(answer.columns)
    yield from install_when_quiet(view, state)


def install_when_quiet(view: View, state: Maintenance) -> Generator[Effect, Any, None]:
    """When UQS is empty, MV becomes COLLECT."""
    if not state.unanswered:
        yield Install(view.name, state.collected, state.versions.claim())

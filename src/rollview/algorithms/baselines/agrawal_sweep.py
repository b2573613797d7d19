"""SWEEP: one update at a time, one relation at a time, errors taken out as soon as they are seen.

**Source.** Agrawal, El Abbadi, Singh, Yurek, SIGMOD 1997, the first of its two algorithms, which sze2000
(report §2.1, §2.3.2, §6) and salem2000 (§6) compare with. That text is not among the project's papers; the
steps are as the literature gives them. rollview's own `sweep` is another algorithm.
**Guarantees.** Complete for single-update and source-local transactions of many sources, on a fifo network;
weak for global ones, whose parts it installs one by one.
**Assumes.** Messages of one source arrive in the order they were sent, none is lost, and the versions that
an answer saw are a prefix of its source's commits. Then an update of a relation has interfered with an
answer exactly if it arrived before the answer and waits in the queue. No keys.
**Symbols.** UpdateMessageQueue → `UpdateMessageQueue`; LogUpdates → `log_updates`; UpdateView →
`update_view`; ViewChange(ΔR, i) → `view_change`; ΔV → `rows` after a step, TempView → before it.
**Deviations.** The sources send their matching rows, and the join with ΔV is made at the warehouse. The
paper has one relation at each source; here a source may hold several and is asked once for each, and a
transaction is one ΔR per relation that it touches. The ΔR not yet begun stay in the queue, so they are
taken out of the answers like any other later update (the telescoping sum), and the view is installed after
the last one. Neighbours in the view's order need not share an edge: then the whole relation is asked for,
as sze2000 report §4.1 criticises. Left and right could be swept at once; they are not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from rollview.algebra.bag import Bag
from rollview.algebra.expression import conjunction
from rollview.algebra.history import Transaction
from rollview.algebra.join_graph import JoinStep, SubQuery, access_path
from rollview.algebra.node import Block
from rollview.algebra.view import View
from rollview.algorithms.effects import (
    Answer,
    Ask,
    Compensated,
    Execute,
    Install,
    Process,
    Receive,
    Spawn,
    Stored,
)
from rollview.algorithms.source_evaluate import Steps, join_known, question_for, relation_deltas
from rollview.algorithms.zhuge1996.update_list import StateVector


def refusal(view: View) -> str:
    """Why a view cannot be served; empty if it can."""
    return "" if view.block is not None else "it maintains select-project-join views only"


def processes(view: View) -> Iterator[Process]:
    """One process logs updates; another one works through the queue while there is something in it."""
    yield log_updates(view, update_view)


@dataclass(eq=False)
class Update:
    """A transaction in the queue: for each relation its rows, as an answer would show them.

    A ΔR is taken out when its view change begins.
    """

    transaction: Transaction
    deltas: dict[int, Bag]


@dataclass(eq=False)
class UpdateMessageQueue:
    """Updates in order of arrival; the first one is the one in work, if `working`."""

    versions: StateVector
    updates: deque[Update] = field(default_factory=deque)
    working: bool = False

    def take(self) -> tuple[tuple[str, int], ...] | None:
        """Removes the first update; the versions of those that were removed."""
        self.versions.take(self.updates.popleft().transaction)
        return self.versions.claim()

    def interfering(self, position: int) -> Bag | None:
        """ΔR of all updates to a relation that have arrived and wait; None if there are none."""
        found: Bag | None = None
        for update in self.updates:
            if position in update.deltas:
                delta = update.deltas[position]
                found = delta if found is None else found.plus(delta)
        return found


def log_updates(view: View, work: Callable[[View, UpdateMessageQueue], Process]) -> Process:
    """Appends every update to the queue, at once, so that the queue shows what came before an answer."""
    block = view.blocks[0]
    queue = UpdateMessageQueue(StateVector.of(view))
    while True:
        transaction: Transaction = yield Receive()
        deltas = yield from relation_deltas(block, transaction)
        local = {position: join_known(block, {position: rows}) for position, rows in deltas.items()}
        queue.updates.append(Update(transaction, local))
        if not queue.working:
            queue.working = True
            yield Spawn(work(view, queue))


def update_view(view: View, queue: UpdateMessageQueue) -> Process:
    """One view change and one new state per update, in order of arrival."""
    block = view.blocks[0]
    while queue.updates:
        deltas = queue.updates[0].deltas
        state: Bag = yield Stored(view.name)
        while deltas:
            position = min(deltas)
            rows = yield from view_change(block, position, deltas.pop(position), queue)
            state = state.plus(rows.project(block.projection))
        yield Install(view.name, state.net_effect(), queue.take())
    queue.working = False


def view_change(block: Block, start: int, delta: Bag, queue: UpdateMessageQueue) -> Steps:
    """ΔV of one ΔR: the relations to its left, one by one, then those to its right."""
    rows = delta
    if len(block.relations) > 1:
        yield Execute()
    for join_step in left_then_right(block, start, 0, len(block.relations) - 1):
        rows = yield from join_next(block, rows, join_step, queue)
    return rows


def join_next(block: Block, rows: Bag, join_step: JoinStep, queue: UpdateMessageQueue) -> Steps:
    """ΔV ⋈ R, asked of R's source, without the error A − (A at the state that is needed) = TempView ⋈ ΔR."""
    sub_query = SubQuery(block.relations[join_step.relation].table.source, (join_step,))
    answers: tuple[Answer[Any], ...] = yield Ask((question_for(block, sub_query, rows),))
    condition = conjunction(join_step.conditions)
    answer = rows.join(answers[0].rows[0], join_step.on, condition)
    interfering = queue.interfering(join_step.relation)
    if interfering is None:
        return answer
    error = rows.join(interfering, join_step.on, condition)
    yield Compensated(error)
    return answer.plus(error.negate()).net_effect()


@lru_cache(maxsize=4096)
def left_then_right(block: Block, start: int, left: int, right: int) -> tuple[JoinStep, ...]:
    """The steps from one relation leftwards to `left`, then rightwards to `right`."""
    order = (start, *range(start - 1, left - 1, -1), *range(start + 1, right + 1))
    joins = access_path(block, *order).known[1:]
    return tuple(
        replace(join_step, parent=start if join_step.on else None, shipped=True) for join_step in joins
    )

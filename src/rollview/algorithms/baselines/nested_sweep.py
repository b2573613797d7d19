"""Nested SWEEP: updates that interfere with a view change are folded into it.

**Source.** Agrawal, El Abbadi, Singh, Yurek, SIGMOD 1997, the second of its two algorithms, which sze2000
(report §6) compares with. That text is not among the project's papers; the steps are as the literature
gives them.
**Guarantees.** Strong for single-update and source-local transactions of many sources, on a fifo network;
weak for global ones. At most as many questions as SWEEP, fewer when updates interfere.
**Assumes.** As `agrawal_sweep`. It ends a view change only when no step meets a new update; the paper's
way out, to stop folding after a while, is not needed in runs that end.
**Symbols.** ViewChange(ΔR, i, Left, Right) → `view_change`, with `span` for Left and Right; the queue is that
of `agrawal_sweep`.
**Deviations.** The paper has one relation at each source and a ΔR of one relation; here a source may hold
several and a transaction may touch several. Folding still never lets an update overtake an earlier one of its
source, nor splits a transaction: a folded update is swept over the whole span that the rows have, and what is
outside of the span is still to come, so each relation is asked again after the fold, and whatever waited in
the queue by then is met and folded in turn. The installed updates are always a prefix of the order of
arrival.
"""

from __future__ import annotations

from collections.abc import Iterator

from rollview.algebra.bag import Bag, keep
from rollview.algebra.node import Block
from rollview.algebra.view import View
from rollview.algorithms.baselines.agrawal_sweep import (
    UpdateMessageQueue,
    join_next,
    left_then_right,
    log_updates,
    refusal,
)
from rollview.algorithms.effects import Execute, Install, Process, Stored
from rollview.algorithms.source_evaluate import Steps

__all__ = ["processes", "refusal"]


def processes(view: View) -> Iterator[Process]:
    """One process logs updates; another one works through the queue while there is something in it."""
    yield log_updates(view, update_view)


def update_view(view: View, queue: UpdateMessageQueue) -> Process:
    """One new state for the first update in the queue and all that were folded into its view change."""
    block = view.blocks[0]
    while queue.updates:
        deltas = queue.updates[0].deltas
        state: Bag = yield Stored(view.name)
        while deltas:
            position = min(deltas)
            whole = (0, len(block.relations) - 1)
            rows = yield from view_change(block, position, deltas.pop(position), whole, queue)
            state = state.plus(rows.project(block.projection))
        shown = queue.take()
        while queue.updates and not queue.updates[0].deltas:
            shown = queue.take()
        yield Install(view.name, state.net_effect(), shown)
    queue.working = False


def view_change(
    block: Block, start: int, delta: Bag, span: tuple[int, int], queue: UpdateMessageQueue
) -> Steps:
    """The effect of ΔR, and of every update met on the way, on the join of a span of relations.

    After each step the rows span the relations from `low` to `high`. An update that the step has met is swept
    over just these, and continues together with the rows.
    """
    rows = delta
    low = high = start
    if span != (start, start):
        yield Execute()
    for join_step in left_then_right(block, start, *span):
        rows = yield from join_next(block, rows, join_step, queue)
        low, high = min(low, join_step.relation), max(high, join_step.relation)
        met = fold(queue, join_step.relation)
        if met is not None:
            nested = yield from view_change(block, join_step.relation, met, (low, high), queue)
            rows = rows.plus(nested.project(keep(rows.columns))).net_effect()
    return rows


def fold(queue: UpdateMessageQueue, position: int) -> Bag | None:
    """Takes the ΔR of all waiting updates to a relation out of the queue; None if there are none."""
    folded = queue.interfering(position)
    for update in queue.updates:
        update.deltas.pop(position, None)
    return folded

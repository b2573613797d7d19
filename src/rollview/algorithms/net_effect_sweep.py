"""The sweep over the net effect of an interval: all of it is taken as one transaction.

**Source.** salem2000 equation 2 between the two ends of an interval; beyer2000 §5 for the net effect: what
comes and goes inside of it is never looked up, and each key of the view changes at most once, by one row that
goes and one that comes.

**Guarantees.** Strong (zhuge1996 §4.2): every state that is shown is one of the sources', in their order; not
all of them are.

**Assumes.** What the sweep assumes. All relations go through the same intervals.

**Deviations.** Relations for which the view itself answers come first in equation 2 (`kept_keys`). The states
inside of an interval cannot be told afterwards, so what is published says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce

from rollview.algebra.bag import Bag
from rollview.algebra.block import Block
from rollview.algebra.history import CSN
from rollview.algebra.view import View
from rollview.algorithms.algorithm import one_position
from rollview.algorithms.effects import (
    ForwardQuery,
    Interval,
    NextInterval,
    Process,
    Publish,
)
from rollview.algorithms.forward import Forward
from rollview.algorithms.kept_keys import answered_by_view
from rollview.algorithms.sweep import Steps, changed_rows, join_others


def processes(view: View) -> Iterator[Process]:
    """One process for the view."""
    for query in one_position(view):
        yield propagate(view, query)


def propagate(view: View, query: ForwardQuery) -> Process:
    """Publishes what each interval did to the view, at its end, forever."""
    while True:
        interval: Interval = yield NextInterval(query)
        deltas: list[Bag] = []
        for number, block in enumerate(view.blocks):
            shown = "" if view.block is None else view.name
            delta = yield from _evaluate(block, interval, shown)
            deltas.append(view.root.lift(number, delta, CSN))
        yield Publish(((query, interval.upto),), _total(deltas), as_one=interval)


def _evaluate(block: Block, interval: Interval, shown: str) -> Steps:
    """What an interval did to a block: first the relations for which the view itself answers."""
    deltas: list[Bag] = []
    settled: set[int] = set()
    waiting: list[tuple[Forward, Bag]] = []
    for position in range(len(block.relations)):
        query = Forward(block, position, interval, as_one=True, view=shown)
        rows = yield from changed_rows(query)
        so_far = _total(deltas) if deltas else None
        answered = None if rows.is_empty() else (yield from answered_by_view(query, rows, so_far))
        if answered is None:
            waiting.append((query, rows))
        else:
            settled.add(position)
            deltas.append(answered)
    for query, rows in waiting:
        deltas.append((yield from join_others(replace(query, settled=frozenset(settled)), rows)))
    return _total(deltas)


def _total(deltas: Sequence[Bag]) -> Bag:
    """All of them together. Those that are known to be empty do not even have types."""
    some = [delta for delta in deltas if not delta.has_no_rows] or deltas[:1]
    return reduce(lambda one, other: one.plus(other), some)

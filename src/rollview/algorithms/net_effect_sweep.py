"""The sweep over the net effect of an interval: all of it is taken as one transaction.

**Source.** salem2000 equation 2 between the two ends of an interval; beyer2000 §5 for the net effect: what
comes and goes inside of it is never looked up, and each key of the view changes at most once, by one row that
goes and one that comes.

**Guarantees.** Strong (zhuge1996 §4.2): every state that is shown is one of the sources', in their order; not
all of them are.

**Assumes.** What the sweep assumes. All relations go through the same intervals.

**Deviations.** Relations for which the view itself answers come first in equation 2 (`kept_keys`). The states
inside of an interval are not known afterwards, so what is published says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from rollview.algebra.bag import Bag
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
from rollview.algorithms.sweep import evaluate_step, total


def processes(view: View) -> Iterator[Process]:
    """One process for the view."""
    for query in one_position(view):
        yield propagate(view, query)


def propagate(view: View, query: ForwardQuery) -> Process:
    """Publishes what each interval did to the view, at its end, forever."""
    while True:
        interval: Interval = yield NextInterval(query)
        shown = "" if view.block is None else view.name
        deltas: list[Bag] = []
        for number, block in enumerate(view.blocks):
            intervals = [interval] * len(block.relations)
            delta = yield from evaluate_step(block, intervals, shown, as_one=True)
            deltas.append(view.root.lift(number, delta, CSN))
        yield Publish(((query, interval.upto),), total(deltas), as_one=interval)

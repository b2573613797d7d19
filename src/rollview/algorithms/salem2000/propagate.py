"""Propagate: ComputeDelta for one interval after the other, forever.

**Source.** salem2000 §3.3, Figure 5; Theorem 4.2.

**Guarantees.** Complete (zhuge1996 §4.2) in all three scenarios: consecutive timed delta tables add up to one
(Lemma 4.2), so the view can be rolled to every csn up to the high-water mark.

**Assumes.** What `execute` assumes.

**Symbols.** t_cur → the position of the block, which is the high-water mark; δ → the length of the interval
that `NextInterval` gives, the driver's policy; ComputeDelta → `compute`.

**Deviations.** The loop takes the computation as an argument, because the synchronous expansions of §3.1 need
the same one. It moves t_cur together with the delta, in one atomic step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rollview.algebra.history import CSN
from rollview.algebra.node import Block
from rollview.algebra.view import View
from rollview.algorithms.effects import ForwardQuery, Interval, NextInterval, Process, Publish
from rollview.algorithms.salem2000.compute_delta import positions, view_delta
from rollview.algorithms.salem2000.execute import Steps

Computation = Callable[[Block, Interval], Steps]
"""How to compute the timed delta of a block for an interval."""


def processes(view: View) -> Iterator[Process]:
    """One process per block."""
    for query in positions(view):
        yield propagate(view, query, view_delta)


def propagate(view: View, query: ForwardQuery, compute: Computation) -> Process:
    """Publishes the view delta of a block, interval by interval, forever."""
    block = view.blocks[query.block]
    while True:
        interval: Interval = yield NextInterval(query)
        delta = yield from compute(block, interval)
        yield Publish(((query, interval.upto),), view.root.lift(query.block, delta, CSN))

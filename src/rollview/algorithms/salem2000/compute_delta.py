"""ComputeDelta: asynchronous propagation with recursive compensation.

**Source.** salem2000 §3.2, Figure 4; timestamps §3.3; Theorem 4.1.

**Guarantees.** The delta is a timed delta table (Definition 4.2): it rolls the view between any two csn of
its interval. The driver is therefore complete (zhuge1996 §4.2) in all three scenarios.

**Assumes.** What `execute` assumes. Execution times never go back and are not before t_new.

**Symbols.** Q → `query`; τ_old → `old`; t_new → `new`; Q′ → `forward`; t_exec → `executed`;
τ_intended → `intended`.

**Deviations.** None in ComputeDelta. Figure 4 leaves open who calls it. The driver makes one call for all
that is new: the interval reaches to the newest csn. All of a call is published at once, so a crash repeats
the whole call.
"""

from __future__ import annotations

from collections.abc import Iterator

from rollview.algebra.bag import Bag
from rollview.algebra.history import CSN
from rollview.algebra.node import Block
from rollview.algebra.view import View
from rollview.algorithms.effects import ForwardQuery, Interval, Newest, NextInterval, Process, Publish
from rollview.algorithms.salem2000.execute import PropagationQuery, Steps, Times, execute, total, view_query


def processes(view: View) -> Iterator[Process]:
    """One process per block."""
    for query in positions(view):
        yield refresh(view, query)


def positions(view: View) -> Iterator[ForwardQuery]:
    """One position per block: all its relations are propagated together."""
    for number in range(len(view.blocks)):
        yield ForwardQuery(view.name, number)


def refresh(view: View, query: ForwardQuery) -> Process:
    """One call of ComputeDelta for all that is new, whenever there is something new."""
    block = view.blocks[query.block]
    while True:
        interval: Interval = yield NextInterval(query)
        newest: int = yield Newest()
        delta = yield from view_delta(block, Interval(interval.after, newest))
        yield Publish(((query, newest),), view.root.lift(query.block, delta, CSN))


def view_delta(block: Block, interval: Interval) -> Steps:
    """V_{a,b} = ComputeDelta(V, [a, …, a], b)."""
    old = (interval.after,) * len(block.relations)
    return (yield from compute_delta(block, view_query(block), old, interval.upto))


def compute_delta(block: Block, query: PropagationQuery, old: Times, new: int) -> Steps:
    """Q_{old,new}: what the query's base tables did to it from `old` to `new`, with timestamps."""
    results: list[Bag] = []
    for i, interval in enumerate(query.deltas):
        if interval is None and old[i] < new:
            forward = query.with_delta(i, Interval(old[i], new))
            rows, executed = yield from execute(block, forward)
            results.append(rows)
            if forward.has_base_tables:
                # By the method of equation 2, tables left of i are meant as of old, tables right of i as
                # of new. They were seen as of the execution: compensate back.
                intended = (*old[:i], new, *(new for _ in old[i + 1 :]))
                results.append((yield from compute_delta(block, forward.negated(), intended, executed)))
    return (yield from total(block, results))

"""Rolling propagation: every relation has its own interval, and compensation is put off and combined.

**Source.** salem2000 §3.4, Figure 10; Theorem 4.3.

**Guarantees.** Complete (zhuge1996 §4.2) in all three scenarios: up to the least t_comp, the view delta is a
timed delta table.

**Assumes.** What `execute` assumes. Execution times never go back. The view was loaded at csn 0, unless a
control record says otherwise.

**Symbols.** t_fwd, t_comp, querylist → `Progress` in `query_lists`; t_e → `executed`; δ → what `NextInterval`
gives; δ′ → the width of a strip; τ_d → `back_to` and what follows it. In the text below a row is a point
(t₁ … tₙ) of Figures 6 to 9: tᵢ is the csn of the change to Rⁱ that it stems from, and eᵢ is when the forward
query with that change was executed.

**Deviations.** In Figure 10
- t_fwd[i] moves inside the repeat loop only, so it would never move for i = 1. It moves in every iteration.
- the call of ComputeDelta lacks its sign: compensation is subtracted.
- CompInterval and CompTime do not say what holds if no listed query was executed after t. The interval is
  unbounded then, and the compensation goes back to t_fwd, where the next forward query will begin.
- a smallest execution time may belong to several queries here, as times are csn and nothing may have been
  committed in between. The oldest one is meant; any other leaves an overlap uncompensated.
- lists are pruned when an iteration begins. Here it is when the one before ends: the next one may have to
  wait for transactions, and meanwhile the high-water mark would lag behind what is known.
- for n > 2 and 1 < i < n, the printed call compensates too much. A query of a lower relation Rʲ saw the
  relations behind Rⁱ only up to eⱼ, but the call compensates for it in all rows up to t_e. Rows with
  tᵢ ≤ eⱼ < tₖ ≤ t_e for some k > i are compensated though they were never counted twice, so Theorem 4.3 does
  not hold for the printed form. Smallest case: R¹_{0,1} is executed at 2, R²_{0,2} at 3, and the row
  (1, 2, 3) ends with a net count of 0. The compensation is therefore cut into layers at the execution times
  of lower queries, and in each layer it goes back only to the queries that saw it. For i = n there is one
  layer, so nothing differs from the print for n = 2. (k < i does no harm: if tₖ is the latest, then Rᵏ's
  own query saw the row, and its share alone decides the stamp, min(tᵢ, tₖ).)
- all of an iteration is published in one atomic step, and with it the state that must survive a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import pairwise
from typing import Any

from rollview.algebra.bag import Bag
from rollview.algebra.history import CSN
from rollview.algebra.node import Block
from rollview.algebra.view import View
from rollview.algorithms.effects import Effect, ForwardQuery, Interval, NextInterval, Process, Publish, Recall
from rollview.algorithms.salem2000.compute_delta import compute_delta
from rollview.algorithms.salem2000.execute import Steps, execute, total, view_query
from rollview.algorithms.salem2000.query_lists import (
    ListedQuery,
    Progress,
    advanced,
    comp_interval,
    comp_time,
    execution_times,
    initial_progress,
    prune_query_lists,
    with_forward,
    with_query,
)

Layers = Callable[[Progress, int, Interval, bool], list[tuple[int, int]]]
"""How a compensation is cut: `layers`, or `one_layer` as the figure has it."""


def processes(view: View) -> Iterator[Process]:
    """One process per block. They share the control record, which is one for the view."""
    control: dict[int, Progress] = {}
    for number in range(len(view.blocks)):
        yield rolling_propagate(view, number, control, layers)


def processes_as_printed(view: View) -> Iterator[Process]:
    """The same without layers, to show what that does for three relations and more. Never for real views."""
    control: dict[int, Progress] = {}
    for number in range(len(view.blocks)):
        yield rolling_propagate(view, number, control, one_layer)


def rolling_propagate(view: View, number: int, control: dict[int, Progress], cut: Layers) -> Process:
    """Publishes the view delta of a block, one forward query with its compensation at a time, forever."""
    block = view.blocks[number]
    recalled: dict[int, Progress] | None = yield Recall(view.name)
    control.update({other: kept for other, kept in (recalled or {}).items() if other not in control})
    progress = control.setdefault(number, initial_progress(len(block.relations), 0))
    while True:
        i = progress.forward.index(min(progress.forward))
        query = ForwardQuery(view.name, number, i)
        interval: Interval = yield NextInterval(query, after=progress.forward[i])
        delta, progress = yield from roll(block, i, interval, progress, cut)
        control[number] = progress = prune_query_lists(progress)
        moves = tuple(
            (ForwardQuery(view.name, number, position), time)
            for position, time in enumerate(progress.compensated)
        )
        yield Publish(moves, view.root.lift(number, delta, CSN), dict(control))


def replayed(progress: Progress, intervals: Mapping[int, Interval], executed: int) -> Progress:
    """The state of a block's process after these intervals, by relation: it depends on no data."""
    left = dict(intervals)
    while (interval := left.pop(progress.forward.index(min(progress.forward)), None)) is not None:
        i = progress.forward.index(min(progress.forward))
        progress = advanced(progress, i, Interval(progress.forward[i], interval.upto), executed)
    return progress


def roll(
    block: Block, i: int, interval: Interval, progress: Progress, cut: Layers
) -> Generator[Effect, Any, tuple[Bag, Progress]]:
    """One iteration: the forward query for Rⁱ, and the compensation that it owes to lower relations."""
    delta, executed = yield from execute(block, view_query(block).with_delta(i, interval))
    query = ListedQuery(interval, executed)
    if i < len(block.relations) - 1:
        progress = with_query(progress, i, query)
    if i > 0:
        delta = delta.plus((yield from compensate(block, i, query, progress, cut)))
    return delta, with_forward(progress, i, interval.upto)


def compensate(block: Block, i: int, query: ListedQuery, progress: Progress, cut: Layers) -> Steps:
    """Takes back what a forward query of Rⁱ shares with the forward queries of R¹ to Rⁱ⁻¹.

    A layer holds the rows whose latest change is after `lower`, up to `upper`: all rows up to `upper`, less
    those up to `lower`.
    """
    behind = len(block.relations) - i
    results: list[Bag] = []
    for strip in strips(progress, i, query.interval):
        shared = view_query(block).with_delta(i, strip).negated()
        for lower, upper in cut(progress, i, Interval(strip.after, query.executed), behind > 1):
            back_to = tuple(comp_time(progress, j, lower) for j in range(i))
            results.append((yield from compute_delta(block, shared, back_to + (upper,) * behind, upper)))
            if lower > strip.after:
                times = back_to + (lower,) * behind
                results.append((yield from compute_delta(block, shared.negated(), times, lower)))
    return (yield from total(block, results))


def strips(progress: Progress, i: int, interval: Interval) -> Iterator[Interval]:
    """The interval cut where the region to compensate for has a corner (the repeat loop of Figure 10)."""
    time = interval.after
    while time < interval.upto:
        width = min(interval.upto - time, comp_interval(progress, i, time))
        yield Interval(time, time + width)
        time += width


def layers(progress: Progress, i: int, span: Interval, has_more: bool) -> list[tuple[int, int]]:
    """The span cut at the execution times of lower queries, if there are more relations behind Rⁱ."""
    cuts = execution_times(progress, i, span.after) if has_more else []
    return list(pairwise([span.after, *(cut for cut in cuts if cut < span.upto), span.upto]))


def one_layer(progress: Progress, i: int, span: Interval, has_more: bool) -> list[tuple[int, int]]:  # noqa: ARG001
    """The span as a whole, whatever is behind Rⁱ."""
    return [(span.after, span.upto)]

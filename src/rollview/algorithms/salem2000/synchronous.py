"""Synchronous propagation: the two expansions that see the base tables at the ends of the interval.

**Source.** salem2000 §3.1, equation 1 (2ⁿ − 1 queries, all at t_b) and equation 2 (n queries, tables left of
the delta table at t_a, those right of it at t_b).

**Guarantees.** Complete (zhuge1996 §4.2) in all three scenarios, as driven here.

**Assumes.** What `execute` assumes. The sources need no memory: `align` rolls what they answer back.

**Symbols.** (t_a, t_b] → `interval`.

**Deviations.** §3.1 has no timestamps, so its deltas are right at the ends of an interval only. With minimum
timestamps (§3.3) this becomes better for one form and not for the other. Call S the relations whose tuples in
a joined row changed inside the interval; the row must be stamped with the latest of S.
- Equation 1 has every such row once for each non-empty subset of S, with alternating sign, stamped with
  the subset's minimum. By inclusion and exclusion only the maximum of S remains: a timed delta table.
- Equation 2 has the row exactly once, in the query of the first relation of S, stamped with that one's
  csn. If another one of S changed later, the row comes too early: not a timed delta table. The minimum does
  no harm here and no good, as no query has two delta tables. So the driver takes equation 2 transaction
  by transaction, where all of S changed at the same csn.
- Two of equation 2's queries for n = 3 are not realizable (§2): they see base tables at two times. `execute`
  is given the vector, and `align` is the time travel.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from rollview.algebra.bag import Bag
from rollview.algebra.node import Block
from rollview.algebra.view import View
from rollview.algorithms.effects import Interval, Process
from rollview.algorithms.salem2000.compute_delta import positions
from rollview.algorithms.salem2000.execute import Steps, execute, total, view_query
from rollview.algorithms.salem2000.propagate import propagate


def equation_one_processes(view: View) -> Iterator[Process]:
    """One process per block, by equation 1."""
    for query in positions(view):
        yield propagate(view, query, equation_one)


def equation_two_processes(view: View) -> Iterator[Process]:
    """One process per block, by equation 2 for one transaction at a time."""
    for query in positions(view):
        yield propagate(view, query, equation_two_per_transaction)


def equation_one(block: Block, interval: Interval) -> Steps:
    """One query for each combination of base and delta tables, with at least one delta table."""
    everything = range(len(block.relations))
    results: list[Bag] = []
    for size in range(1, len(block.relations) + 1):
        for chosen in combinations(everything, size):
            query = view_query(block)
            for position in chosen:
                query = query.with_delta(position, interval)
            query = query if size % 2 else query.negated()
            rows, _ = yield from execute(block, query, interval.upto)
            results.append(rows)
    return (yield from total(block, results))


def equation_two(block: Block, interval: Interval) -> Steps:
    """One query for each relation: what is left of it at the beginning, what is right of it at the end."""
    count = len(block.relations)
    results: list[Bag] = []
    for i in range(count):
        query = view_query(block).with_delta(i, interval)
        times = (interval.after,) * i + (interval.upto,) * (count - i)
        rows, _ = yield from execute(block, query, times)
        results.append(rows)
    return (yield from total(block, results))


def equation_two_per_transaction(block: Block, interval: Interval) -> Steps:
    """Equation 2 for each transaction of the interval alone, so that the delta is timed."""
    results: list[Bag] = []
    for csn in range(interval.after + 1, interval.upto + 1):
        results.append((yield from equation_two(block, Interval(csn - 1, csn))))
    return (yield from total(block, results))

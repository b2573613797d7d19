"""recomputing: a step of a view's delta that takes the view as a whole.

**Source.** None of the papers. salem2000 §3 pays for every change; where those are many, the relations
themselves are less to read (`recompute`). TRUNCATE leaves a table empty without saying which rows it had; a
view is a join (salem2000 §2), so it is empty while one of its relations is (`empty`).

**Guarantees.** `recompute`: strong; the view is exact at the csn, and at all up to where it was before; what
happened in between is one change. `empty`: complete; the view is exact at the transaction, and at all before
it that were propagated.

**Assumes.** The view delta is complete up to one csn, and no forward query has gone beyond it. For `empty`
that is the transaction before, and every block of the view joins a table that is empty after the transaction.
Other changes of the transaction, to these tables or to others, do not matter.

**Symbols.** V_a,b with t_a the csn so far and t_b the one to reach; V_a,b = V_b − V_a. For `empty`, V_b = ∅.
All positions are t_b then: no forward query has anything to add.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from rollview.algebra.bag import Bag, keep
from rollview.algebra.expression import Literal
from rollview.algebra.history import CSN
from rollview.algebra.node import Node
from rollview.algebra.view import View
from rollview.algorithms.effects import ContentsAt, ForwardQuery, Interval, Process, Publish, StateAt


def recompute(view: View, queries: Iterable[ForwardQuery], interval: Interval) -> Process:
    """Publishes, at the interval's end, what takes the view there, and moves its forward queries."""
    state: Bag = yield StateAt(view.name, interval.after)
    contents: Sequence[Bag] = yield ContentsAt(view.name, interval.upto)
    moves = tuple((query, interval.upto) for query in queries)
    yield Publish(moves, _difference(view.root, state, contents, interval.upto))


def _difference(root: Node, state: Bag, contents: Sequence[Bag], csn: int) -> Bag:
    """The timed delta from a state to that of the complete content of each block: all of one csn."""
    pieces = [root.emptying(state, csn)]
    for number, content in enumerate(contents):
        timed = content.project((*keep(content.columns), (CSN, Literal(csn))))
        pieces.append(root.lift(number, timed, CSN).project(keep((*root.state_columns, CSN))))
    return root.net_effect(reduce(lambda left, right: left.plus(right), pieces), CSN)


def empty(view: View, queries: Iterable[ForwardQuery], csn: int) -> Process:
    """Publishes that the view is without rows from a csn on, and moves its forward queries there."""
    state: Bag = yield StateAt(view.name, csn - 1)
    yield Publish(tuple((query, csn) for query in queries), view.root.emptying(state, csn))

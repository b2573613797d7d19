"""emptying: what a view loses at a transaction that leaves a table empty without saying which rows it had.

**Source.** None of the papers knows TRUNCATE. It needs no more than what salem2000 §2 says of a view: it is a
join, so it is empty while one of its relations is.

**Guarantees.** Complete: the view is exact at the transaction, and at all before it that were propagated.

**Assumes.** Every block of the view joins a table that is empty after the transaction, and the view delta is
complete up to the transaction before. What else the transaction did, to these tables or to others, does not
matter.

**Symbols.** V_a,b with t_b the transaction and t_a the one before → `emptying`; V_b = ∅, so V_a,b = −V_a. All
positions are t_b then: no forward query has anything to add for that transaction.
"""

from __future__ import annotations

from collections.abc import Iterable

from rollview.algebra.bag import Bag
from rollview.algebra.view import View
from rollview.algorithms.effects import ForwardQuery, Process, Publish, StateAt


def empty(view: View, queries: Iterable[ForwardQuery], csn: int) -> Process:
    """Publishes that the view is without rows from a csn on, and moves its forward queries there."""
    state: Bag = yield StateAt(view.name, csn - 1)
    yield Publish(tuple((query, csn) for query in queries), view.root.emptying(state, csn))

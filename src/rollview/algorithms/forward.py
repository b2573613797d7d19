"""A forward query over one interval: what the sweep evaluates (salem2000 §3.3)."""

from __future__ import annotations

from dataclasses import dataclass

from rollview.algebra.block import Block
from rollview.algorithms.effects import Interval


@dataclass(frozen=True)
class Forward:
    """One forward query: the changes of relation `start` in an interval, to be joined with all others.

    With `only`, those of these transactions. `as_one` takes all of the interval as one transaction. `view`
    is the view that shows the block's rows as they are, if there is one. Where all is one transaction,
    `settled` are the relations that went before this one, whichever way round they stand.
    """

    block: Block
    start: int
    interval: Interval
    only: frozenset[int] | None = None
    as_one: bool = False
    view: str = ""
    settled: frozenset[int] = frozenset()

    @property
    def table(self) -> str:
        """The table whose changes these are."""
        return self.block.relations[self.start].table.qualified

"""Irrelevant updates: insertions and deletions that a foreign key says cannot touch the view.

**Source.** sze2000 report §4.2, §4.3 (last paragraph); paper §4.2.
**Symbols.** R_j refers to R_i → `refers(block, j, i)`.
**Assumes.** The source enforces its declared foreign keys at the end of every transaction, and no row is
deleted while another one refers to it.
**Deviations.** Three limits that the paper does not state, each of them needed:

- *One source.* Rows of R_j and R_i at different sources have no common order, so R_j's row may be sent for
  incremental computation before the row it refers to.
- *One transaction.* If a transaction inserts a row and rows that refer to it, only one order of its updates
  makes the first irrelevant. So referenced relations are sent first for insertions and last for deletions;
  where references run in a circle, what would have to be first twice is computed.
- *New keys.* A modification that changes a join attribute is a deletion and an insertion of one key. Rows
  may refer to that key all the time, so both parts must be computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from rollview.algebra.dependencies import refers
from rollview.algebra.node import Block
from rollview.algorithms.sze2000.update_types import Counted, Kind, Update, key_of


def in_order(block: Block, updates: Sequence[Update]) -> list[Update]:
    """The updates of one transaction in the order in which they are to be sent.

    Deletions leave referring relations first, insertions enter referenced relations first.
    """

    def place(update: Update) -> tuple[int, int]:
        depth = _depth(block, update.position)
        return update.kind, -depth if update.kind is Kind.DELETION else depth

    return sorted(updates, key=place)


def relevant(block: Block, updates: Sequence[Update], place: int) -> tuple[Counted, ...]:
    """The rows of an update that can affect the view; `updates` is its transaction, in order."""
    update = updates[place]
    if update.kind is Kind.MODIFICATION:
        return update.rows
    # The changes that the referring relation must not have begun, or must have finished.
    others = updates[:place] if update.kind is Kind.INSERTION else updates[place + 1 :]
    unsettled = {other.position for other in others if other.kind is update.kind}
    if all(position in unsettled for position in _referring(block, update.position)):
        return update.rows
    relation = block.relations[update.position]
    replaced = {
        key_of(relation, row)
        for other in updates
        if other.position == update.position and other.kind not in (update.kind, Kind.MODIFICATION)
        for row, _ in other.rows
    }
    return tuple((row, count) for row, count in update.rows if key_of(relation, row) in replaced)


def _referring(block: Block, position: int) -> Iterator[int]:
    """The relations of the same source each of whose rows must refer to a row of this one."""
    source = block.relations[position].table.source
    for other, relation in enumerate(block.relations):
        if other != position and relation.table.source == source and refers(block, other, position):
            yield other


@lru_cache(maxsize=1024)
def _depth(block: Block, position: int, behind: frozenset[int] = frozenset()) -> int:
    """How long a chain of references begins at a relation; a circle counts once."""
    behind |= {position}
    others = set(range(len(block.relations))) - behind
    return max(
        (1 + _depth(block, other, behind) for other in others if position in _referring(block, other)),
        default=0,
    )

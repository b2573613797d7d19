"""Changes of referenced rows: by a foreign key most of them join nothing, so nobody is asked.

**Source.** sze2000 report §4.2 (irrelevant updates), for all transactions of an interval at once.

**Guarantees.** What is left out adds nothing to the block's delta: a row that refers to another one can be
there neither before that came nor after it went. What is left are rows whose key stays, and rows that came or
went in one transaction with rows that refer to them.

**Assumes.** Foreign keys are enforced at the end of every transaction, and keys are keys. Both relations are
of one source, so that their changes have one order.

**Symbols.** R_j refers to R_i → `refers(block, j, i)`; ΔR_i → `rows`.

**Deviations.** The report looks at the order of the updates inside a transaction; here a transaction that
also changed rows which refer to the key is looked up as any other.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from rollview.algebra.bag import Bag, keep
from rollview.algebra.dependencies import refers
from rollview.algebra.expression import Column, Expression, Literal
from rollview.algebra.history import CSN
from rollview.algebra.node import Block
from rollview.algorithms.effects import Changes, Effect, Interval, Spared

Steps = Generator[Effect, Any, Bag]


def referring(block: Block, position: int) -> Iterator[int]:
    """The relations each of whose rows refers to a row of this one, and is joined with no other."""
    site = block.relations[position].table.site
    for other, relation in enumerate(block.relations):
        if other != position and relation.table.site == site and refers(block, other, position):
            yield other


def without_unreferenced(block: Block, position: int, interval: Interval, as_one: bool, rows: Bag) -> Steps:
    """The changes of a relation without those that join nothing. `as_one`: an interval is a transaction."""
    others = list(referring(block, position))
    if not others or rows.is_empty():
        return rows
    key = block.relations[position].key
    names = (*key, CSN)
    csn = Literal(interval.upto) if as_one else Column(CSN)
    # A row that keeps its key has come as often as it went.
    moved = (yield from _keys(block, position, key, interval, csn)).net_effect().distinct(names)
    for other in others:
        own = _referring_columns(block, other, position)
        touched = (yield from _keys(block, other, own, interval, csn)).distinct((*own, CSN))
        marked = touched.project(
            [(f"{name}'", Column(mine)) for name, mine in zip(names, (*own, CSN), strict=True)]
        )
        pairs = [(name, f"{name}'") for name in names]
        together = moved.join(marked, pairs).project(keep(names))
        alone = moved.plus(together.negate()).net_effect()
        unreferenced = alone.project([(f"{name}'", Column(name)) for name in names])
        joined = rows.join(unreferenced, pairs).project(keep(rows.columns))
        yield Spared(joined)
        rows = rows.plus(joined.negate()).net_effect()
    return rows


def _keys(block: Block, position: int, columns: Sequence[str], interval: Interval, csn: Expression) -> Steps:
    """These columns of all changes of a relation, whether or not they pass its conditions."""
    relation = block.relations[position]
    own = dict(zip(relation.columns, relation.table.columns, strict=True))
    log: Bag = yield Changes(relation.table.qualified, interval.after, interval.upto)
    return log.project([*((name, Column(own[name])) for name in columns), (CSN, csn)])


def _referring_columns(block: Block, other: int, position: int) -> tuple[str, ...]:
    """The columns of a relation that refer to the key of another one, in the order of that."""
    equal = {
        edge.left_column: edge.right_column
        for edge in block.edges
        if {edge.left, edge.right} == {other, position}
    }
    equal |= {right: left for left, right in equal.items()}
    return tuple(equal[name] for name in block.relations[position].key)

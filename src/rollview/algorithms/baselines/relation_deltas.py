"""relation_deltas: ΔR, what one transaction did to each relation of a block.

The baselines speak of one update ΔR to one relation. A source-local transaction is one ΔR for each relation
that it touches, and a change to a table that the view joins with itself is a ΔR of both occurrences.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from rollview.algebra.bag import Bag
from rollview.algebra.block import Block
from rollview.algebra.history import Transaction
from rollview.algorithms.effects import Effect, RowsOf


def relation_deltas(block: Block, transaction: Transaction) -> Generator[Effect, Any, dict[int, Bag]]:
    """The changed rows, by position; a relation that the transaction leaves alone is not there."""
    deltas: dict[int, Bag] = {}
    for position, relation in enumerate(block.relations):
        table = relation.table.qualified
        rows = tuple((change.row, change.count) for change in transaction.changes if change.table == table)
        if rows:
            deltas[position] = yield RowsOf(relation.columns, rows, relation)
    return deltas

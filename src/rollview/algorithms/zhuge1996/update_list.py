"""UL(T): update messages as the Strobe algorithms read them, and which source states they lead to.

**Source.** zhuge1996 §5.3 (UL, IL, key(U), removal of pairs), §4.1 (source state vectors).
**Symbols.** UL(T) → `changes`; IL(T) → `insertions(changes)`; key(U) → `_key_of`; ss → `StateVector`.
**Deviations.** Tuples of one relation are put into one bag, so that a transaction of thousands of updates
is a handful of operations. A table that occurs twice in a view is two relations, and its updates are
updates of both.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rollview.algebra.bag import Bag, column_getter
from rollview.algebra.block import Block
from rollview.algebra.expression import Row
from rollview.algebra.history import Change, Transaction
from rollview.algebra.view import View
from rollview.algorithms.effects import Effect, RowsOf

Relations = Generator[Effect, Any, dict[int, Bag]]


def insertions(changes: Iterable[Change]) -> list[Change]:
    """IL(T)."""
    return [change for change in changes if change.count > 0]


def deletions(changes: Iterable[Change]) -> list[Change]:
    """The updates that are not in IL(T)."""
    return [change for change in changes if change.count < 0]


def without_pairs(block: Block, changes: Sequence[Change]) -> list[Change]:
    """UL(T) without tuples that were first inserted and then deleted; updates of other tables left out.

    A key has at most one tuple at a time, so its insertions and deletions take turns.
    """
    tables = {relation.table.qualified: relation.table for relation in block.relations}
    kept: dict[int, Change] = {}
    inserted: dict[tuple[str, Row], int] = {}
    for place, change in enumerate(changes):
        if change.table not in tables:
            continue
        table = tables[change.table]
        key = (change.table, column_getter(table.columns, table.key)(change.row))
        if change.count > 0:
            inserted[key] = place
        elif key in inserted:
            del kept[inserted.pop(key)]
            continue
        kept[place] = change
    return list(kept.values())


def by_relation(block: Block, changes: Iterable[Change]) -> Relations:
    """For each relation that the changes touch, its changed tuples, each once."""
    rows: dict[str, dict[Row, None]] = {}
    for change in changes:
        rows.setdefault(change.table, {})[change.row] = None
    bags: dict[int, Bag] = {}
    for position, relation in enumerate(block.relations):
        if relation.table.qualified in rows:
            tuples = tuple((row, 1) for row in rows[relation.table.qualified])
            bags[position] = yield RowsOf(relation.columns, tuples, relation)
    return bags


@dataclass
class StateVector:
    """The source state vector that all updates taken so far add up to.

    There is none in the middle of a transaction that is taken update by update.
    """

    last: dict[str, int]
    midway: bool = False

    @classmethod
    def of(cls, view: View) -> StateVector:
        """The first source state."""
        return cls({table.source: 0 for table in view.tables})

    def take(self, transaction: Transaction, whole: bool = True) -> None:
        """Another update, or all of a transaction; `whole` if the transaction ends with it."""
        self.midway = not whole
        if whole:
            self.last[transaction.source] = max(self.last.get(transaction.source, 0), transaction.version)

    def claim(self) -> tuple[tuple[str, int], ...] | None:
        """The vector for `Install`."""
        return None if self.midway else tuple(self.last.items())

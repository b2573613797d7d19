"""Types of update: what a transaction did to a relation, as deletions, modifications and insertions.

**Source.** sze2000 report §4.2, §4.3 and Theorem 2.
**Symbols.** ΔR_i → `Update`; the view's join attributes → `join_attributes`.
**Deviations.** A modification that changes an attribute of a selection is treated like one that changes a
join attribute: as a deletion and an insertion. The paper names join attributes only, but such a row enters
or leaves the view. A relation's deletions, modifications and insertions in one transaction are up to three
updates, sent one after another, deletions before all others: then keys are keys at every step in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from rollview.algebra.bag import column_getter
from rollview.algebra.expression import Row, columns_of
from rollview.algebra.history import Change, Transaction
from rollview.algebra.node import Block
from rollview.algebra.relation import Relation

Counted = tuple[Row, int]
"""A row of an update message, with +n for inserted and −n for deleted."""


class Kind(IntEnum):
    """The types of update, in the order in which those of one transaction are sent."""

    DELETION = 0
    MODIFICATION = 1
    INSERTION = 2


@dataclass(frozen=True)
class Update:
    """ΔR_i: one type of change to one relation, by one transaction.

    `version` is the transaction's data source version. `modified` pairs old rows with new ones.
    """

    block: int
    position: int
    kind: Kind
    version: int
    rows: tuple[Counted, ...]
    modified: tuple[tuple[Row, Row], ...] = ()


@lru_cache(maxsize=1024)
def join_attributes(block: Block, position: int) -> frozenset[str]:
    """The columns of a relation that decide what its rows join with, and whether they pass."""
    columns = {name for edge in block.edges for name in (edge.left_column, edge.right_column)}
    for condition in (*block.residual, *block.local[position]):
        columns.update(columns_of(condition))
    return frozenset(block.relations[position].columns) & columns


def updates_of(number: int, block: Block, transaction: Transaction) -> Iterator[Update]:
    """The updates of a transaction to the relations of a block, relation by relation.

    A table that occurs twice in the block is two relations.
    """
    for position, relation in enumerate(block.relations):
        rows = _net(change for change in transaction.changes if change.table == relation.table.qualified)
        pairs = tuple(_modified(relation, rows, join_attributes(block, position)))
        found: dict[Kind, list[Counted]] = {kind: [] for kind in Kind}
        for old, new in pairs:
            found[Kind.MODIFICATION] += [(old, rows.pop(old)), (new, rows.pop(new))]
        for row, count in rows.items():
            found[Kind.INSERTION if count > 0 else Kind.DELETION].append((row, count))
        for kind, counted in found.items():
            if counted:
                modified = pairs if kind is Kind.MODIFICATION else ()
                yield Update(number, position, kind, transaction.version, tuple(counted), modified)


def key_of(relation: Relation, row: Row) -> Row:
    """The values of the relation's key in a row."""
    return column_getter(relation.table.columns, relation.table.key)(row)


def same_attributes(relation: Relation, names: frozenset[str], one: Row, other: Row) -> bool:
    """Whether two rows of a relation agree on these columns of the block."""
    value = column_getter(relation.columns, sorted(names))
    return value(one) == value(other)


def _net(changes: Iterable[Change]) -> dict[Row, int]:
    """The net changes of a transaction to a table: a row that came and went is none."""
    counts: dict[Row, int] = {}
    for change in changes:
        counts[change.row] = counts.get(change.row, 0) + change.count
    return {row: count for row, count in counts.items() if count}


def _modified(
    relation: Relation, rows: dict[Row, int], attributes: frozenset[str]
) -> Iterator[tuple[Row, Row]]:
    """Old and new rows of one key that agree on the join attributes."""
    if not relation.key:
        return
    old = {key_of(relation, row): row for row, count in rows.items() if count < 0}
    for row, count in rows.items():
        before = old.get(key_of(relation, row)) if count > 0 else None
        if before is not None and same_attributes(relation, attributes, before, row):
            yield before, row

"""A slice of a view: the rows whose value of one column lies in a range.

Two contents of a view are equal only if all their slices are, so what differs in a slice differs in the view,
whichever column it is. The bounds of the range are values that the view has; at its ends it is open, so that
rows that are missing have their turn, too, and the first slice has the rows without a value.

Where the column is a table's own, or is joined with one by equality, rows of that table outside of the range
cannot matter: its source is asked for the range alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from random import Random
from typing import TYPE_CHECKING

from rollview.algebra.block import Block
from rollview.algebra.expression import Column, Expression, Literal, call, conjunction, to_sql
from rollview.algebra.node import Node
from rollview.algebra.view import View
from rollview.deferred_import import deferred
from rollview.service.stored_view import StoredView
from rollview.sources.source import Comparison, Constant

if TYPE_CHECKING:
    from pyspark.sql import functions as f
else:
    f = deferred("pyspark.sql.functions")

_ORDERED = ("tinyint", "smallint", "int", "bigint", "date")
_TEXT = "string"


@dataclass(frozen=True)
class Slice:
    """The rows with low ≤ column < high; without `low` also those with NULL."""

    column: str
    low: Constant | None
    high: Constant | None

    def __str__(self) -> str:
        bounds = [("from", self.low), ("to before", self.high)]
        return " ".join([self.column, *(f"{word} {value}" for word, value in bounds if value is not None)])

    def holds(self, column: str) -> Expression:
        """The condition, on a column of this name."""
        own, bounds = Column(column), self._bounds(column)
        tests = tuple(call(each.operator, own, Literal(each.values[0])) for each in bounds)
        return call("OR", call("IS NULL", own), *tests) if self.low is None else conjunction(tests)

    def comparisons(self, column: str) -> tuple[Comparison, ...]:
        """What a source may test. It cannot be asked for rows without a value as well."""
        return () if self.low is None else self._bounds(column)

    def _bounds(self, column: str) -> tuple[Comparison, ...]:
        bounds = ((">=", self.low), ("<", self.high))
        return tuple(Comparison(column, sign, (value,)) for sign, value in bounds if value is not None)


def draw(stored: StoredView, fraction: float, chance: Random) -> Slice | None:
    """A slice with about a fraction of the values of a column; None where only the whole view will do."""
    column = _column_of(stored)
    if column is None:
        return None
    name = f.expr(to_sql(Column(column)))
    values = stored.shown_rows().frame.where(name.isNotNull()).select(name.alias("_value")).distinct()
    number = values.count()
    size = ceil(fraction * number)
    if size >= number:
        return None

    def value_at(place: int) -> Constant | None:
        if not 0 < place < number:
            return None
        (row,) = values.orderBy("_value").offset(place).limit(1).collect()
        found: Constant = row["_value"]
        return found

    # Every value is as likely as any other one, those at the ends included.
    start = chance.randrange(1 - size, number)
    return Slice(column, value_at(start), value_at(start + size))


def sliced_tables(view: View, column: str) -> dict[str, str]:
    """The tables of which only a slice matters to a slice of the view, each with its own column.

    A table that is read twice has rows that matter for another reason.
    """
    if view.stages:
        return {}
    read = Counter(relation.table.qualified for block in view.blocks for relation in block.relations)
    found: dict[str, str] = {}
    for block, name in _in_blocks(view.root, column):
        expression = dict(block.projection)[name]
        equal = _equal_columns(block, expression.name) if isinstance(expression, Column) else set()
        for relation in block.relations:
            for own, inside in zip(relation.table.columns, relation.columns, strict=True):
                if inside in equal and read[relation.table.qualified] == 1:
                    found[relation.table.qualified] = own
    return found


def _column_of(stored: StoredView) -> str | None:
    """The column to slice by: a number or a date of as many tables as possible, and there one of the key."""
    keys = {table.qualified: table.key for table in stored.view.named_tables}

    def worth(column: tuple[str, str]) -> tuple[int, bool, bool, bool]:
        name, kind = column
        tables = sliced_tables(stored.view, name)
        is_key = any(own in keys.get(table, ()) for table, own in tables.items())
        return (0 if kind == _TEXT else len(tables), is_key, bool(tables), kind != _TEXT)

    possible = [
        (name, kind)
        for name, kind in stored.layout.columns
        if kind in (*_ORDERED, _TEXT) or kind.startswith("decimal")
    ]
    return max(possible, key=worth)[0] if possible else None


def _in_blocks(node: Node, column: str) -> Iterator[tuple[Block, str]]:
    """Where a column comes from, in each block below that it comes from unchanged."""
    if not node.inputs:
        (block,) = node.blocks
        yield block, column
        return
    for below, name in zip(node.inputs, node.origins(column) or (), strict=False):
        yield from _in_blocks(below, name)


def _equal_columns(block: Block, column: str) -> set[str]:
    """The columns that always have the value of a column, itself included; all of one type."""
    types = {
        inside: kind
        for relation in block.relations
        for inside, kind in zip(relation.columns, relation.table.types, strict=False)
    }
    equal, before = {column}, 0
    while len(equal) > before:
        before = len(equal)
        for edge in block.edges:
            pair = {edge.left_column, edge.right_column}
            if pair & equal and len({types.get(each, each) for each in pair}) == 1:
                equal |= pair
    return equal

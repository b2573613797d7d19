"""Look-ups as data: what the service asks of a source, planned before the source hears of it.

A plan is a sequence of `Lookup`s of one site, parents before children, answered at one state. More rows than
asked for are harmless, because the caller tests keys and conditions once more, as Spark understands them;
fewer are wrong. So a source may ignore a condition, a key column, or all keys of a look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from rollview.algebra.relation import Table
from rollview.rows import Rows

Constant = bool | int | float | Decimal | str | date
"""A constant of a condition; a `date` may be a `datetime`, with a zone or without."""

COMPARISONS = ("=", "<", "<=", ">", ">=")
"""The operators of a `Comparison` with one value."""

IN = "IN"
"""The operator of a `Comparison` with any number of values."""


@dataclass(frozen=True)
class Comparison:
    """A condition on one column of a table: `column operator value`, or `column IN (values)`."""

    column: str
    operator: str
    values: tuple[Constant, ...]


@dataclass(frozen=True, eq=False)
class Lookup:
    """Rows of one table: those of the given keys, those that match a parent's rows, or all.

    `columns` are the table's own names. `keys` has columns named as the table's own; a row is looked for if
    it has the values of one row of `keys`. The keys are distinct and hold no NULL; there may be none.
    `parent` is the place of an earlier look-up of the same plan, and `on` pairs columns of its rows with
    columns of this table; a row is looked for if it matches one of the rows found there. All `conditions`
    must hold as well.
    """

    table: Table
    columns: tuple[str, ...]
    keys: pa.Table | None = None
    parent: int | None = None
    on: tuple[tuple[str, str], ...] = ()
    conditions: tuple[Comparison, ...] = ()


Find = Callable[[Lookup, pa.Table | None], Rows]
"""Finds the rows of one look-up by keys under the table's own names; None: by its conditions alone."""


def run_plan(plan: Sequence[Lookup], find: Find) -> tuple[Rows, ...]:
    """The rows of every look-up of a plan; a child's keys are taken from the rows of its parent."""
    found: list[Rows] = []
    for lookup in plan:
        keys = lookup.keys
        if lookup.parent is not None:
            parent = found[lookup.parent]
            # A parent that is only a scan is as good as everything: its values are not known here.
            keys = distinct_keys(parent, lookup.on) if isinstance(parent, pa.Table) else None
        found.append(find(lookup, keys))
    return tuple(found)


def distinct_keys(rows: pa.Table, on: Sequence[tuple[str, str]]) -> pa.Table:
    """The values of columns under the names they are paired with, each combination once.

    NULL matches nothing, so there is none. Values that Spark takes for equal are one: zeros of either sign,
    NaN of any bits.
    """
    names = [own for _, own in on]
    table = pa.Table.from_arrays([_as_compared(rows.column(theirs)) for theirs, _ in on], names=names)
    for name in names:
        if table.column(name).null_count:
            table = table.filter(pc.is_valid(table.column(name)))
    if any(pa.types.is_nested(each.type) for each in table.schema):
        # Arrow does not compare these; to look for one twice does no harm.
        return table
    if len(names) == 1:
        return pa.Table.from_arrays([pc.unique(table.column(0))], names=names)
    return table.group_by(names, use_threads=False).aggregate([]).select(names)


def _as_compared(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_floating(values.type):
        return values
    zero, nan = pa.scalar(0.0, values.type), pa.scalar(float("nan"), values.type)
    return pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))

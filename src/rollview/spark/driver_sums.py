"""Sums of whole numbers and decimals at the driver, over an Arrow table: exact, or left to Spark.

A change touches a few thousand groups of a state that may have millions. Spark takes seconds for a plan that
adds them up, one csn after the other; here it is a walk over the rows. What does not fit its type is left to
Spark, which knows what to say then; so are floating-point numbers, whose sums depend on the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Context, Decimal, localcontext
from typing import Any

import pyarrow as pa

from rollview.algebra.bag import COUNT, Output, before_it
from rollview.algebra.expression import Expression
from rollview.spark import driver_side
from rollview.spark.driver_outputs import computed
from rollview.spark.weigh import MORE_DIGITS, MOST_DIGITS

MOST_ROWS = 200_000
_DIGITS = Context(prec=80)
Amounts = list[Any]


def added_up(table: pa.Table, keys: Sequence[str], sums: Sequence[str]) -> pa.Table | None:
    """One row per group, with the sums; None if that is left to Spark."""
    if not _can_add(table, keys, sums):
        return None
    with localcontext(_DIGITS):
        groups = _groups(table, keys, sums)
    return _table(table, keys, sums, [(*group, *amounts) for group, amounts in groups.items()])


def summarized(table: pa.Table, keys: Sequence[str], measures: Sequence[Output]) -> pa.Table | None:
    """One row per group, with each measure summed, wider than it is; None if that is left to Spark."""
    columns: dict[str, Any] = {name: table[name] for name in keys}
    for name, expression in measures:
        values = _measured(expression, table)
        if values is None:
            return None
        columns[name] = values
    names = [name for name, _ in measures]
    measured = pa.table({**columns, COUNT: table[COUNT]})
    if not _can_add(measured, keys, names):
        return None
    if not keys and not table.num_rows:
        # Of nothing, too, there is a sum.
        measured = pa.table({name: pa.array([None], measured.schema.field(name).type) for name in names})
        measured = measured.append_column(COUNT, pa.array([0], pa.int64()))
    return added_up(measured, keys, names)


def _measured(expression: Expression, table: pa.Table) -> Any:
    """The values of a measure, with the type of their sum; None if they have to be computed by Spark."""
    values = computed(expression, table)
    if values is None:
        return None
    if pa.types.is_decimal(values.type):
        digits = min(values.type.precision + MORE_DIGITS, MOST_DIGITS)
        return values.cast(pa.decimal128(digits, values.type.scale))
    return values.cast(pa.int64()) if pa.types.is_integer(values.type) else None


def running(table: pa.Table, keys: Sequence[str], order: str, sums: Sequence[str]) -> pa.Table | None:
    """One row per group and value of `order`: the sums up to it and those before; None: left to Spark."""
    if not _can_add(table, (*keys, order), sums):
        return None
    rows: list[tuple[Any, ...]] = []
    totals: dict[tuple[Any, ...], Amounts] = {}
    with localcontext(_DIGITS):
        parts = _groups(table, (*keys, order), sums)
        if any(place[-1] is None for place in parts):
            return None
        for place in sorted(parts, key=lambda place: place[-1]):
            before = totals.get(place[:-1])
            own = parts[place]
            before = [0] * len(own) if before is None else before
            totals[place[:-1]] = after = [one + other for one, other in zip(before, own, strict=True)]
            rows.append((*place, *after, *before))
    return _table(table, (*keys, order), (*sums, *map(before_it, sums)), rows)


def _can_add(table: pa.Table, keys: Sequence[str], sums: Sequence[str]) -> bool:
    kinds = [table.schema.field(name).type for name in sums]
    are_exact = all(pa.types.is_integer(kind) or pa.types.is_decimal(kind) for kind in kinds)
    return table.num_rows <= MOST_ROWS and are_exact and driver_side.can_group(table, keys)


def _groups(table: pa.Table, keys: Sequence[str], sums: Sequence[str]) -> dict[tuple[Any, ...], Amounts]:
    """The sums of each group, counts taken into account; NULL adds nothing."""
    groups: dict[tuple[Any, ...], Amounts] = {}
    counts = table[COUNT].to_pylist()
    for group, amounts, count in zip(_rows(table, keys), _rows(table, sums), counts, strict=True):
        weighted = [0 if amount is None else amount * count for amount in amounts]
        known = groups.get(group)
        if known is None:
            groups[group] = weighted
        else:
            groups[group] = [one + other for one, other in zip(known, weighted, strict=True)]
    return groups


def _rows(table: pa.Table, names: Sequence[str]) -> Iterable[tuple[Any, ...]]:
    columns = [table[name].to_pylist() for name in names]
    return zip(*columns, strict=True) if columns else [()] * table.num_rows


def _table(
    table: pa.Table, keys: Sequence[str], sums: Sequence[str], rows: list[tuple[Any, ...]]
) -> pa.Table | None:
    """Rows of keys and sums, as a table of the types that these have; None if a sum does not fit."""
    kinds = {field.name: field.type for field in table.schema}
    kinds |= {name: pa.int64() for name in sums if name in kinds and pa.types.is_integer(kinds[name])}
    kinds |= {before_it(name): kind for name, kind in kinds.items()}
    columns = list(zip(*rows, strict=True)) or [()] * (len(keys) + len(sums))
    arrays = []
    for place, name in enumerate((*keys, *sums)):
        values: Sequence[Any] = columns[place]
        if place >= len(keys) and pa.types.is_decimal(kinds[name]):
            values = [Decimal(value) for value in values]
        try:
            arrays.append(pa.array(values, kinds[name]))
        except (pa.ArrowInvalid, OverflowError):
            return None
    ones = pa.array([1] * len(rows), pa.int64())
    return pa.Table.from_arrays([*arrays, ones], names=[*keys, *sums, COUNT])

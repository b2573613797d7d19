"""Projections at the driver: columns, whole numbers, and what COUNT, SUM and AVG show of a group.

Only what Arrow, Python and Spark cannot disagree about is computed here: IF over a condition that can be
tested at the driver, sums, differences and products of whole numbers and decimals, a quotient of two whole
numbers, which is one of two doubles, and an average of decimals from its sum and number, which `averages`
defines. All else is left to Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rollview.algebra.bag import COUNT, Output
from rollview.algebra.expression import Call, Column, Expression, Literal
from rollview.algebra.functions.averages import average_function, average_type
from rollview.rows import arrow_type
from rollview.spark.driver_arithmetic import arithmetic, common_decimal
from rollview.spark.driver_condition import evaluate_condition

_MOST_AVERAGES = 200_000
"""These are computed one by one."""
_INT_DIGITS = 10
"""Digits of an int that becomes a decimal."""


def projected(table: pa.Table, outputs: Sequence[Output]) -> pa.Table | None:
    """The projection of a bag; None if an output has to be computed by Spark.

    Of no rows there is nothing to compute, so that NULL stands for whatever it is.
    """
    columns, names = [], []
    for name, expression in outputs:
        is_nothing = expression == Literal(None) and not table.num_rows
        values = pa.nulls(0) if is_nothing else computed(expression, table)
        if values is None:
            return None
        columns.append(values)
        names.append(name)
    return pa.Table.from_arrays([*columns, table[COUNT]], names=[*names, COUNT])


def computed(expression: Expression, table: pa.Table) -> Any:
    """The values of an expression, one for each row; None if only Spark can tell."""
    match expression:
        case Column():
            return table[expression.name]
        case Literal(value=int(number)) if not isinstance(number, bool):
            return pa.repeat(pa.scalar(number, pa.int64()), table.num_rows)
        case Call("IF", (condition, one, other)):
            return _either(condition, one, other, table)
        case Call("/", (one, other)):
            return _quotient(computed(one, table), computed(other, table))
        case Call("+" | "-" | "*"):
            return arithmetic(expression, table, computed)
        case Call(function, (total, number)) if (kind := average_type(function)) is not None:
            return _average(kind, computed(total, table), computed(number, table))
    return None


def _either(condition: Expression, one: Expression, other: Expression, table: pa.Table) -> Any:
    """The first where the condition is true; each is computed for those rows alone that show it."""
    holds = evaluate_condition(condition, table)
    if holds is None:
        return None
    holds = pc.fill_null(holds, False)
    parts = []
    for branch, mask in ((one, holds), (other, pc.invert(holds))):
        rows = table.filter(mask)
        parts.append(pa.nulls(rows.num_rows) if branch == Literal(None) else computed(branch, rows))
    if any(part is None for part in parts):
        return None
    kind = _common([part.type for part in parts], [_is_small(branch) for branch in (one, other)])
    if kind is None:
        return None
    both = pa.concat_arrays([_converted(_whole(part), kind) for part in parts])
    chosen = holds.to_numpy(zero_copy_only=False).astype(bool)
    places = np.where(chosen, np.cumsum(chosen) - 1, chosen.sum() + np.cumsum(~chosen) - 1)
    return both.take(pa.array(places, pa.int64()))


def _is_small(branch: Expression) -> bool:
    """Whether it is a constant that Spark takes for an int."""
    return isinstance(branch, Literal) and type(branch.value) is int and abs(branch.value) < 2**31


def _common(kinds: Sequence[pa.DataType], are_small: Sequence[bool]) -> pa.DataType | None:
    """The type of what is of one of two types: only beside a decimal, a small constant becomes one."""
    known = [
        pa.decimal128(_INT_DIGITS, 0) if is_small and any(map(pa.types.is_decimal, kinds)) else kind
        for kind, is_small in zip(kinds, are_small, strict=True)
        if not pa.types.is_null(kind)
    ]
    if len(set(known)) == 1:
        return known[0]
    if not known or not any(are_small) or not all(map(pa.types.is_decimal, known)):
        return None
    return common_decimal(*known)


def _converted(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """A small constant that becomes a decimal has the digits of an int, not those of a bigint."""
    is_small = pa.types.is_integer(values.type) and pa.types.is_decimal(kind)
    return (values.cast(pa.int32()) if is_small else values).cast(kind)


def _quotient(one: Any, other: Any) -> Any:
    """Whole numbers are divided as doubles; a division by zero is Spark's to report."""
    if one is None or other is None:
        return None
    if not pa.types.is_integer(one.type) or not pa.types.is_integer(other.type):
        return None
    divisor = pc.fill_null(other, 1).to_numpy().astype(np.float64)
    if (divisor == 0).any():
        return None
    values = pc.fill_null(one, 0).to_numpy().astype(np.float64) / divisor
    is_known = pc.and_(pc.is_valid(one), pc.is_valid(other))
    return pa.array(values, mask=~is_known.to_numpy(zero_copy_only=False).astype(bool))


def _average(kind: str, total: Any, number: Any) -> Any:
    if total is None or number is None or len(total) > _MOST_AVERAGES:
        return None
    if not pa.types.is_decimal(total.type) or not pa.types.is_integer(number.type):
        return None
    pairs = list(zip(total.to_pylist(), number.to_pylist(), strict=True))
    if any(count == 0 for _, count in pairs):
        return None
    average = average_function(kind)
    try:
        return pa.array([average(*pair) for pair in pairs], arrow_type(kind.lower()))
    except pa.ArrowInvalid:
        # It does not fit: Spark knows what to say.
        return None


def _whole(values: Any) -> pa.Array:
    combined = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined

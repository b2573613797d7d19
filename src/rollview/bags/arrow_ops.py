"""Bag operations on an Arrow table at the driver, for rows that are few and already there.

A Spark job costs tens of milliseconds however small it is. Apart from sums none of these computes a value, so
that nothing here could disagree with Spark about one; what they do with NULL is what Spark does. Keys that
are floating-point numbers are left to Spark, which takes −0.0 for 0.0 and all NaN for one value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rollview.algebra.bag import COUNT, Output, before_it
from rollview.algebra.expression import Expression
from rollview.bags.arrow_expressions import computed, evaluate_condition
from rollview.bags.spark_sums import MORE_DIGITS, MOST_DIGITS
from rollview.rows import arrow_type, spark_type

_LEFT, _RIGHT = "_left", "_right"
MOST_PAIRS = 4_000_000
"""A join of more pairs, before its condition is evaluated, is left to Spark, which need not hold them all."""


def normal(table: pa.Table) -> pa.Table:
    """The table in one chunk, with the types that rollview uses: two tables of one Spark schema are equal."""
    fields = [pa.field(field.name, arrow_type(spark_type(field.type))) for field in table.schema]
    schema = pa.schema(fields)
    return (table if table.schema.equals(schema) else table.cast(schema)).combine_chunks()


def can_group(table: pa.Table, names: Sequence[str]) -> bool:
    """Whether grouping by these columns means the same here as on Spark."""
    types = [table.schema.field(name).type for name in names]
    return not any(pa.types.is_floating(kind) or pa.types.is_nested(kind) for kind in types)


def can_net(table: pa.Table, names: Sequence[str]) -> bool:
    """Whether rows with the same values in these columns are the same here as on Spark."""
    kinds = {name: table.schema.field(name).type for name in names}
    if any(pa.types.is_nested(kind) for kind in kinds.values()):
        return False
    return all(_is_plain(table[name]) for name, kind in kinds.items() if pa.types.is_floating(kind))


def _is_plain(column: pa.ChunkedArray) -> bool:
    """Whether no number is NaN or −0.0, of which Spark makes others."""
    numbers = column.drop_null().to_numpy()
    return not (np.isnan(numbers) | (np.signbit(numbers) & (numbers == 0))).any()


def net_effect(table: pa.Table) -> pa.Table:
    """Counts added up per row, zeros dropped."""
    names = [name for name in table.column_names if name != COUNT]
    if names:
        summed = table.group_by(names, use_threads=False).aggregate([(COUNT, "sum")])
        summed = summed.rename_columns([*names, COUNT])
    else:
        summed = pa.table({COUNT: pa.array([pc.sum(table[COUNT]).as_py() or 0], pa.int64())})
    return summed.filter(pc.not_equal(summed[COUNT], 0)).select(table.column_names).cast(table.schema)


def distinct(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The values of these columns, each once."""
    support = table.select(list(names)).group_by(list(names), use_threads=False).aggregate([])
    return _counted_once(support.select(list(names)))


def sharing(table: pa.Table, keys: pa.Table, names: Sequence[str]) -> pa.Table | None:
    """The rows whose values in these columns are those of a row of `keys`; None if that is left to Spark."""
    if not keys.num_rows:
        return table.slice(0, 0)
    alike = all(table.schema.field(name).type == keys.schema.field(name).type for name in names)
    if not alike or not can_group(table, names):
        return None
    for name in names:
        table = table.filter(pc.is_in(table[name], value_set=keys[name].combine_chunks()))
    if len(names) == 1:
        return table
    wanted = set(_tuples(keys, names))
    return table.filter(pa.array([row in wanted for row in _tuples(table, names)], pa.bool_()))


def pairs(left: pa.Table, right: pa.Table, names: Sequence[str]) -> int | None:
    """How many pairs of rows have the same values in these columns; None if that is left to Spark."""
    if not names:
        return int(left.num_rows * right.num_rows)
    alike = all(left.schema.field(name).type == right.schema.field(name).type for name in names)
    if not alike or not can_group(left, names):
        return None
    counts = Counter(_tuples(left, names))
    return sum(counts[key] for key in _tuples(right, names))


def negate(table: pa.Table) -> pa.Table:
    """Every count changes its sign."""
    position = table.column_names.index(COUNT)
    return table.set_column(position, table.schema.field(COUNT), pc.negate(table[COUNT]))


def expanded(table: pa.Table) -> pa.Table:
    """Each row as often as it counts, without the count."""
    counts = table[COUNT].to_numpy()
    assert (counts >= 0).all(), "no row is there less than never"
    rows = table.drop_columns([COUNT])
    return rows if (counts == 1).all() else rows.take(pa.array(np.repeat(np.arange(len(counts)), counts)))


def join(
    left: pa.Table, right: pa.Table, on: Sequence[tuple[str, str]], condition: Expression | None
) -> pa.Table | None:
    """Pairs equal on the column pairs for which the condition holds; None if that is left to Spark."""
    kinds = [(left.schema.field(one).type, right.schema.field(other).type) for one, other in on]
    if any(one != other or not _is_key(one) for one, other in kinds):
        return None
    if any(
        pa.types.is_nested(field.type) or pa.types.is_null(field.type)
        for field in (*left.schema, *right.schema)
    ):
        return None
    if left.num_rows * right.num_rows > MOST_PAIRS and (not on or _pairs(left, right, on) > MOST_PAIRS):
        return None
    names = [name for name in (*left.column_names, *right.column_names) if name != COUNT]
    # Rows are matched by their keys and numbers alone, then taken: Arrow cannot join all types of payload.
    pairs = _matched(left, right, on) if on else _all_pairs(left, right)
    first, second = left.take(pairs[_LEFT]), right.take(pairs[_RIGHT])
    columns = {name: (first if name in left.column_names else second)[name] for name in names}
    joined = pa.table(columns) if names else None
    if joined is None:
        return None
    joined = joined.append_column(COUNT, pc.multiply_checked(first[COUNT], second[COUNT]))
    if condition is None:
        return joined
    holds = evaluate_condition(condition, joined)
    return None if holds is None else joined.filter(holds)


def _matched(left: pa.Table, right: pa.Table, on: Sequence[tuple[str, str]]) -> pa.Table:
    """The numbers of rows that are equal on the column pairs."""
    mine = left.select([one for one, _ in on]).append_column(_LEFT, _numbers(left))
    others = right.select([other for _, other in on]).append_column(_RIGHT, _numbers(right))
    return mine.join(others, [one for one, _ in on], [other for _, other in on], "inner", use_threads=False)


def _all_pairs(left: pa.Table, right: pa.Table) -> pa.Table:
    """The numbers of all rows, each with each."""
    mine, others = np.arange(left.num_rows), np.arange(right.num_rows)
    return pa.table({_LEFT: np.repeat(mine, right.num_rows), _RIGHT: np.tile(others, left.num_rows)})


def _pairs(left: pa.Table, right: pa.Table, on: Sequence[tuple[str, str]]) -> int:
    """How many pairs are equal on the columns."""
    mine, others = [one for one, _ in on], [other for _, other in on]
    counted = [
        table.group_by(keys, use_threads=False).aggregate([([], "count_all")]).rename_columns([*keys, name])
        for table, keys, name in ((left, mine, _LEFT), (right, others, _RIGHT))
    ]
    both = counted[0].join(counted[1], mine, others, "inner", use_threads=False)
    return pc.sum(pc.multiply(both[_LEFT], both[_RIGHT])).as_py() or 0


def _tuples(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in names), strict=True)


def _counted_once(table: pa.Table) -> pa.Table:
    return table.append_column(COUNT, pa.array([1] * table.num_rows, pa.int64()))


def _numbers(table: pa.Table) -> pa.Array:
    return pa.array(range(table.num_rows), pa.int64())


def _is_key(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind))


# Sums of whole numbers and decimals at the driver, over an Arrow table: exact, or left to Spark.
#
# A change touches a few thousand groups of a state that may have millions. Spark takes seconds for a plan
# that adds them up, one csn after the other; here it is a walk over the rows. A sum that does not fit its
# type is left to Spark, which knows what to say then; so are floating-point numbers, whose sums depend on the
# order.


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
    return table.num_rows <= MOST_ROWS and are_exact and can_group(table, keys)


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

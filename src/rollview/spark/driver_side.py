"""Bag operations on an Arrow table at the driver, for rows that are few and already there.

A Spark job costs tens of milliseconds however small it is. These four operations need no expressions, so
that nothing here could disagree with Spark about the value of one; what they do with NULL is what Spark
does. Floating-point columns are left to Spark, which takes −0.0 for 0.0 and all NaN for one value.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from rollview.rows import arrow_type, spark_type

COUNT = "_count"
"""The column that carries a row's multiplicity."""


def normal(table: pa.Table) -> pa.Table:
    """The table in one chunk, with the types that rollview uses: two tables of one Spark schema are equal."""
    fields = [pa.field(field.name, arrow_type(spark_type(field.type))) for field in table.schema]
    schema = pa.schema(fields)
    return (table if table.schema.equals(schema) else table.cast(schema)).combine_chunks()


def can_group(table: pa.Table, names: Sequence[str]) -> bool:
    """Whether grouping by these columns means the same here as on Spark."""
    types = [table.schema.field(name).type for name in names]
    return not any(pa.types.is_floating(kind) or pa.types.is_nested(kind) for kind in types)


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


def negate(table: pa.Table) -> pa.Table:
    """Every count changes its sign."""
    position = table.column_names.index(COUNT)
    return table.set_column(position, table.schema.field(COUNT), pc.negate(table[COUNT]))


def renamed(table: pa.Table, names: Sequence[tuple[str, str]]) -> pa.Table:
    """The columns under new names, given as (new, old), and the counts."""
    chosen = table.select([*(old for _, old in names), COUNT])
    return chosen.rename_columns([*(new for new, _ in names), COUNT])


def _counted_once(table: pa.Table) -> pa.Table:
    return table.append_column(COUNT, pa.array([1] * table.num_rows, pa.int64()))

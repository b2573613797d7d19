"""The net effect of Arrow rows: counts added up per row, zeros dropped.

NULL equals NULL and NaN equals NaN here, as rows are compared whole. Zeros of either sign stay apart, which
costs a row more and changes nothing: whoever adds the counts up again treats them as one.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from rollview.sources.source import COUNT


def counted(table: pa.Table, count: int) -> pa.Table:
    """The rows with this count each."""
    return table.append_column(COUNT, pa.repeat(pa.scalar(count, pa.int64()), table.num_rows))


def net_effect(table: pa.Table) -> pa.Table:
    """One row per distinct row whose counts do not cancel."""
    names = [name for name in table.column_names if name != COUNT]
    if any(pa.types.is_nested(table.schema.field(name).type) for name in names):
        return _of_nested(table)
    total = table.group_by(names).aggregate([(COUNT, "sum")]).rename_columns([*names, COUNT])
    return total.filter(pc.not_equal(total[COUNT], 0)).select([*names, COUNT]).cast(table.schema)


def _of_nested(table: pa.Table) -> pa.Table:
    """The same row by row: Arrow does not compare arrays and structs."""
    rows: dict[str, list[int]] = {}
    counted_rows = zip(table.drop_columns([COUNT]).to_pylist(), table[COUNT].to_pylist(), strict=True)
    for number, (row, count) in enumerate(counted_rows):
        rows.setdefault(repr(row), [number, 0])[1] += count
    left = [(number, count) for number, count in rows.values() if count]
    taken = table.take(pa.array([number for number, _ in left], pa.int64()))
    counts = pa.array([count for _, count in left], pa.int64())
    return taken.set_column(taken.schema.get_field_index(COUNT), COUNT, counts).cast(table.schema)

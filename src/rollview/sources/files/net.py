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
    total = table.group_by(names).aggregate([(COUNT, "sum")]).rename_columns([*names, COUNT])
    return total.filter(pc.not_equal(total[COUNT], 0)).select([*names, COUNT]).cast(table.schema)

"""The snapshot differential: what changed from one dump to the next.

It is the bag difference of the two, which is one and the same whether rows are compared whole or matched by
a key: a row that is in both is no change, an update is a deletion and an insertion. A declared key is
checked, because a dump in which it occurs twice was written wrongly, and views may rely on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from rollview.errors import DumpError
from rollview.sources.files.net import counted, net_effect


def differential(before: pa.Table, after: pa.Table) -> pa.Table:
    """The rows that came (+) and went (−), with `_count`."""
    return net_effect(pa.concat_tables([counted(after, 1), counted(before, -1)]))


def check_key(table: str, dump: str, rows: pa.Table, key: Sequence[str]) -> None:
    """Refuses a dump in which the key is NULL or occurs twice, with the offending value."""
    if not key:
        return
    groups = rows.select(list(key)).group_by(list(key)).aggregate([([], "count_all")])
    wrong = pc.greater(groups["count_all"], 1)
    for name in key:
        wrong = pc.or_(wrong, pc.is_null(groups[name]))
    offending = groups.filter(wrong).slice(0, 1).to_pylist()
    if not offending:
        return
    count = offending[0].pop("count_all")
    value = ", ".join(f"{name} = {'NULL' if part is None else part}" for name, part in offending[0].items())
    raise DumpError(
        f"({', '.join(key)}) is not a key of dump {dump} of {table}: {value} occurs {count} "
        f"time{'s' if count > 1 else ''}",
        subject=f"{table}/{dump}",
        hint="correct the dump, or declare another key or none",
    )

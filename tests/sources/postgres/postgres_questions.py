"""Sub-queries for tests: a change of a table elsewhere looks for rows here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from rollview.algebra.join_graph import access_path
from rollview.algebra.relation import Table
from rollview.algorithms.effects import Question
from rollview.planning import parse_view
from rollview.rows import arrow_type
from rollview.sources.postgres import PostgresSource

Keys = Mapping[str, tuple[str, Sequence[Any]]]
"""By column: a Spark type and values."""


def question(source: PostgresSource, sql: str, keys: Keys) -> Question[pa.Table]:
    """The question that a change of `w.probe`, the view's first table, asks; its columns are the keys."""
    probe = Table("w", "probe", tuple(keys), types=tuple(kind for kind, _ in keys.values()))
    (block,) = parse_view(sql, [probe, *source.tables()]).blocks
    (sub_query, *_) = access_path(block, 0).rounds[0]
    shipped: list[pa.Table | None] = []
    for join_step in sub_query.join_steps:
        if join_step.shipped:
            names = [parent for parent, _ in join_step.on]
            columns = [keys[name.partition(".")[2]] for name in names]
            arrays = [pa.array(values, arrow_type(kind)) for kind, values in columns]
            shipped.append(pa.table(arrays, names=names) if names else None)
    return Question(block, sub_query, tuple(shipped))

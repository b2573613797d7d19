"""Plans for tests, made as the service makes them: what a change of a view's first relation looks up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from rollview.algebra.join_graph import access_path
from rollview.algorithms.effects import Question
from rollview.planning import parse_view
from rollview.service.lookup import Rules, plan_lookups
from rollview.sources.source import Lookup, Table


def first_question(sql: str, tables: Iterable[Table], keys: Mapping[str, pa.Array]) -> Question[pa.Table]:
    """The first sub-query of a view of one block; `keys` by column of its first relation."""
    (block,) = parse_view(sql, tables).blocks
    (sub_query, *_) = access_path(block, 0).rounds[0]
    shipped: list[pa.Table | None] = []
    for join_step in sub_query.join_steps:
        if join_step.shipped:
            names = [parent for parent, _ in join_step.on]
            columns = [keys[name.partition(".")[2]] for name in names]
            shipped.append(pa.Table.from_arrays(columns, names=names) if names else None)
    return Question(block, sub_query, tuple(shipped))


def first_plan(
    rules: Rules, sql: str, tables: Iterable[Table], keys: Mapping[str, pa.Array]
) -> tuple[Lookup, ...]:
    """The plan of the first sub-query, for a source with these rules."""
    return plan_lookups(first_question(sql, tables, keys), rules)

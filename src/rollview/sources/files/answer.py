"""Sub-queries answered from files: the matching rows if they can be read now, or a scan for Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from rollview.algebra.join_graph import Reach
from rollview.algorithms.effects import Question
from rollview.rows import Rows
from rollview.sources.files.wanted import Wanted, wanted_values
from rollview.sources.source import columns_to_read


class State(Protocol):
    """A table at one state."""

    @property
    def types(self) -> Mapping[str, str]:
        """Its columns with their Spark SQL types."""

    def everything(self, columns: Sequence[str]) -> Rows:
        """All rows: these columns and `_count`."""

    def matching(self, columns: Sequence[str], wanted: Sequence[Wanted], now: bool) -> Rows:
        """At least the rows that have one of the wanted values in each column; `now`: as an Arrow table."""


def answer(question: Question[pa.Table], state: State) -> tuple[Rows, ...]:
    """The rows for each reach of the question, all at this state."""
    shipped = iter(question.keys)
    found: dict[int, Rows] = {}
    for reach in question.sub_query.reaches:
        keys: Rows | None = next(shipped) if reach.shipped else None
        if not reach.shipped and reach.parent is not None:
            keys = found[reach.parent]
        found[reach.relation] = _look_up(question, reach, keys, state)
    return tuple(found[reach.relation] for reach in question.sub_query.reaches)


def _look_up(question: Question[pa.Table], reach: Reach, keys: Rows | None, state: State) -> Rows:
    block = question.block
    columns = columns_to_read(block, reach.relation)
    # A parent that is only a scan is as good as everything: its values are not known here.
    if reach.parent is None or not isinstance(keys, pa.Table):
        return state.everything(columns)
    relation = block.relations[reach.relation]
    own = dict(zip(relation.columns, relation.table.columns, strict=True))
    parent = block.relations[reach.parent]
    inside = dict(zip(parent.columns, parent.table.columns, strict=True))
    on = [(key if reach.shipped else inside[key], own[column]) for key, column in reach.on]
    wanted = wanted_values(keys, on, state.types)
    if not wanted:
        return state.everything(columns)
    has_children = any(
        other.parent == reach.relation and not other.shipped for other in question.sub_query.reaches
    )
    return state.matching(columns, wanted, now=has_children)

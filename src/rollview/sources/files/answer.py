"""Sub-queries answered from files: the matching rows if they can be read now, or a scan for Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from rollview.algebra.join_graph import JoinStep
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
    for join_step in question.sub_query.join_steps:
        keys: Rows | None = next(shipped) if join_step.shipped else None
        if not join_step.shipped and join_step.parent is not None:
            keys = found[join_step.parent]
        found[join_step.relation] = _look_up(question, join_step, keys, state)
    return tuple(found[join_step.relation] for join_step in question.sub_query.join_steps)


def _look_up(question: Question[pa.Table], join_step: JoinStep, keys: Rows | None, state: State) -> Rows:
    block = question.block
    columns = columns_to_read(block, join_step.relation)
    # A parent that is only a scan is as good as everything: its values are not known here.
    if join_step.parent is None or not isinstance(keys, pa.Table):
        return state.everything(columns)
    relation = block.relations[join_step.relation]
    own = dict(zip(relation.columns, relation.table.columns, strict=True))
    parent = block.relations[join_step.parent]
    inside = dict(zip(parent.columns, parent.table.columns, strict=True))
    on = [(key if join_step.shipped else inside[key], own[column]) for key, column in join_step.on]
    wanted = wanted_values(keys, on, state.types)
    if not wanted:
        return state.everything(columns)
    has_children = any(
        other.parent == join_step.relation and not other.shipped for other in question.sub_query.join_steps
    )
    return state.matching(columns, wanted, now=has_children)

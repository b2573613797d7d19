"""What a sub-query looks for at a server, decided once for all dialects.

A key is shipped only where values that are equal in Spark are equal at the server, too; a relation that has
no such key is read as a whole, because more rows than asked for are harmless and fewer are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rollview.algebra.block import Block
from rollview.algebra.expression import Expression
from rollview.algebra.join_graph import JoinStep
from rollview.algebra.relation import Relation, Table
from rollview.algorithms.effects import Question
from rollview.rows import spark_type
from rollview.sources.source import columns_to_read

Comparable = Callable[[str, str], bool]
"""Whether a key of the first Spark type finds, in a column of the second, all that is equal in Spark."""

Pushed = Callable[[Relation, Expression], str | None]
"""A local condition as SQL, or None if it is left to the caller."""


@dataclass(frozen=True)
class Wanted:
    """One relation of a sub-query. Neither `keys` nor `parent`: the whole table, filtered.

    `keys` are shipped, its columns called as the table's own. `parent` is a place in the plan: the rows
    that match one of the parent's rows in this same answer; `on` pairs the parent's own columns with this
    table's own.
    """

    position: int
    table: Table
    columns: tuple[str, ...]
    conditions: tuple[str, ...]
    keys: pa.Table | None = None
    parent: int | None = None
    on: tuple[tuple[str, str], ...] = ()


def plan(question: Question[pa.Table], comparable: Comparable, pushed: Pushed) -> tuple[Wanted, ...]:
    """What to look for, one `Wanted` per reach, parents before children."""
    block, shipped = question.block, iter(question.keys)
    places: dict[int, int] = {}
    wanted: list[Wanted] = []
    for join_step in question.sub_query.join_steps:
        keys = next(shipped) if join_step.shipped else None
        places[join_step.relation] = len(wanted)
        if keys is not None:
            wanted.append(_shipped(block, join_step, keys, comparable, pushed))
        elif join_step.parent is not None:
            wanted.append(_found(block, join_step, places[join_step.parent], comparable, pushed))
        else:
            wanted.append(_whole(block, join_step, pushed))
    return tuple(wanted)


def _whole(block: Block, join_step: JoinStep, pushed: Pushed) -> Wanted:
    relation = block.relations[join_step.relation]
    conditions = [pushed(relation, condition) for condition in block.local[join_step.relation]]
    columns = columns_to_read(block, join_step.relation)
    return Wanted(join_step.relation, relation.table, columns, tuple(text for text in conditions if text))


def _shipped(
    block: Block, join_step: JoinStep, keys: pa.Table, comparable: Comparable, pushed: Pushed
) -> Wanted:
    whole = _whole(block, join_step, pushed)
    own_names, types = _own_names(block, join_step.relation), _types(whole.table)
    usable = {
        own_names[own]: parent
        for parent, own in join_step.on
        if comparable(spark_type(keys.schema.field(parent).type), types[own_names[own]])
    }
    if not usable:
        return whole
    return Wanted(
        whole.position,
        whole.table,
        whole.columns,
        whole.conditions,
        distinct_keys(keys, list(usable.items())),
    )


def _found(block: Block, join_step: JoinStep, place: int, comparable: Comparable, pushed: Pushed) -> Wanted:
    whole = _whole(block, join_step, pushed)
    assert join_step.parent is not None
    own_names, types = _own_names(block, join_step.relation), _types(whole.table)
    parent_names, parent_types = (
        _own_names(block, join_step.parent),
        _types(block.relations[join_step.parent].table),
    )
    usable = tuple(
        (parent_names[parent], own_names[own])
        for parent, own in join_step.on
        if comparable(parent_types[parent_names[parent]], types[own_names[own]])
    )
    if not usable:
        return whole
    return Wanted(whole.position, whole.table, whole.columns, whole.conditions, None, place, usable)


def distinct_keys(keys: pa.Table, names: Sequence[tuple[str, str]]) -> pa.Table:
    """The key values under the table's own names, each once; NULL matches nothing."""
    owns = [own for own, _ in names]
    table = pa.Table.from_arrays([keys.column(theirs) for _, theirs in names], names=owns)
    for own in owns:
        table = table.filter(pc.is_valid(table.column(own)))
    return table.group_by(owns, use_threads=False).aggregate([]).select(owns)


def _own_names(block: Block, position: int) -> dict[str, str]:
    relation = block.relations[position]
    return dict(zip(relation.columns, relation.table.columns, strict=True))


def _types(table: Table) -> dict[str, str]:
    return dict(zip(table.columns, table.types, strict=True))

"""plan_lookups: what a source is asked for a sub-query, decided once for all sources.

A key column is shipped only where values that are equal in Spark are found at the source, and a local
condition is pushed only where the source's comparison keeps every row that Spark's keeps; each source says
where that is (`can_compare`, `can_push`). A relation without a key that can be shipped is read as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import pyarrow as pa

from rollview.algebra.expression import Call, Column, Expression, Literal, columns_of
from rollview.algebra.join_graph import JoinStep
from rollview.algebra.node import Block
from rollview.algebra.relation import Relation, Table
from rollview.algebra.view import View
from rollview.algorithms.effects import Question
from rollview.catalog import ViewRecord
from rollview.planning import named_columns
from rollview.rows import arrow_schema, spark_type
from rollview.sources.source import COMPARISONS, IN, Comparison, Lookup, distinct_keys


class Rules(Protocol):
    """The comparison rules of a source."""

    def can_compare(self, key_type: str, column_type: str) -> bool:
        """See `Source.can_compare`."""

    def can_push(self, comparison: Comparison, column_type: str) -> bool:
        """See `Source.can_push`."""


def plan_lookups(question: Question[pa.Table], rules: Rules) -> tuple[Lookup, ...]:
    """One look-up for each step of the question's sub-query, in its order."""
    shipped = iter(question.keys)
    places: dict[int, int] = {}
    plan: list[Lookup] = []
    for join_step in question.sub_query.join_steps:
        keys = next(shipped) if join_step.shipped else None
        if keys is not None:
            lookup = _by_keys(question.block, join_step, keys, rules)
        elif join_step.parent is not None:
            lookup = _by_parent(question.block, join_step, places[join_step.parent], rules)
        else:
            lookup = _lookup(question.block, join_step.relation, rules)
        places[join_step.relation] = len(plan)
        plan.append(lookup)
    return tuple(plan)


def columns_to_read(block: Block, position: int) -> tuple[str, ...]:
    """The columns of a relation, by the table's own names, that its local conditions or the block use."""
    relation = block.relations[position]
    used = set(block.needed[position])
    for condition in block.local[position]:
        used.update(columns_of(condition))
    return tuple(own for inside, own in _own_names(relation).items() if inside in used)


def comparisons_of(block: Block, position: int) -> tuple[Comparison, ...]:
    """The local conditions of a relation that are comparisons with constants."""
    relation = block.relations[position]
    compared = (_as_comparison(relation, condition) for condition in block.local[position])
    return tuple(each for each in compared if each)


def _lookup(
    block: Block,
    position: int,
    rules: Rules,
    keys: pa.Table | None = None,
    parent: int | None = None,
    on: tuple[tuple[str, str], ...] = (),
) -> Lookup:
    relation = block.relations[position]
    types = _types(relation.table)
    compared = comparisons_of(block, position)
    conditions = tuple(each for each in compared if rules.can_push(each, types[each.column]))
    columns = columns_to_read(block, position)
    return Lookup(relation.table, columns, keys, parent, on, conditions)


def _by_keys(block: Block, join_step: JoinStep, keys: pa.Table, rules: Rules) -> Lookup:
    types = _types(block.relations[join_step.relation].table)
    pairs = _pairs(block, join_step)
    distinct = distinct_keys(keys, [(theirs, own) for own, theirs in pairs.items()])
    if not distinct.num_rows:
        # Nothing can match, whatever the types are.
        nothing = arrow_schema((own, types[own]) for own in pairs).empty_table()
        return _lookup(block, join_step.relation, rules, nothing)
    key_types = {field.name: spark_type(field.type) for field in distinct.schema}
    usable = [own for own in pairs if rules.can_compare(key_types[own], types[own])]
    if not usable:
        return _lookup(block, join_step.relation, rules)
    if len(usable) < len(pairs):
        distinct = distinct_keys(distinct, [(own, own) for own in usable])
    return _lookup(block, join_step.relation, rules, distinct)


def _by_parent(block: Block, join_step: JoinStep, place: int, rules: Rules) -> Lookup:
    assert join_step.parent is not None
    parent = block.relations[join_step.parent]
    types, parent_types = _types(block.relations[join_step.relation].table), _types(parent.table)
    parent_names = _own_names(parent)
    usable = tuple(
        (parent_names[name], own)
        for own, name in _pairs(block, join_step).items()
        if rules.can_compare(parent_types[parent_names[name]], types[own])
    )
    if not usable:
        return _lookup(block, join_step.relation, rules)
    return _lookup(block, join_step.relation, rules, None, place, usable)


def _pairs(block: Block, join_step: JoinStep) -> dict[str, str]:
    """By column of the table, under its own name, the parent's column that it equals."""
    own_names = _own_names(block.relations[join_step.relation])
    return {own_names[own]: theirs for theirs, own in join_step.on}


def _as_comparison(relation: Relation, condition: Expression) -> Comparison | None:
    """A comparison of a column with constants as data; None if it is anything else."""
    match condition:
        case Call(function=operator, arguments=(Column(name=name), *constants)):
            values = tuple(each.value for each in constants if isinstance(each, Literal))
        case _:
            return None
    known = tuple(value for value in values if value is not None)
    if not known or len(known) < len(constants) or not (operator == IN or operator in COMPARISONS):
        return None
    return Comparison(_own_names(relation)[name], operator, known)


def _own_names(relation: Relation) -> Mapping[str, str]:
    return dict(zip(relation.columns, relation.table.columns, strict=True))


def _types(table: Table) -> Mapping[str, str]:
    return dict(zip(table.columns, table.types, strict=True))


# The columns of base tables that a view uses. Changes of all others do not concern it.


def used_tables(view: View, known: Iterable[Table]) -> dict[str, Table]:
    """The base tables of a view, less the columns that it does not use; keys stay, and one column always.

    It uses what its text names, and what it shows by a `*`.
    """
    used = named_columns(view.exact_sql, known)
    for part in view.parts:
        for block in part.blocks:
            for position, relation in enumerate(block.relations):
                if relation.table.source:
                    own = used.setdefault(relation.table.qualified, set())
                    own.update(columns_to_read(block, position))
    tables = {table.qualified: table for table in view.named_tables if table.source}
    return {
        name: table.only({*used.get(name, ()), *table.key} or set(table.columns[:1]))
        for name, table in tables.items()
    }


def as_set_up(record: ViewRecord | None, sql: str, tables: Mapping[str, Table]) -> dict[str, Table]:
    """The tables that a view's text is about: as they were at its setup, if they still have all of that.

    So `SELECT *` keeps its meaning, whatever columns have been added since.
    """
    if record is None or record.sql.strip() != sql.strip():
        return {}
    return {
        table.qualified: now.only(table.columns)
        for table in record.tables
        if (now := tables.get(table.qualified)) is not None and has_all(now, table)
    }


def has_all(now: Table, before: Table) -> bool:
    """Whether a table has all columns of another one, with the same types."""
    kinds = dict(zip(now.columns, now.types, strict=True))
    return all(kinds.get(name) == kind for name, kind in zip(before.columns, before.types, strict=True))


def to_capture(now: Table, before: Table | None) -> Table:
    """The columns to capture of a table: all but those that its change log has with another type."""
    if before is None:
        return now
    kinds = dict(zip(before.columns, before.types, strict=True))
    pairs: Iterable[tuple[str, str]] = zip(now.columns, now.types, strict=True)
    return now.only({name for name, kind in pairs if kinds.get(name, kind) == kind})

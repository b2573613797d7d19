"""SQL text to a view definition in normal form.

The text is Spark SQL: a SELECT, or CREATE MATERIALIZED VIEW as Spark Declarative Pipelines write it. What
cannot be maintained is refused with its place in the text; nothing is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlglot import exp
from sqlglot.errors import TokenError

from rollview.algebra.node import Block, Node
from rollview.algebra.relation import Table
from rollview.algebra.view import View, is_stage
from rollview.errors import ViewError
from rollview.operators.recomputed import Recomputed
from rollview.operators.registry import OPERATORS, whole_grammar
from rollview.operators.translation import Translation, Types, Untyped
from rollview.planning.table_properties import COMMENT, check_table_property
from rollview.planning.table_properties import OWN_PREFIX as _PREFIX
from rollview.sql.errors import NodeError, Text, did_you_mean, suppress_known_to_spark
from rollview.sql.names.ctes import without_ctes
from rollview.sql.passes.unnamed_outputs import with_names
from rollview.sql.pipeline import plain
from rollview.sql.statement import declared, query_of, too_deep
from rollview.sql.text.declaration import Declaration, at
from rollview.sql.text.total_order import open_orders, with_choices, with_marks, with_total_orders

UNTYPED = Untyped()


def parse_view(sql: str, tables: Iterable[Table], name: str = "", types: Types = UNTYPED) -> View:
    """The view that the SQL defines over these tables; `name` is for a SELECT, which has none.

    Another view that it reads is a table without a source. `types` is asked as stages and averages are met.
    """
    tables = tuple(tables)
    try:
        # A stage's text comes from a complete text.
        exact = sql if is_stage(name) else _exact(sql, tables, name)
        view = _parse(exact, tables, name, types)
    except (RecursionError, TokenError):
        # The caller at the end of the stack raises its own error.
        raise too_deep() from None
    return view if exact == sql else replace(view, sql=sql.strip(), ordered_sql=exact)


def _exact(sql: str, tables: tuple[Table, ...], name: str) -> str:
    """The text that leaves open nothing about rows and values that are ordered alike."""
    chosen = with_choices(sql)
    places = open_orders(chosen)
    if chosen == sql and not places:
        return sql
    # As it is written, to report an error at its place.
    _parse(sql, tables, name, UNTYPED)
    marked = _plain_query(query_of(with_marks(chosen, places)), tables)
    return with_total_orders(chosen, places, marked, tables)


def _parse(sql: str, tables: tuple[Table, ...], name: str, types: Types) -> View:
    query, declaration = query_of(sql), declared(sql)
    try:
        name = name or "view" if declaration is None else declaration.name
        named = not is_stage(name)
        translation = Translation(name, tables, OPERATORS, types, named, instead=Recomputed.instead)
        root = _root(query, translation)
        view = View(name, root, sql.strip(), stages=translation.used_stages(root), types=translation.types)
    except NodeError as fault:
        raise Text(sql).located(fault) from None
    if declaration is None:
        return view
    blocks = [block for part in view.parts for block in part.blocks]
    return _with_properties(view, read_properties(sql, declaration, blocks))


def _root(query: exp.Expr, translation: Translation) -> Node:
    with suppress_known_to_spark() as faults:
        return translation.node(_plain_query(query.copy(), translation.tables))
    # It did not get as far as to be translated.
    return translation.recomputed(without_ctes(with_names(query)), faults[0])


def _plain_query(query: exp.Expr, tables: tuple[Table, ...]) -> exp.Expr:
    """A query without what is no more than a way of writing."""
    return plain(query, tables, whole_grammar())


def plain_query(sql: str, tables: Iterable[Table]) -> exp.Expr:
    """The query of a view that has been parsed before, without what is no more than a way of writing."""
    with suppress_known_to_spark():
        return _plain_query(query_of(sql), tuple(tables))
    return without_ctes(with_names(query_of(sql)))


def _with_properties(view: View, properties: dict[str, str]) -> View:
    """A property of a view holds for all its parts."""
    stages = tuple(_with_properties(stage, properties) for stage in view.stages)
    return replace(view, properties=properties, stages=stages)


KEYS = (
    "policy",
    "consistency",
    "algorithm",
    "interval",
    "refresh",
    "on_loss",
    "verify",
    "schedule",
    "max_staleness",
    "condense_after",
    "foreign_keys",
)
"""The names after `rollview.`; `interval` may itself be followed by a relation."""


def read_properties(sql: str, declaration: Declaration, blocks: Iterable[Block]) -> dict[str, str]:
    """The properties of CREATE MATERIALIZED VIEW; COMMENT is kept as the property `comment`."""
    relations = [relation for block in blocks for relation in block.relations]
    names = [relation.alias for relation in relations] + [relation.table.qualified for relation in relations]
    for key, value in declaration.properties.items():
        try:
            _check_key(key, names)
            check_table_property(key, value)
        except ViewError as error:
            raise at(sql, declaration.places[key], error) from None
    comment = {} if declaration.comment is None else {COMMENT: declaration.comment}
    return {**comment, **declaration.properties}


def _check_key(key: str, names: list[str]) -> None:
    if not key.startswith(_PREFIX):
        return
    word = key.removeprefix(_PREFIX)
    if word.startswith("interval."):
        relation = word.removeprefix("interval.")
        if relation.lower() not in [name.lower() for name in names]:
            hint = did_you_mean(relation, names, otherwise=f"the view has {', '.join(names)}")
            raise ViewError(f"the property `{key}` names no relation of the view", subject=key, hint=hint)
    elif word not in KEYS:
        known = [_PREFIX + name for name in KEYS]
        hint = did_you_mean(key, known, otherwise=f"known: {', '.join(known)}")
        raise ViewError(f"unknown property `{key}`", subject=key, hint=hint)

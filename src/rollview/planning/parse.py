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
from rollview.operators.recomputed import Recomputed
from rollview.operators.registry import OPERATORS, whole_grammar
from rollview.operators.translation import Translation, Types, Untyped
from rollview.sql.dialect import DIALECT
from rollview.sql.errors import NodeError, Text, did_you_mean, mistake, refusal, suppress_known_to_spark
from rollview.sql.names.ctes import without_ctes
from rollview.sql.passes.unnamed_outputs import with_names
from rollview.sql.pipeline import plain
from rollview.sql.statement import name_of, query_of, statement_of, too_deep
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
    marked = _plain_query(statement_of(with_marks(chosen, places)), tables)
    return with_total_orders(chosen, places, marked, tables)


def _parse(sql: str, tables: tuple[Table, ...], name: str, types: Types) -> View:
    statement = statement_of(sql)
    try:
        created = isinstance(statement, exp.Create)
        name = name_of(statement) if created else name or "view"
        named = not is_stage(name)
        translation = Translation(name, tables, OPERATORS, types, named, instead=Recomputed.instead)
        root = _root(statement, translation)
        view = View(name, root, sql.strip(), stages=translation.used_stages(root), types=translation.types)
        if not isinstance(statement, exp.Create):
            return view
        blocks = [block for part in view.parts for block in part.blocks]
        return _with_properties(view, read_properties(statement, blocks))
    except NodeError as fault:
        raise Text(sql).located(fault) from None


def _root(statement: exp.Expr, translation: Translation) -> Node:
    with suppress_known_to_spark() as faults:
        return translation.node(_plain_query(statement, translation.tables))
    # It did not get as far as to be translated.
    return translation.recomputed(without_ctes(with_names(query_of(statement))), faults[0])


def _plain_query(statement: exp.Expr, tables: tuple[Table, ...]) -> exp.Expr:
    """The query of a statement without what is no more than a way of writing."""
    return plain(query_of(statement), tables, whole_grammar())


def plain_query(sql: str, tables: Iterable[Table]) -> exp.Expr:
    """The query of a view that has been parsed before, without what is no more than a way of writing."""
    statement = statement_of(sql)
    with suppress_known_to_spark():
        return _plain_query(statement, tuple(tables))
    return without_ctes(with_names(query_of(statement)))


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

_PREFIX = "rollview."


def read_properties(create: exp.Create, blocks: Iterable[Block]) -> dict[str, str]:
    """The properties of CREATE MATERIALIZED VIEW; COMMENT is kept as the property `comment`."""
    relations = [relation for block in blocks for relation in block.relations]
    names = [relation.alias for relation in relations] + [relation.table.qualified for relation in relations]
    found: dict[str, str] = {}
    properties = create.args.get("properties")
    for node in properties.expressions if properties else ():
        if isinstance(node, exp.MaterializedProperty):
            continue
        if isinstance(node, exp.SchemaCommentProperty):
            key, value = "comment", node.this
        elif type(node) is exp.Property:
            key, value = _key(node.this), node.args["value"]
        else:
            raise refusal(node, f"{node.sql(dialect=DIALECT)} in CREATE MATERIALIZED VIEW")
        _check_key(node, key, names)
        if key in found:
            raise mistake(node, f"the property `{key}` is given twice", subject=key)
        if not isinstance(value, exp.Literal | exp.Boolean):
            message = f"the property `{key}` needs a constant"
            raise mistake(node, message, subject=key, hint="write it in quotes")
        found[key] = str(value.this).lower() if isinstance(value, exp.Boolean) else value.name
    return found


def _key(node: exp.Expr) -> str:
    """A key in quotes, or words with dots between them."""
    if isinstance(node, exp.Dot):
        return f"{_key(node.this)}.{_key(node.expression)}"
    return node.name


def _check_key(node: exp.Expr, key: str, names: list[str]) -> None:
    if not key.startswith(_PREFIX):
        return
    word = key.removeprefix(_PREFIX)
    if word.startswith("interval."):
        relation = word.removeprefix("interval.")
        if relation.lower() not in [name.lower() for name in names]:
            hint = did_you_mean(relation, names, otherwise=f"the view has {', '.join(names)}")
            raise mistake(node, f"the property `{key}` names no relation of the view", subject=key, hint=hint)
    elif word not in KEYS:
        known = [_PREFIX + name for name in KEYS]
        hint = did_you_mean(key, known, otherwise=f"known: {', '.join(known)}")
        raise mistake(node, f"unknown property `{key}`", subject=key, hint=hint)

"""The names in the text of a view: relations, columns, functions, the view itself. Nothing is translated.

A text can only be read over tables that have the columns that it names, whether or not the view depends on
them: `SELECT a.k FROM (SELECT k, word FROM t) a` names a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from sqlglot import exp

from rollview.algebra.relation import Relation, Table
from rollview.operators.registry import whole_grammar
from rollview.sql.dialect import DIALECT
from rollview.sql.errors import NodeError, Text, suppress_known_to_spark
from rollview.sql.grammar import check_supported
from rollview.sql.names.ctes import is_cte, without_ctes
from rollview.sql.names.scope import find_relation
from rollview.sql.passes.execution_hints import without_execution_hints
from rollview.sql.passes.repeated_names import write_stars_apart
from rollview.sql.passes.unnamed_outputs import is_called_so, with_names
from rollview.sql.passes.values import without_values
from rollview.sql.statement import declared, query_of, too_deep
from rollview.sql.tree import bare, is_parenthesised


@lru_cache(maxsize=1024)
def referenced_names(sql: str) -> tuple[str, ...]:
    """The names that the view reads in FROM: `source.table`, or a bare name for another view; each once.

    Names are case-insensitive. Nothing is looked up, so that views can be put in order before that.
    """
    tables = _checked_query(sql).find_all(exp.Table, bfs=False)
    return _names(table for table in tables if not is_cte(table) and not isinstance(table.this, exp.Func))


def occurrences(sql: str) -> list[str]:
    """The names in FROM, in lower case, as often as the text has them."""
    query = query_of(sql)
    return [".".join(part.name for part in table.parts).lower() for table in query.find_all(exp.Table)]


def starred_names(sql: str) -> tuple[str, ...]:
    """The names in FROM of which the view shows all columns, by a `*`."""
    return _names(_starred(_checked_query(sql)))


def named_columns(sql: str, tables: Iterable[Table]) -> dict[str, set[str]]:
    """The columns that the text names, by the tables that have them."""
    found: dict[str, set[str]] = {}
    for table, column in _named(_checked_query(sql), tables):
        found.setdefault(table, set()).add(column)
    return found


def unknown_functions(sql: str) -> tuple[str, ...]:
    """The functions in a view that the parser does not know: Spark's, or user-defined ones."""
    found = (each.name for each in query_of(sql).find_all(exp.Anonymous))
    return tuple(dict.fromkeys(found))


def has_idle_order(sql: str) -> bool:
    """Whether the view says ORDER BY without LIMIT: a stored view has no order, so that it has no effect."""
    query = query_of(sql)
    arguments = query.args
    return bool(arguments.get("order")) and not (arguments.get("limit") or arguments.get("offset"))


def names_given(sql: str, tables: Iterable[Table]) -> dict[str, str]:
    """The outputs of the view that have no name, as they are written, and what they are called."""
    query = without_ctes(query_of(sql))
    top = query
    while isinstance(top, exp.SetOperation | exp.Subquery):
        top = top.this
    if not isinstance(top, exp.Select):
        return {}
    write_stars_apart(top, tuple(tables))
    written = [
        "" if is_called_so(item, top.expressions[:place]) else item.sql(dialect=DIALECT)
        for place, item in enumerate(top.expressions)
    ]
    with_names(query)
    return {text: item.alias for text, item in zip(written, top.expressions, strict=True) if text}


def view_name(sql: str) -> str | None:
    """The name after CREATE MATERIALIZED VIEW; None for a SELECT alone."""
    try:
        query_of(sql)
    except RecursionError:
        raise too_deep() from None
    declaration = declared(sql)
    return None if declaration is None else declaration.name


def _names(tables: Iterable[exp.Table]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(".".join(part.name for part in table.parts) for table in tables))


def _checked_query(sql: str) -> exp.Expr:
    query = query_of(sql)
    try:
        query = without_ctes(without_execution_hints(query))
        with suppress_known_to_spark():
            query = without_values(query)
            check_supported(query, whole_grammar())
    except NodeError as fault:
        raise Text(sql).located(fault) from None
    except RecursionError:
        raise too_deep() from None
    return query


_NO_COLUMNS = (exp.Alias, exp.TableAlias, exp.Table, exp.Dot)
"""Identifiers right below these are new names, tables, or fields of a struct."""


def _named(query: exp.Expr, tables: Iterable[Table]) -> Iterator[tuple[str, str]]:
    """The columns of tables that a query names, as pairs of table and column; some more than once."""
    tables = tuple(tables)
    relations: dict[int, list[Relation]] = {}
    for node in query.find_all(exp.Table):
        if is_cte(node) or isinstance(node.this, exp.Func):
            continue
        relation = find_relation(node, tables)
        relations.setdefault(id(node.parent_select), []).append(relation)
        alias = node.args.get("alias")
        if alias is not None and alias.columns:
            # Columns that are called by their places.
            yield from ((relation.table.qualified, name) for name in relation.table.columns)
    for identifier in query.find_all(exp.Identifier):
        if not isinstance(identifier.parent, _NO_COLUMNS):
            yield from _meant(identifier, relations)


def _meant(identifier: exp.Identifier, relations: dict[int, list[Relation]]) -> list[tuple[str, str]]:
    """The columns of that name in the innermost query that has one."""
    name, column = identifier.name.lower(), identifier.parent
    alias = ""
    if isinstance(column, exp.Column) and identifier is column.this:
        alias = column.table.lower()
    select = identifier.parent_select
    while select is not None:
        found = [
            (relation.table.qualified, each)
            for relation in relations.get(id(select), ())
            if alias in ("", relation.alias.lower())
            for each in relation.table.columns
            if each.lower() == name
        ]
        if found:
            return found
        select = select.parent_select
    return []


def _starred(query: exp.Expr) -> Iterator[exp.Table]:
    """The FROM items whose new columns the query would show if it were written today."""
    query = bare(query)
    if isinstance(query, exp.SetOperation):
        yield from _starred(query.this)
        yield from _starred(query.expression)
    elif isinstance(query, exp.Select):
        clauses = [clause for clause in (query.args.get("from_"), *_joins(query)) if clause is not None]
        items = [item for clause in clauses for item in _items(clause.this)]
        for node in query.expressions:
            if isinstance(node, exp.Star):
                shown = items
            elif isinstance(node, exp.Column) and node.is_star:
                shown = [item for item in items if item.alias_or_name.lower() == node.table.lower()]
            else:
                continue
            for item in shown:
                if isinstance(item, exp.Table):
                    yield item
                else:
                    yield from _starred(item)


def _items(node: exp.Expr) -> Iterator[exp.Expr]:
    """A FROM item, or those that are joined in parentheses, with what is joined to each."""
    if isinstance(node, exp.Subquery) and is_parenthesised(node):
        yield from _items(node.this)
    else:
        yield node
    for join in _joins(node):
        yield from _items(join.this)


def _joins(node: exp.Expr) -> list[exp.Join]:
    """The joins whose right sides are shown."""
    return [join for join in node.args.get("joins") or [] if join.args.get("kind") not in ("SEMI", "ANTI")]

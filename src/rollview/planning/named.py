"""The columns of tables that a text names, whether or not what it defines depends on them.

A text can only be read over tables that have them: `SELECT a.k FROM (SELECT k, word FROM t) a` names a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import exp

from rollview.algebra.relation import Relation, Table
from rollview.sql.ctes import is_cte
from rollview.sql.scope import find_relation

_NO_COLUMNS = (exp.Alias, exp.TableAlias, exp.Table, exp.Dot)
"""Identifiers right below these are new names, tables, or fields of a struct."""


def named(query: exp.Expr, tables: Iterable[Table]) -> Iterator[tuple[str, str]]:
    """Pairs of table and column; some more than once."""
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

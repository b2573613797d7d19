"""Outputs that name earlier ones of the same SELECT, and groups that name outputs: each written out."""

from __future__ import annotations

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.names.outputs import scope_of
from rollview.sql.names.scope import Scope


def with_aliases_written_out(query: exp.Expr, tables: tuple[Table, ...]) -> exp.Expr:
    """An output that names an earlier one has its expression instead; columns of FROM go first."""
    if not isinstance(query, exp.Select):
        return query
    scope = scope_of(query, tables)
    known: dict[str, exp.Expr] = {}
    items: list[exp.Expr] = []
    changed = False
    for item in query.expressions:
        written = item.copy()
        written.parent = item.parent
        for each in list(written.find_all(exp.Column)):
            if _is_alias(each, written, scope, known):
                each.replace(exp.paren(known[each.name.lower()].copy()))
                changed = True
        items.append(written)
        if isinstance(written, exp.Alias):
            known.setdefault(written.alias.lower(), written.this)
    if not changed and not _names_outputs(query.args.get("group"), scope, known):
        return query
    select = query.copy()
    select.set("expressions", items)
    for each in _names_outputs(select.args.get("group"), scope, known):
        each.replace(known[each.name.lower()].copy())
    return select


def _names_outputs(group: exp.Expr | None, scope: Scope, known: dict[str, exp.Expr]) -> list[exp.Column]:
    """Where GROUP BY names outputs, also in ROLLUP, CUBE or GROUPING SETS; columns of FROM go first."""
    if group is None:
        return []
    sets = group.find_all(exp.Rollup, exp.Cube, exp.GroupingSets)
    columns = [each for one in sets for each in one.find_all(exp.Column)]
    columns += [each for each in group.expressions if isinstance(each, exp.Column)]
    unqualified = [each for each in columns if not each.table and each.name.lower() in known]
    return [each for each in unqualified if not scope.names(each)]


def _is_alias(node: exp.Column, item: exp.Expr, scope: Scope, known: dict[str, exp.Expr]) -> bool:
    if node.table or node.name.lower() not in known or scope.names(node):
        return False
    # A query inside of the output has names of its own.
    return node.find_ancestor(exp.Query) is item.find_ancestor(exp.Query)

"""The columns that a query names and that are not its own: those of what is around it."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.errors import NodeError
from rollview.sql.names.outputs import scope_of
from rollview.sql.names.scope import Scope
from rollview.sql.tree import bare, own


def names(scope: Scope, node: exp.Column) -> bool:
    """Whether a column is one of a scope; if it may be several, it is."""
    try:
        scope.resolve(node)
    except NodeError as error:
        return "ambiguous" in error.error.message
    return True


def own_columns(node: exp.Expr) -> Iterator[exp.Column]:
    """The columns that an expression names, not those in queries inside of it."""
    for each in own(node, exp.Column):
        if isinstance(each, exp.Column) and not isinstance(each.this, exp.Star):
            yield each


def free_columns(
    query: exp.Expr, scopes: tuple[Scope, ...], tables: tuple[Table, ...]
) -> Iterator[exp.Column]:
    """The columns in a query, at any depth, that are of none of its own FROM clauses."""
    query = bare(query)
    if isinstance(query, exp.SetOperation):
        for side in (query.this, query.expression):
            yield from free_columns(side, scopes, tables)
        return
    if not isinstance(query, exp.Select):
        return
    scopes = (scope_of(query, tables), *scopes)
    outputs = {item.alias.lower() for item in query.expressions if isinstance(item, exp.Alias)}
    waiting: list[tuple[exp.Expr, bool]] = [(query, False)]
    while waiting:
        node, is_late = waiting.pop()
        for name, value in node.args.items():
            late = is_late or (node is query and name in ("group", "having", "order"))
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, exp.Column) and not isinstance(part.this, exp.Star):
                    is_output = late and not part.table and part.name.lower() in outputs
                    if not is_output and not any(names(scope, part) for scope in scopes):
                        yield part
                elif isinstance(part, exp.Query) and isinstance(bare(part), exp.Query):
                    yield from free_columns(part, scopes, tables)
                    waiting += [(join, late) for join in part.args.get("joins") or () if join is not part]
                elif isinstance(part, exp.Expr):
                    waiting.append((part, late))

"""Groups and windows get a query of their own below them that has the LATERAL VIEW."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.dialect import DIALECT
from rollview.sql.errors import beyond
from rollview.sql.names.outputs import scope_of
from rollview.sql.passes.layers import has_window, is_grouped
from rollview.sql.tree import aliased


def with_generators_below(query: exp.Expr, tables: tuple[Table, ...]) -> exp.Expr:
    """The SELECT with its LATERAL VIEW in a query of its own below groups and windows, if it has both."""
    if not isinstance(query, exp.Select) or not query.args.get("laterals"):
        return query
    if not is_grouped(query) and not has_window(query):
        return query
    scope = scope_of(query, tables)
    known: dict[str, str] = {}

    def placed(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not node.is_star and (node.table or scope.names(node)):
            name = known.setdefault(node.sql(dialect=DIALECT), f"_below_{len(known) + 1}")
            return exp.column(name)
        return node

    outer = query.copy()
    items = []
    for item in outer.expressions:
        if item.is_star:
            raise beyond(item, "* with LATERAL VIEW and groups or windows", hint="name the columns")
        items.append(item if item.alias else aliased(item.copy(), item.alias_or_name, quoted=True))
    outer.set("expressions", items)
    for argument in ("expressions", "group", "having", "order", "windows"):
        _replace(outer, argument, placed)
    columns = [
        aliased(exp.maybe_parse(text, dialect=DIALECT), name, quoted=True) for text, name in known.items()
    ] or [aliased(exp.Literal.number(1), "_below_1")]
    inner = exp.Select(expressions=columns)
    for argument in ("from_", "joins", "laterals", "where"):
        inner.set(argument, outer.args.get(argument))
        outer.set(argument, None)
    below = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier("_layer")))
    outer.set("from_", exp.From(this=below))
    return outer


def _replace(select: exp.Select, argument: str, change: Callable[[exp.Expr], exp.Expr]) -> None:
    value = select.args.get(argument)
    if isinstance(value, list):
        select.set(argument, [each.transform(change) for each in value])
    elif value is not None:
        select.set(argument, value.transform(change))

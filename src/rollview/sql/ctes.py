"""WITH: each common table expression is put where it is named, so that any part of a query stands alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from sqlglot import exp

from rollview.sql.place import refusal

_Known = Mapping[str, exp.Subquery]


def without_ctes(query: exp.Expr) -> exp.Expr:
    """The query with a subquery for every name that a WITH gives; the same object where there is none."""
    return _expanded(query.copy(), {}) if query.find(exp.With) else query


def _expanded(query: exp.Expr, known: _Known) -> exp.Expr:
    """Expands names inside out: a WITH is seen by what follows in it, and by the query it belongs to."""
    own = query.args.get("with_")
    if own is not None:
        if own.args.get("recursive"):
            raise refusal(own, "WITH RECURSIVE")
        query.set("with_", None)
        for cte in own.expressions:
            known = {**known, cte.alias.lower(): _named(cte, known)}
    for node in list(_own_nodes(query)):
        if isinstance(node, exp.Table):
            _replace(node, known)
        else:
            node.replace(_expanded(node, known))
    return query


def _own_nodes(query: exp.Expr) -> list[exp.Expr]:
    """The tables that a query names itself, and the queries right below it."""
    found: list[exp.Expr] = []
    waiting = [*_children(query)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Table | exp.Select | exp.SetOperation):
            found.append(node)
            if isinstance(node, exp.Table):
                waiting += _children(node)
        elif isinstance(node, exp.Subquery) and node.args.get("with_"):
            found.append(node)
        else:
            waiting += _children(node)
    return found


def _children(node: exp.Expr) -> list[exp.Expr]:
    return list(node.iter_expressions())


def _named(cte: exp.CTE, known: _Known) -> exp.Subquery:
    """The query of a CTE, with the names of its columns that may stand behind its own."""
    alias = cte.args["alias"]
    return exp.Subquery(this=_expanded(cte.this.copy(), known), alias=alias.copy())


def _replace(table: exp.Table, known: _Known) -> None:
    meant = known.get(table.name.lower()) if not table.db else None
    if meant is None:
        return
    subquery = meant.copy()
    own, given = table.args.get("alias"), subquery.args["alias"]
    columns = own.columns if own is not None and own.columns else given.columns
    name = exp.to_identifier(table.alias or table.name, quoted=True)
    subquery.set("alias", exp.TableAlias(this=name, columns=[each.copy() for each in columns]))
    for argument, value in table.args.items():
        if argument not in ("this", "alias") and value:
            subquery.set(argument, value)
    table.replace(subquery)


def is_cte(table: exp.Table) -> bool:
    """Whether a name after FROM is one that a WITH around it gives."""
    if table.db:
        return False
    name, node = table.name.lower(), cast(exp.Expr, table)
    while (parent := node.parent) is not None:
        if isinstance(parent, exp.With) and parent.parent is not None:
            # Inside of a WITH, only what stands before is known.
            place = next(n for n, each in enumerate(parent.expressions) if each is node)
            if name in [each.alias.lower() for each in parent.expressions[:place]]:
                return True
            node = parent.parent
            continue
        known = parent.args.get("with_")
        if known is not None and name in [each.alias.lower() for each in known.expressions]:
            return True
        node = parent
    return False

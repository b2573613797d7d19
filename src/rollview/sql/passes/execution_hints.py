"""Hints, SORT BY and their like say how a query is computed, not what it is: they go."""

from __future__ import annotations

from sqlglot import exp

from rollview.algebra.relation import Table

_CLAUSES = ("hint", "sort", "cluster", "distribute")
"""Optimizer hints, SORT BY, CLUSTER BY, DISTRIBUTE BY; and LIMIT ALL, which limits nothing."""


def without_execution_hints(query: exp.Expr, _: tuple[Table, ...] = ()) -> exp.Expr:
    """The query without them; changes it."""
    for each in query.find_all(exp.Query):
        for clause in _CLAUSES:
            if each.args.get(clause):
                each.set(clause, None)
        limit = each.args.get("limit")
        if limit is not None and limit.args.get("expression") == exp.Var(this="ALL"):
            each.set("limit", None)
    return query

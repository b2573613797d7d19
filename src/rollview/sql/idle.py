"""Clauses that say how a query is to be computed, not what it is: a stored view is the same without them."""

from __future__ import annotations

from sqlglot import exp

_IDLE = ("hint", "sort", "cluster", "distribute")
"""Optimizer hints, SORT BY, CLUSTER BY, DISTRIBUTE BY; and LIMIT ALL, which limits nothing."""


def without_idle_clauses(query: exp.Expr) -> exp.Expr:
    """The query without them; changes it."""
    for each in query.find_all(exp.Query):
        for clause in _IDLE:
            if each.args.get(clause):
                each.set(clause, None)
        limit = each.args.get("limit")
        if limit is not None and limit.args.get("expression") == exp.Var(this="ALL"):
            each.set("limit", None)
    return query

"""UNION ALL of any number of queries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from sqlglot import exp


def union_all(queries: Sequence[exp.Expr]) -> exp.Expr:
    """One query for all, leaning to the left as the parser builds it."""
    return reduce(lambda one, other: exp.Union(this=one, expression=other, distinct=False), queries)

"""An expression with a name, as outputs have."""

from __future__ import annotations

from sqlglot import exp


def aliased(node: exp.Expr, name: str, quoted: bool = False) -> exp.Alias:
    """`node AS name`. A query in parentheses is no FROM item here: the name stands behind it, not inside."""
    return exp.Alias(this=node.copy(), alias=exp.to_identifier(name, quoted=quoted))

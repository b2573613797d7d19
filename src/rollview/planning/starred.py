"""The tables of which a view shows every column: those behind a `*` that nothing above it narrows."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from rollview.sql.grammar import is_parenthesised
from rollview.sql.outputs import bare


def starred(query: exp.Expr) -> Iterator[exp.Table]:
    """The FROM items whose new columns the query would show if it were written today."""
    query = bare(query)
    if isinstance(query, exp.SetOperation):
        yield from starred(query.this)
        yield from starred(query.expression)
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
                    yield from starred(item)


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

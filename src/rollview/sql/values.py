"""VALUES: rows of constants are a sum of queries that read no table."""

from __future__ import annotations

from sqlglot import exp

from rollview.sql.aliased import aliased
from rollview.sql.place import mistake
from rollview.sql.unions import union_all


def without_values(query: exp.Expr) -> exp.Expr:
    """The query with a UNION ALL for each list of rows after FROM; the same object where there is none."""
    if not any(_is_item(node) for node in query.find_all(exp.Values)):
        return query
    query = query.copy()
    for node in list(query.find_all(exp.Values)):
        if _is_item(node):
            queries = _as_queries(node)
            node.replace(queries if isinstance(node.parent, exp.From | exp.Join) else queries.this)
    return query


def _is_item(node: exp.Values) -> bool:
    return isinstance(node.parent, exp.From | exp.Join | exp.SetOperation)


def _as_queries(values: exp.Values) -> exp.Subquery:
    rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in values.expressions]
    alias = values.args.get("alias")
    given = [each.name for each in alias.columns] if alias is not None else []
    names = given or [f"col{place}" for place in range(1, len(rows[0]) + 1)]
    for row in rows:
        if len(row) != len(names):
            message = f"a row of VALUES has {len(row)} columns, and {len(names)} are named"
            raise mistake(row[0] if row else values, message)
    selects = [
        exp.Select(
            expressions=[
                aliased(value.unalias().copy(), name, quoted=True)
                for name, value in zip(names, row, strict=True)
            ]
        )
        for row in rows
    ]
    name = alias.this.copy() if alias is not None and alias.this is not None else None
    return exp.Subquery(
        this=union_all(selects), alias=exp.TableAlias(this=name) if name is not None else None
    )

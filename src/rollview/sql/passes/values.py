"""VALUES and range: rows of constants are a sum of queries that read no table."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.errors import beyond, mistake, refusal
from rollview.sql.tree import aliased, union_all

_MOST_ARGUMENTS = 3
_MOST_ROWS = 1_000


def without_values(query: exp.Expr, _: tuple[Table, ...] = ()) -> exp.Expr:
    """The query with a UNION ALL for each list of rows after FROM; the same object where there is none."""
    if not any(_is_item(node) for node in query.find_all(exp.Values)) and not any(_ranges(query)):
        return query
    query = query.copy()
    for table in list(_ranges(query)):
        table.replace(_as_values(table))
    for node in list(query.find_all(exp.Values)):
        if _is_item(node):
            queries = _as_queries(node)
            node.replace(queries if isinstance(node.parent, exp.From | exp.Join) else queries.this)
    return query


def _is_item(node: exp.Values) -> bool:
    return isinstance(node.parent, exp.From | exp.Join | exp.SetOperation)


def _ranges(query: exp.Expr) -> Iterator[exp.Table]:
    for node in query.find_all(exp.Table):
        if isinstance(node.this, exp.Anonymous) and node.this.name.lower() == "range":
            yield node


def _as_values(node: exp.Table) -> exp.Values:
    """range(end), range(start, end) or range(start, end, step): numbers called `id`."""
    function = node.this
    numbers = [_whole_number(each) for each in function.expressions]
    if not 1 <= len(numbers) <= _MOST_ARGUMENTS or None in numbers or numbers[2:3] == [0]:
        raise refusal(function, "range other than of whole numbers", hint="range(start, end, step)")
    found = range(*(each for each in numbers if each is not None))
    if not 0 < len(found) <= _MOST_ROWS:
        raise beyond(function, f"range with {len(found):,} rows", hint=f"1 to {_MOST_ROWS:,} are")
    rows = [exp.Tuple(expressions=[exp.cast(exp.Literal.number(each), "BIGINT")]) for each in found]
    given = node.args.get("alias")
    alias = given.copy() if given is not None else exp.TableAlias(this=exp.to_identifier("range"))
    if not alias.columns:
        alias.set("columns", [exp.to_identifier("id")])
    return exp.Values(expressions=rows, alias=alias)


def _whole_number(node: exp.Expr) -> int | None:
    if isinstance(node, exp.Neg):
        inner = _whole_number(node.this)
        return None if inner is None else -inner
    is_whole = isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()
    return int(node.name) if is_whole else None


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

"""PIVOT is a grouping with a condition for each value; UNPIVOT is a sum of queries, one for each column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.errors import beyond, refusal
from rollview.sql.names.outputs import output_names
from rollview.sql.names.scope import find_relation
from rollview.sql.tree import aliased, column, union_all


def without_pivots(query: exp.Expr, tables: tuple[Table, ...]) -> exp.Expr:
    """The query with a query for every PIVOT and UNPIVOT; the same object where there is none."""
    if not query.find(exp.Pivot):
        return query
    query = query.copy()
    while pivots := list(query.find_all(exp.Pivot)):
        # Inside out: the query below must have its columns.
        item = next(each.parent for each in pivots if not any(_below(each, other) for other in pivots))
        assert isinstance(item, exp.Table | exp.Subquery)
        item.replace(_as_query(item, tables))
    return query


def _below(outer: exp.Pivot, other: exp.Pivot) -> bool:
    """Whether another one is in the item that this one follows."""
    if other is outer or other.parent is outer.parent:
        return False
    return any(each is outer.parent for each in _ancestors(other))


def _ancestors(node: exp.Expr) -> Iterator[exp.Expr]:
    while node.parent is not None:
        node = node.parent
        yield node


def _as_query(item: exp.Table | exp.Subquery, tables: tuple[Table, ...]) -> exp.Subquery:
    pivot, *more = item.args["pivots"]
    below = item.copy()
    below.set("pivots", None)
    names = (
        find_relation(below, tables).table.columns
        if isinstance(below, exp.Table)
        else output_names(below.this, tables)
    )
    if len(pivot.args["fields"]) != 1 or isinstance(pivot.args["fields"][0].this, exp.Tuple):
        raise beyond(pivot, "PIVOT or UNPIVOT of several columns at once")
    made = (_unpivoted if pivot.args.get("unpivot") else _pivoted)(pivot, below, names)
    alias = pivot.args.get("alias") or item.args.get("alias")
    whole = exp.Subquery(this=made, alias=alias.copy() if alias is not None else None)
    whole.set("pivots", [each.copy() for each in more] or None)
    return whole


def _pivoted(pivot: exp.Pivot, below: exp.Expr, names: Sequence[str]) -> exp.Select:
    """All columns that are not named group; every aggregate is computed for every value."""
    field = pivot.args["fields"][0]
    functions = [each.unalias() for each in pivot.expressions]
    used = {each.name.lower() for node in (*functions, field.this) for each in node.find_all(exp.Column)}
    rest = [name for name in names if name.lower() not in used]
    outputs: list[exp.Expr] = [aliased(column(name), name, quoted=True) for name in rest]
    for value, shown in map(_value, field.expressions):
        wanted = exp.NullSafeEQ(this=field.this.copy(), expression=value)
        for each, function in zip(pivot.expressions, functions, strict=True):
            if len(functions) > 1 and not each.alias:
                raise refusal(
                    each, "an aggregate of PIVOT without a name", hint="give each one a name with AS"
                )
            # Where no row has the value there is NULL, also in place of a count.
            rows = exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=wanted.copy()))
            found = exp.Filter(this=function.copy(), expression=exp.Where(this=wanted.copy()))
            some = exp.GT(this=rows, expression=exp.Literal.number(0))
            name = shown if len(functions) == 1 else f"{shown}_{each.alias}"
            outputs.append(aliased(exp.Case().when(some, found), name, quoted=True))
    select = exp.Select(expressions=outputs, from_=exp.From(this=below))
    if rest:
        select.set("group", exp.Group(expressions=[column(name) for name in rest]))
    return select


def _unpivoted(pivot: exp.Pivot, below: exp.Expr, names: Sequence[str]) -> exp.Expr:
    """A row for each of the columns, with its name and its value; without NULLs unless they are asked for."""
    field = pivot.args["fields"][0]
    if len(pivot.expressions) != 1 or any(isinstance(_bare(each), exp.Tuple) for each in field.expressions):
        raise beyond(pivot, "UNPIVOT of several columns at once")
    taken = {_bare(each).name.lower() for each in field.expressions}
    rest = [aliased(column(name), name, quoted=True) for name in names if name.lower() not in taken]
    parts = []
    for each in field.expressions:
        own, shown = _bare(each), each.args["alias"].name if isinstance(each, exp.PivotAlias) else ""
        outputs = [
            *(kept.copy() for kept in rest),
            aliased(exp.Literal.string(shown or own.name), field.this.name, quoted=True),
            aliased(own.copy(), pivot.expressions[0].name, quoted=True),
        ]
        part = exp.Select(expressions=outputs, from_=exp.From(this=below.copy()))
        if not pivot.args.get("include_nulls"):
            there = exp.Not(this=exp.Is(this=own.copy(), expression=exp.Null()))
            part.set("where", exp.Where(this=there))
        parts.append(part)
    return union_all(parts)


def _bare(node: exp.Expr) -> exp.Expr:
    inner: exp.Expr = node.this if isinstance(node, exp.PivotAlias) else node
    return inner


def _value(node: exp.Expr) -> tuple[exp.Expr, str]:
    """A value of PIVOT, and what its column is called."""
    if isinstance(node, exp.PivotAlias | exp.Alias):
        return node.this.copy(), node.args["alias"].name
    if isinstance(node, exp.Null):
        return node.copy(), "null"
    if not isinstance(node, exp.Literal):
        raise refusal(node, "a value of PIVOT that is no constant", hint="give it a name with AS")
    return node.copy(), node.name

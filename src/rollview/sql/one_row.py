"""Queries that give one row, or must: those that stand for a value, or aggregate without groups."""

from __future__ import annotations

from sqlglot import exp

from rollview.sql.aliased import aliased
from rollview.sql.functions import is_aggregate
from rollview.sql.layers import aggregates, column, is_grouped
from rollview.sql.outputs import bare


def has_one_row(query: exp.Expr) -> bool:
    """Whether a query gives one row, even for no rows: it aggregates without GROUP BY."""
    return (
        isinstance(query, exp.Select)
        and is_grouped(query)
        and not query.args.get("group")
        and not query.args.get("having")
    )


def of_one_row(test: exp.Expr) -> exp.Expr:
    """Of a query that gives one row, IN asks for its value, and EXISTS for nothing."""
    if isinstance(test, exp.Exists) and isinstance(test.this, exp.Query) and has_one_row(bare(test.this)):
        return exp.true()
    query = test.args.get("query") if isinstance(test, exp.In) else None
    if query is None or not has_one_row(bare(query)) or isinstance(test.this, exp.Tuple):
        return test
    return exp.paren(exp.EQ(this=test.this.copy(), expression=exp.Subquery(this=bare(query).copy())))


def of_nothing(node: exp.Expr) -> exp.Expr:
    """What an expression over aggregates is for no rows: counts are 0, lists are empty, all else is NULL."""
    if is_aggregate(node):
        return _of_no_rows(node)
    result = exp.paren(node.copy())
    for each in list(aggregates(result)):
        each.replace(_of_no_rows(each))
    return result


def _of_no_rows(function: exp.Expr) -> exp.Expr:
    while isinstance(function, exp.Filter | exp.WithinGroup):
        function = function.this
    if isinstance(function, exp.Count | exp.CountIf | exp.ApproxDistinct | exp.RegrCount):
        return exp.Literal.number(0)
    if isinstance(function, exp.ArrayAgg | exp.ArrayUniqueAgg):
        return exp.Array()
    return exp.null()


def only_row(query: exp.Select, output: str, keys: list[str]) -> exp.Select:
    """The one row that a subquery may have; more than one is an error, as in Spark."""
    layer = exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier("_layer")))
    many = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(1))
    message = exp.Literal.string("more than one row returned by a subquery used as an expression")
    value = (
        exp.Case()
        .when(many, exp.Anonymous(this="raise_error", expressions=[message]))
        .else_(exp.Max(this=column(output)))
    )
    select = exp.Select(
        expressions=[*map(column, keys), aliased(value, output, quoted=True)], from_=exp.From(this=layer)
    )
    # The value comes first, as callers expect.
    select.set("expressions", [select.expressions[-1], *select.expressions[:-1]])
    if keys:
        select.set("group", exp.Group(expressions=[column(key) for key in keys]))
    return select

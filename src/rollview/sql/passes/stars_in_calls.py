"""`*` as arguments of a function, as in struct(*): replaced by its columns."""

from __future__ import annotations

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.names.outputs import scope_of


def with_stars_in_calls_written_out(query: exp.Expr, tables: tuple[Table, ...]) -> exp.Expr:
    """`*` as arguments, as in struct(*); the same object where there is none. COUNT(*) means rows."""
    if not isinstance(query, exp.Select) or not any(map(_is_argument, query.find_all(exp.Star))):
        return query
    scope = scope_of(query, tables)
    select = query.copy()
    for star in [each for each in select.find_all(exp.Star) if _is_argument(each)]:
        whole = star.parent if isinstance(star.parent, exp.Column) else star
        call = whole.parent
        if whole.find_ancestor(exp.Query) is not select or call is None:
            continue
        columns = [scope.syntax(seen.column) for seen in scope.star(whole)]
        values: list[exp.Expr] = list(columns)
        if isinstance(call, exp.Struct):
            values = [exp.PropertyEQ(this=each.this.copy(), expression=each) for each in columns]
        if whole.arg_key == "this":
            call.set("this", values[0])
            call.set("expressions", [*values[1:], *call.expressions])
        else:
            others = [[each] if each is not whole else values for each in call.expressions]
            call.set("expressions", [each for part in others for each in part])
    return select


def _is_argument(star: exp.Star) -> bool:
    whole: exp.Expr | None = star.parent if isinstance(star.parent, exp.Column) else star
    call = whole.parent if whole is not None else None
    if isinstance(call, exp.Distinct):
        return isinstance(call.parent, exp.Count)
    return isinstance(call, exp.Func) and not isinstance(call, exp.AggFunc)

"""WHERE n <= 10 above a window that numbers rows: how many of them are wanted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.names.outputs import has_column_aliases
from rollview.sql.passes.layers import has_window, is_grouped
from rollview.sql.tree import is_parenthesised, own

_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GTE: exp.LTE, exp.GT: exp.LT, exp.EQ: exp.EQ}


@dataclass(frozen=True)
class Bound:
    """The FROM item with the window, the column that numbers its rows, and the greatest number wanted."""

    item: exp.Subquery
    column: str
    most: int


def bound_of(query: exp.Expr) -> Bound | None:
    """The bound that a SELECT puts on a window in FROM, if that is all it does."""
    if not isinstance(query, exp.Select) or is_grouped(query) or has_window(query):
        return None
    clause, where = query.args.get("from_"), query.args.get("where")
    if clause is None or where is None or any(query.args.get(each) for each in _MORE):
        return None
    item = clause.this
    if not isinstance(item, exp.Subquery) or is_parenthesised(item) or has_column_aliases(item):
        return None
    if item.args.get("joins") or (column := numbering(item.this)) is None:
        return None
    limits = [_most(each, item.alias, column) for each in _conditions(where.this)]
    found = [most for most in limits if most is not None]
    return Bound(item, column, max(0, min(found))) if found else None


_MORE = ("joins", "laterals", "distinct", "order", "limit", "offset", "qualify", "having")


def numbering(query: exp.Expr) -> str | None:
    """The output of a query, in small letters, that is a row's number in the query's only window."""
    if not isinstance(query, exp.Select) or any(query.args.get(each) for each in _MORE[2:7]):
        return None
    windows = [(item, each) for item in query.expressions for each in own(item, exp.Window)]
    if len(windows) != 1:
        return None
    ((item, window),) = windows
    is_number = isinstance(window.this, exp.RowNumber | exp.Rank)
    ordered = window.args.get("order") is not None and not window.args.get("alias")
    return item.alias.lower() if is_number and ordered and item.unalias() is window else None


def _conditions(where: exp.Expr) -> Iterator[exp.Expr]:
    yield from where.flatten() if isinstance(where, exp.And) else [where]


def _most(test: exp.Expr, alias: str, column: str) -> int | None:
    """The greatest number that passes a test; None if the test does not say."""
    if isinstance(test, exp.Between):
        kind: type[exp.Expr] = exp.LTE
        left, right = test.this, test.args["high"]
    else:
        kind, left, right = type(test), test.args.get("this"), test.args.get("expression")
        if isinstance(left, exp.Literal) and kind in _MIRRORED:
            kind, left, right = _MIRRORED[kind], right, left
    if kind not in (exp.LTE, exp.LT, exp.EQ) or not isinstance(right, exp.Literal) or right.is_string:
        return None
    is_number = isinstance(left, exp.Column) and left.name.lower() == column
    if not is_number or left.table.lower() not in ("", alias.lower()) or not right.name.isdigit():
        return None
    return int(right.name) - (kind is exp.LT)


def with_bounds_inside(query: exp.Expr, _: tuple[Table, ...] = ()) -> exp.Expr:
    """A bound for the window of an item that is joined, put at the item, too."""
    if not isinstance(query, exp.Select) or not any(_bounded_items(query)):
        return query
    select = query.copy()
    for item, test in list(_bounded_items(select)):
        inner = exp.Subquery(this=item.this, alias=exp.TableAlias(this=exp.to_identifier(item.alias, True)))
        where = exp.Where(this=test.copy())
        item.set("this", exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner), where=where))
    return select


def _bounded_items(select: exp.Select) -> Iterator[tuple[exp.Subquery, exp.Expr]]:
    """The windows in FROM that are joined with something, and what WHERE says of their numbers."""
    clause, where, joins = (select.args.get(each) for each in ("from_", "where", "joins"))
    if clause is None or where is None or not joins:
        return
    if any(join.side in ("RIGHT", "FULL") or join.args.get("method") for join in joins):
        return
    inner = [join.this for join in joins if not join.side and join.kind in ("", "INNER", "CROSS")]
    for item in (clause.this, *inner):
        if not isinstance(item, exp.Subquery) or not item.alias or has_column_aliases(item):
            continue
        if item.args.get("joins") or (column := numbering(item.this)) is None:
            continue
        for test in _conditions(where.this):
            qualified = all(each.table for each in test.find_all(exp.Column))
            if qualified and _most(test, item.alias, column) is not None:
                yield item, test
                break

"""Queries in ON of a RIGHT or FULL JOIN, each asked by the FROM item whose columns it names.

Such a join keeps rows for which ON is not true, so that nothing of ON can move to WHERE. But a query that
names columns of one item has one value for each row of it: it becomes one more column of the item.
"""

from __future__ import annotations

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.aliased import aliased
from rollview.sql.domains import free_columns, names, own_columns
from rollview.sql.layers import column, own
from rollview.sql.outputs import scope_of
from rollview.sql.place import beyond, refusal
from rollview.sql.scope import Scope


def ask_in_items(select: exp.Select, place: int, tables: tuple[Table, ...]) -> None:
    """Moves the queries of ON of a join into items before it, or into the one that it joins."""
    scope = scope_of(select, tables)
    join = select.args["joins"][place]
    for number, query in enumerate(list(own(join.args["on"], exp.Query)), start=1):
        value = _value_of(query)
        item = _item_of(select, place, _aliases(value, scope, tables))
        name = f"_asked_{place}_{number}"
        alias = item.alias_or_name
        inner = exp.Select(expressions=[exp.Star(), aliased(value, name)], from_=exp.From(this=item.copy()))
        value.replace(column(name, alias))
        item.replace(
            exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        )


def _value_of(query: exp.Expr) -> exp.Expr:
    """What a query is part of: EXISTS, IN, or a value of its own."""
    parent = query.parent
    while isinstance(parent, exp.Subquery | exp.Paren):
        query, parent = parent, parent.parent
    is_test = isinstance(parent, exp.Exists) or (isinstance(parent, exp.In) and query.arg_key == "query")
    return parent if is_test and parent is not None else query


def _aliases(value: exp.Expr, scope: Scope, tables: tuple[Table, ...]) -> set[str]:
    """The items whose columns an expression with a query names."""
    columns = [*own_columns(value)]
    for query in own(value, exp.Query):
        columns += free_columns(query, (), tables)
    return {scope.resolve(each).item.alias.lower() for each in columns if names(scope, each)}


def _item_of(select: exp.Select, place: int, aliases: set[str]) -> exp.Expr:
    joins = select.args["joins"]
    join = joins[place]
    hint = "ask for it in a query in FROM"
    if len(aliases) > 1:
        side = join.args["side"]
        raise refusal(join.args["on"], f"a subquery about both sides in ON of a {side} JOIN", hint=hint)
    items: list[exp.Expr] = [select.args["from_"].this, *(each.this for each in joins[: place + 1])]
    owners = [n for n, item in enumerate(items) if item.alias_or_name.lower() in aliases]
    number = owners[0] if owners else len(items) - 1
    item = items[number]
    is_plain = isinstance(item, exp.Table | exp.Subquery) and not item.args.get("joins")
    if (aliases and not owners) or not is_plain or _is_filled(number, joins[:place]):
        raise beyond(join.args["on"], f"this subquery in ON of a {join.args['side']} JOIN", hint=hint)
    return item


def _is_filled(number: int, joins: list[exp.Join]) -> bool:
    """Whether joins fill an item with NULLs; then the query would have to be asked again for these."""
    sides = [each.args.get("side") for each in joins]
    own_side = sides[number - 1 : number] if number else []
    return any(side in ("LEFT", "FULL") for side in own_side) or any(
        side in ("RIGHT", "FULL") for side in sides[number:]
    )

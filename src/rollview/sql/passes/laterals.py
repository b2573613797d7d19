"""LATERAL in FROM: a query for every row of the items before it, turned into a join.

So is an item of an outer join whose ON asks a query: it is the query of those of its rows that ON lets pass.
"""

from __future__ import annotations

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.errors import beyond, refusal
from rollview.sql.names.free_columns import free_columns, names, own_columns
from rollview.sql.names.generators import is_generator
from rollview.sql.names.outputs import output_names, renamed, scope_of, with_stars_written_out
from rollview.sql.names.scope import Scope
from rollview.sql.passes.correlated import completed, correlated, has_one_row, is_null_of_nothing
from rollview.sql.passes.dependent_joins import Around
from rollview.sql.tree import aliased, bare, column, own


def without_laterals(query: exp.Expr, tables: tuple[Table, ...]) -> exp.Expr:
    """The SELECT with joins of independent queries; the same object where there is nothing to change."""
    clause, joins = query.args.get("from_"), query.args.get("joins") or []
    has_lateral = any(isinstance(each.this, exp.Lateral) for each in (clause, *joins) if each is not None)
    if not isinstance(query, exp.Select) or clause is None or not (has_lateral or any(map(_asks, joins))):
        return query
    select = with_stars_written_out(query.copy(), scope_of(query, tables))
    for place, join in enumerate(select.args.get("joins") or []):
        if _asks(join) and join.args.get("side") in ("RIGHT", "FULL"):
            ask_in_items(select, place, tables)
        elif _asks(join):
            _as_lateral(join, select)
    _first_alone(select)
    _generators_last(select)
    for place, join in enumerate(select.args["joins"]):
        if isinstance(join.this, exp.Lateral):
            _check(join)
            _replace(join, Around.of(_before(select, place), tables), f"_lateral_{place}")
    return select


def _before(select: exp.Select, place: int) -> exp.Select:
    """The item before a join. WHERE says something about it only if no later join adds rows of NULLs."""
    before = select.copy()
    later = before.args["joins"][place + 1 :]
    before.set("joins", before.args["joins"][:place])
    before.set("laterals", None)
    if any(join.args.get("side") in ("RIGHT", "FULL") for join in later):
        before.set("where", None)
    return before


def _check(join: exp.Join) -> None:
    """LATERAL is allowed in inner and LEFT joins with ON, as in Spark."""
    if join.args.get("side") not in (None, "", "LEFT") or join.args.get("kind") in ("SEMI", "ANTI"):
        words = " ".join(str(join.args.get(each) or "") for each in ("side", "kind")).strip()
        raise refusal(join.this, f"{words} JOIN LATERAL", hint="write it as a LEFT JOIN")
    if join.args.get("using") or join.args.get("method"):
        raise refusal(join.this, "LATERAL with USING or NATURAL", hint="write ON")


def _asks(join: exp.Join) -> bool:
    """Whether ON of an outer, semi or anti join has a query in it; that of an inner join is like WHERE."""
    on = join.args.get("on")
    is_inner = not join.args.get("side") and join.args.get("kind") not in ("SEMI", "ANTI")
    return on is not None and not is_inner and any(own(on, exp.Query))


def _as_lateral(join: exp.Join, select: exp.Select) -> None:
    on, item = join.args["on"], join.this
    below = exp.Select(expressions=[exp.Star()], from_=exp.From(this=item), where=exp.Where(this=on))
    if join.args.get("kind") in ("SEMI", "ANTI"):
        exists = exp.Exists(this=below)
        test = exists if join.args["kind"] == "SEMI" else exp.Not(this=exists)
        select.set("joins", [each for each in select.args["joins"] if each is not join])
        select.where(test, append=True, copy=False)
        return
    alias = exp.TableAlias(this=exp.to_identifier(item.alias_or_name))
    join.set("this", exp.Lateral(this=exp.Subquery(this=below), alias=alias))
    join.set("on", exp.true())


def _first_alone(select: exp.Select) -> None:
    """LATERAL before all else sees nothing."""
    clause = select.args["from_"]
    if isinstance(clause.this, exp.Lateral):
        clause.set("this", _subquery(clause.this))


def _generators_last(select: exp.Select) -> None:
    """A generator in a join is a LATERAL VIEW, which comes after all joins."""
    joins = list(select.args.get("joins") or [])
    generators: list[exp.Expr] = []
    while joins and isinstance(joins[-1].this, exp.Lateral) and is_generator(joins[-1].this.this):
        join = joins.pop()
        on = join.args.get("on")
        if on is not None and on != exp.true():
            if join.args.get("side"):
                raise beyond(on, "ON behind a generator in a LEFT JOIN", hint="ask for it in a query around")
            select.where(on, append=True, copy=False)
        view = join.this.copy()
        view.set("view", True)
        view.set("outer", join.args.get("side") == "LEFT")
        generators.insert(0, view)
    early = next((join for join in joins if is_generator(join.this.this)), None)
    if early is not None:
        raise beyond(early.this, "a join behind a generator", hint="put the generator last in FROM")
    select.set("joins", joins)
    if generators:
        select.set("laterals", [*generators, *(select.args.get("laterals") or [])])


def _replace(join: exp.Join, around: Around, unnamed: str) -> None:
    lateral = join.this
    alias = lateral.alias or unnamed
    query = bare(lateral.this)
    names = renamed(lateral, output_names(query, around.tables))
    on = join.args.get("on")
    is_outer = join.args.get("side") == "LEFT"
    if not around.named_by(query):
        join.set("this", _subquery(lateral))
        return
    if has_one_row(query) and (on is None or on == exp.true()) and is_null_of_nothing(query):
        inner = correlated(query, around)
        is_outer = True
    elif has_one_row(query):
        inner = completed(query, around)
    else:
        inner = correlated(query, around)
    own_names = output_names(inner.query, around.tables)
    values = [aliased(column(old), new, quoted=True) for old, new in zip(own_names, names, strict=False)]
    layer = exp.Subquery(this=inner.query, alias=exp.TableAlias(this=exp.to_identifier("_layer")))
    outputs = [*values, *map(column, inner.keys)]
    named = exp.Select(expressions=outputs, from_=exp.From(this=layer))
    conditions = [*inner.about(alias), *([on] if on is not None else [])]
    join.set("this", exp.Subquery(this=named, alias=exp.TableAlias(this=exp.to_identifier(alias))))
    join.set("kind", None)
    join.set("side", "LEFT" if is_outer else None)
    join.set("on", exp.and_(*conditions))


def _subquery(lateral: exp.Lateral) -> exp.Subquery:
    return exp.Subquery(this=bare(lateral.this), alias=lateral.args.get("alias"))


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
    """The expression around a query: EXISTS, IN, or a value of its own."""
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

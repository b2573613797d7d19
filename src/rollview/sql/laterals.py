"""LATERAL in FROM: a query for every row of the items before it, turned into a join.

So is an item of an outer join whose ON asks a query: it is the query of those of its rows that ON lets pass.
"""

from __future__ import annotations

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.aliased import aliased
from rollview.sql.asked_items import ask_in_items
from rollview.sql.correlated import completed, correlated, is_null_of_nothing
from rollview.sql.domains import Around
from rollview.sql.generators import is_generator
from rollview.sql.layers import column, own
from rollview.sql.one_row import has_one_row
from rollview.sql.outputs import bare, output_names, renamed, scope_of
from rollview.sql.place import beyond, refusal
from rollview.sql.shorthands import with_stars_written_out


def without_laterals(select: exp.Select, tables: tuple[Table, ...]) -> exp.Select:
    """The SELECT with joins of independent queries; the same object where there is nothing to change."""
    clause, joins = select.args.get("from_"), select.args.get("joins") or []
    has_lateral = any(isinstance(each.this, exp.Lateral) for each in (clause, *joins) if each is not None)
    if clause is None or not (has_lateral or any(map(_asks, joins))):
        return select
    select = with_stars_written_out(select.copy(), scope_of(select, tables))
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
    """What stands before a join. WHERE says something about it only if no later join adds rows of NULLs."""
    before = select.copy()
    later = before.args["joins"][place + 1 :]
    before.set("joins", before.args["joins"][:place])
    before.set("laterals", None)
    if any(join.args.get("side") in ("RIGHT", "FULL") for join in later):
        before.set("where", None)
    return before


def _check(join: exp.Join) -> None:
    """LATERAL stands in inner and LEFT joins with ON, as in Spark."""
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

"""Queries that name columns of what is around them, answered for all rows around at once.

Such a query has an answer for each value of those columns. Their *domain*, the distinct values that there
are, is joined to its FROM, and is in its groups, its partitions and its outputs from then on: then it
depends on nothing outside, and is joined by its domain. This works for any query (Neumann and Kemper,
Unnesting Arbitrary Queries, BTW 2015). Where a query says which of its own columns equals the one outside,
that column serves as well, and `correlated` needs no domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.errors import beyond
from rollview.sql.names.free_columns import free_columns, names, own_columns
from rollview.sql.names.outputs import scope_of, with_stars_written_out
from rollview.sql.names.scope import Scope, Visible
from rollview.sql.passes.lateral_aliases import with_aliases_written_out
from rollview.sql.passes.layers import first_rows, having_above, is_grouped
from rollview.sql.passes.named_windows import with_windows_written_out
from rollview.sql.tree import FromSyntax, aliased, bare, column, own, written_conjuncts

_DOMAIN = "_domain"


@dataclass(frozen=True)
class Around:
    """The outer names that a query may use: the FROM of the SELECT around it, and conditions of WHERE."""

    scope: Scope
    tables: tuple[Table, ...]
    syntax: FromSyntax | None
    conditions: tuple[exp.Expr, ...] = ()

    @staticmethod
    def of(select: exp.Select, tables: tuple[Table, ...]) -> Around:
        """The names around the queries in the expressions of a SELECT."""
        clause, where = select.args.get("from_"), select.args.get("where")
        scope = scope_of(select, tables)
        syntax = None
        if clause is not None and not select.args.get("laterals"):
            syntax = FromSyntax(clause.this, tuple(select.args.get("joins") or ()))
        parts = written_conjuncts(where.this) if where is not None else ()
        plain = [part for part in parts if not any(own(part, exp.Query))]
        known = [part for part in plain if all(names(scope, each) for each in own_columns(part))]
        return Around(scope, tables, syntax, tuple(known))

    def named_by(self, query: exp.Expr) -> list[exp.Column]:
        """The places in a query, at any depth, that name a column around it."""
        return [each for each in free_columns(query, (), self.tables) if names(self.scope, each)]

    def values(self, columns: Mapping[str, Visible]) -> exp.Select:
        """The distinct values of columns, each under a name."""
        assert self.syntax is not None
        owners = {seen.item.alias for seen in columns.values()}
        syntax, conditions = self.syntax, self.conditions
        if len(owners) == 1 and (narrow := syntax.narrowed(min(owners))) is not syntax:
            syntax = narrow
            (item,) = {seen.item for seen in columns.values()}
            alone = Scope.of(item)
            conditions = tuple(
                part for part in conditions if all(names(alone, each) for each in own_columns(part))
            )
        query = syntax.distinct([])
        query.set(
            "expressions",
            [aliased(self.scope.syntax(seen.column), name) for name, seen in columns.items()],
        )
        if conditions:
            query.set("where", exp.Where(this=exp.and_(*(part.copy() for part in conditions))))
        return query


@dataclass(frozen=True)
class OverDomain:
    """A query with its domain: outputs of its own, then one for each column of the domain."""

    query: exp.Expr
    domain: exp.Select
    columns: Mapping[str, Visible]
    rejects_null: frozenset[str]
    """The columns of the domain for which NULL finds no row."""


def over_domain(query: exp.Expr, around: Around) -> OverDomain:
    """A query, answered for all values of the columns that it names from outside."""
    query = _written_out(bare(query), around.tables)
    places = around.named_by(query)
    if around.syntax is None:
        raise beyond(places[0] if places else query, "a correlated query beside LATERAL VIEW")
    columns: dict[str, Visible] = {}
    prefix = outer_prefix(query)
    for place in places:
        seen = around.scope.resolve(place)
        name = next((name for name, known in columns.items() if known.column == seen.column), None)
        if name is None:
            columns[name := f"{prefix}{len(columns) + 1}"] = seen
        _replace(place, column(name, _DOMAIN))
    domain = around.values(columns)
    rejected = frozenset(name for name in columns if _rejects_null(query, name))
    return OverDomain(_Over(domain, tuple(columns), around.tables).query(query), domain, columns, rejected)


def _replace(place: exp.Column, value: exp.Expr) -> None:
    """Puts something in the place of a column; an output keeps its name."""
    whole: exp.Expr = place
    while isinstance(whole.parent, exp.Paren):
        whole = whole.parent
    is_output = isinstance(whole.parent, exp.Select) and whole.arg_key == "expressions"
    whole.replace(aliased(value, place.name, quoted=True) if is_output else value)


def outer_prefix(query: exp.Expr) -> str:
    """The prefix of outer columns' names, so that the query has no such names itself."""
    prefix = "_outer_"
    taken = {each.name for each in query.find_all(exp.Identifier)}
    while any(name.startswith(prefix) for name in taken):
        prefix = f"_{prefix}"
    return prefix


def _written_out(query: exp.Expr, tables: tuple[Table, ...]) -> exp.Expr:
    return with_aliases_written_out(with_windows_written_out(query.copy()), tables)


def _rejects_null(query: exp.Expr, name: str) -> bool:
    """Whether WHERE compares a column of the domain with something, so that no row is left of NULL."""
    where = query.args.get("where")
    if not isinstance(query, exp.Select) or where is None:
        return False
    if query.args.get("having") and not query.args.get("group"):
        # There is one group, also of no rows.
        return False
    kinds = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
    sides = [
        side
        for part in written_conjuncts(where.this)
        if isinstance(part, kinds)
        for side in (part.this, part.expression)
    ]
    return any(side == column(name, _DOMAIN) for side in sides)


@dataclass(frozen=True)
class _Over:
    """A domain that is put below queries."""

    domain: exp.Select
    columns: tuple[str, ...]
    tables: tuple[Table, ...]

    def query(self, query: exp.Expr) -> exp.Expr:
        """A query that names columns of the domain, with the domain inside."""
        query = bare(query)
        if query.args.get("limit") or query.args.get("offset"):
            return self._first_rows(query)
        if isinstance(query, exp.SetOperation):
            for side in ("this", "expression"):
                query.set(side, self.query(query.args[side]))
            return query
        if not isinstance(query, exp.Select):
            raise beyond(query, "a correlated query of this kind")
        if query.args.get("having") and not query.args.get("group"):
            query = having_above(query, self.tables)
        return self._select(query)

    def _keys(self) -> list[exp.Expr]:
        return [column(name, _DOMAIN) for name in self.columns]

    def _first_rows(self, query: exp.Expr) -> exp.Expr:
        """The first rows of every value of the domain."""
        cut = {name: query.args.get(name) for name in ("order", "limit", "offset")}
        for name in cut:
            query.set(name, None)
        whole = self.query(query)
        for name, value in cut.items():
            whole.set(name, value)
        return first_rows(whole, self.tables, self.columns)

    def _select(self, select: exp.Select) -> exp.Select:
        select = with_stars_written_out(select, scope_of(select, self.tables))
        for window in [each for item in select.expressions for each in own(item, exp.Window)]:
            window.set("partition_by", [*(window.args.get("partition_by") or []), *self._keys()])
        group = select.args.get("group")
        if is_grouped(select) and (group is None or not group.args.get("all")):
            group = group or exp.Group()
            group.set("expressions", [*group.expressions, *self._keys()])
            select.set("group", group)
        outputs = [aliased(column(name, _DOMAIN), name) for name in self.columns]
        select.set("expressions", [*select.expressions, *outputs])
        self._join(select)
        return select

    def _join(self, select: exp.Select) -> None:
        """Puts the domain before all else in FROM, so that ON and queries in FROM can name it."""
        alias = exp.TableAlias(this=exp.to_identifier(_DOMAIN))
        domain = exp.Subquery(this=self.domain.copy(), alias=alias)
        clause, joins = select.args.get("from_"), select.args.get("joins") or []
        if any(join.args.get("side") in ("RIGHT", "FULL") for join in joins):
            inside = next((each for each in (clause, *joins) if _names_domain(each)), None)
            if inside is not None:
                raise beyond(inside, "a correlated column in FROM beside a RIGHT or FULL JOIN")
            select.set("joins", [*joins, exp.Join(this=domain, kind="CROSS")])
            return
        joins = [exp.Join(this=clause.this, kind="CROSS"), *joins] if clause is not None else []
        for join in joins:
            if isinstance(join.this, exp.Subquery) and _names_domain(join.this):
                join.set("this", _lateral(join.this))
        select.set("from_", exp.From(this=domain))
        select.set("joins", joins)


def _names_domain(node: exp.Expr) -> bool:
    return any(each.table == _DOMAIN for each in node.find_all(exp.Column))


def _lateral(subquery: exp.Subquery) -> exp.Lateral:
    alias = subquery.args.get("alias") or exp.TableAlias(this=exp.to_identifier("_derived"))
    subquery.set("alias", None)
    return exp.Lateral(this=subquery, alias=alias)

"""Queries inside expressions, turned into joins.

    WHERE EXISTS (…)            LEFT SEMI JOIN
    WHERE NOT EXISTS (…)        LEFT ANTI JOIN
    WHERE x IN (…)              LEFT SEMI JOIN, with one more equality
    WHERE x NOT IN (…)          LEFT ANTI JOIN, and what NULLs do to it
    (SELECT one value …)        a join with one row, or with one row per value that it is correlated by
    elsewhere                   a LEFT JOIN that marks the rows

Conditions of a subquery on columns of the query around it move into ON (`correlated`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.errors import mistake, refusal
from rollview.sql.names.outputs import output_names, scope_of, with_stars_written_out
from rollview.sql.passes.correlated import (
    MARK,
    Correlated,
    correlated,
    has_one_row,
    is_null_of_nothing,
    of_nothing,
    of_one_row,
    only_row,
)
from rollview.sql.passes.dependent_joins import Around
from rollview.sql.tree import aliased, bare, column, own, written_conjuncts

_VALUE, _ROWS, _VALUES = "_value", "_rows", "_values"


def has_subquery(node: exp.Expr) -> bool:
    """Whether a query is inside an expression."""
    return any(True for _ in own(node, exp.Query))


def without_subqueries(query: exp.Expr, tables: tuple[Table, ...]) -> exp.Expr:
    """The SELECT with joins instead of queries in its expressions; the same object where there are none."""
    if not isinstance(query, exp.Select):
        return query
    joins = query.args.get("joins") or []
    places = [query.args.get("where"), *query.expressions, *(join.args.get("on") for join in joins)]
    if not any(place is not None and has_subquery(place) for place in places):
        return query
    select = with_stars_written_out(query.copy(), scope_of(query, tables))
    if select.args.get("from_") is None:
        one = exp.Select(expressions=[aliased(exp.Literal.number(1), _VALUE)])
        select.set(
            "from_",
            exp.From(this=exp.Subquery(this=one, alias=exp.TableAlias(this=exp.to_identifier("_one")))),
        )
    _out_of_on(select)
    return _Unnesting(select, tables).run()


def _out_of_on(select: exp.Select) -> None:
    """Moves conditions on subqueries from ON of an inner join to WHERE."""
    for join in select.args.get("joins") or []:
        on = join.args.get("on")
        if on is None or not has_subquery(on):
            continue
        parts = list(written_conjuncts(on))
        kept = [part for part in parts if not has_subquery(part)]
        join.set("on", exp.and_(*kept) if kept else None)
        if not kept:
            join.set("kind", "CROSS")
        where = select.args.get("where")
        conditions = [where.this] if where is not None else []
        moved = [part for part in parts if has_subquery(part)]
        select.set("where", exp.Where(this=exp.and_(*conditions, *moved)))


class _Unnesting:
    """One SELECT, to which joins are added."""

    def __init__(self, select: exp.Select, tables: tuple[Table, ...]) -> None:
        self.select = select
        self.tables = tables
        self.around = Around.of(select, tables)
        self.joins: list[exp.Join] = []
        self.conditions: list[exp.Expr] = []

    def run(self) -> exp.Select:
        select = self.select
        where = select.args.get("where")
        for part in list(written_conjuncts(where.this)) if where is not None else ():
            self._conjunct(part)
        # Outputs that have no name of their own keep the one that they had.
        items = [self._item(item) for item in select.expressions]
        select.set("expressions", items)
        select.set("where", exp.Where(this=exp.and_(*self.conditions)) if self.conditions else None)
        select.set("joins", [*(select.args.get("joins") or []), *self.joins])
        return select

    def _item(self, item: exp.Expr) -> exp.Expr:
        return self._replaced(item) if has_subquery(item) else item

    def _conjunct(self, part: exp.Expr) -> None:
        """A condition of WHERE: where it is nothing but a test, a join tests it."""
        negated = isinstance(part, exp.Not)
        written = part.this.unnest() if negated else part
        test = of_one_row(written)
        if test is not written:
            part = exp.Not(this=exp.paren(test)) if negated else test
        if isinstance(test, exp.Exists) and isinstance(test.this, exp.Query):
            inner = correlated(test.this, self.around, keep_outputs=False)
            self._join(inner, inner.conditions, kind="ANTI" if negated else "SEMI", side="LEFT")
        elif isinstance(test, exp.In) and test.args.get("query") and isinstance(test.this, exp.Tuple):
            self._rows_in(test, negated)
        elif isinstance(test, exp.In) and test.args.get("query"):
            self._in(test, negated)
        elif has_subquery(part):
            self.conditions.append(self._replaced(part))
        else:
            self.conditions.append(part)

    def _rows_in(self, test: exp.In, negated: bool) -> None:
        """Several values at once, each equal to its output."""
        inner, equal = self._compared(test)

        def conditions(alias: str) -> list[exp.Expr]:
            compared = [_perhaps(each) for each in equal(alias)] if negated else equal(alias)
            return [*compared, *inner.about(alias)]

        self._join(inner, conditions, kind="ANTI" if negated else "SEMI", side="LEFT")

    def _compared(self, test: exp.In) -> tuple[Correlated, Callable[[str], list[exp.EQ]]]:
        """The query of IN, and its equalities with each of several values."""
        values = [self._replaced(each) if has_subquery(each) else each for each in test.this.expressions]
        inner = correlated(test.args["query"], self.around)
        found = len(output_names(inner.query, self.tables)) - len(inner.outputs)
        if found != len(values):
            raise mistake(test, f"IN compares {len(values)} values with {found} columns")
        names = self._outputs(inner, len(values))

        def equal(alias: str) -> list[exp.EQ]:
            pairs = zip(values, names, strict=True)
            return [exp.EQ(this=value.copy(), expression=column(name, alias)) for value, name in pairs]

        return inner, equal

    def _in(self, test: exp.In, negated: bool) -> None:
        value = self._replaced(test.this) if has_subquery(test.this) else test.this
        inner = correlated(test.args["query"], self.around)
        output = self._first_output(inner)

        def conditions(alias: str) -> list[exp.Expr]:
            return [exp.EQ(this=value.copy(), expression=column(output, alias)), *inner.about(alias)]

        self._join(inner, conditions, kind="ANTI" if negated else "SEMI", side="LEFT")
        if negated:
            # With a NULL on either side nobody knows; without any row there is nothing to be in.
            rows, values = self._counted(test)
            unknown = exp.and_(
                exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null())),
                exp.EQ(this=rows.copy(), expression=values),
            )
            nothing = exp.EQ(this=_or_zero(rows), expression=exp.Literal.number(0))
            self.conditions.append(exp.paren(exp.or_(nothing, exp.paren(unknown))))

    def _counted(self, test: exp.In) -> tuple[exp.Expr, exp.Expr]:
        """How many rows the subquery of IN has, and how many of them are not NULL."""
        inner = correlated(test.args["query"], self.around, by_equality=True)
        output = self._first_output(inner)
        keys = inner.keys
        layer = exp.Subquery(this=inner.query, alias=exp.TableAlias(this=exp.to_identifier("_layer")))
        counts = [
            aliased(exp.Count(this=exp.Star()), _ROWS),
            aliased(exp.Count(this=column(output)), _VALUES),
        ]
        grouped = exp.Select(expressions=[*map(column, keys), *counts], from_=exp.From(this=layer))
        if keys:
            grouped.set("group", exp.Group(expressions=[column(key) for key in keys]))
        inner.query = grouped
        alias = self._join_one_row(inner)
        return column(_ROWS, alias), column(_VALUES, alias)

    def _replaced(self, node: exp.Expr) -> exp.Expr:
        """An expression with a column instead of every query inside of it."""

        def replaced(part: exp.Expr) -> exp.Expr:
            part = of_one_row(part)
            if isinstance(part, exp.Exists) and isinstance(part.this, exp.Query):
                return self._marked(part)
            if isinstance(part, exp.In) and part.args.get("query"):
                return self._three_valued(part)
            if isinstance(part, exp.Subquery | exp.Select):
                return self._scalar(part)
            for argument, value in list(part.args.items()):
                if isinstance(value, exp.Expr):
                    part.set(argument, replaced(value))
                elif isinstance(value, list):
                    part.set(argument, [replaced(v) if isinstance(v, exp.Expr) else v for v in value])
            return part

        return replaced(node.copy())

    def _marked(self, test: exp.Exists) -> exp.Expr:
        """EXISTS as a value: whether a LEFT JOIN with the distinct keys finds any."""
        inner = correlated(test.this, self.around, keep_outputs=False, by_equality=True)
        return self._mark(inner, inner.about)

    def _mark(self, inner: Correlated, conditions: Callable[[str], list[exp.Expr]]) -> exp.Expr:
        query = inner.query
        query.set("expressions", [*query.expressions, aliased(exp.true(), MARK)])
        query.set("distinct", exp.Distinct())
        alias = self._join(inner, conditions, side="LEFT")
        return exp.paren(exp.Not(this=exp.Is(this=column(MARK, alias), expression=exp.Null())))

    def _three_valued(self, test: exp.In) -> exp.Expr:
        """IN as a value, which may be unknown."""
        if isinstance(test.this, exp.Tuple):
            return self._replaced(_as_tests(test))
        value = self._replaced(test.this) if has_subquery(test.this) else test.this
        inner = correlated(test.args["query"], self.around, by_equality=True)
        output = self._first_output(inner)
        found = self._mark(
            inner,
            lambda alias: [
                exp.EQ(this=value.copy(), expression=column(output, alias)),
                *inner.about(alias),
            ],
        )
        rows, values = self._counted(test)
        unknown = exp.or_(
            exp.Is(this=value.copy(), expression=exp.Null()), exp.GT(this=rows.copy(), expression=values)
        )
        nothing = exp.EQ(this=_or_zero(rows), expression=exp.Literal.number(0))
        return exp.paren(
            exp.Case()
            .when(found, exp.true())
            .when(nothing, exp.false())
            .when(unknown, exp.null())
            .else_(exp.false())
        )

    def _scalar(self, node: exp.Expr) -> exp.Expr:
        """A subquery that is one value."""
        query = bare(node)
        if len(output_names(query, self.tables)) != 1:
            raise refusal(node, "a subquery of several columns as a value")
        inner = correlated(query, self.around, by_equality=True)
        output = self._first_output(inner)
        keys = inner.keys
        empty: exp.Expr = exp.null()
        if has_one_row(query):
            empty = of_nothing(query.expressions[0].unalias())
        else:
            inner.query = only_row(inner.query, output, keys)
        alias = self._join_one_row(inner)
        value: exp.Expr = column(output, alias)
        if keys and has_one_row(query) and not is_null_of_nothing(query):
            mark = exp.Is(this=column(MARK, alias), expression=exp.Null())
            inner.query.set("expressions", [*inner.query.expressions, aliased(exp.true(), MARK)])
            value = exp.paren(exp.Case().when(mark, empty).else_(value))
        return value

    def _join_one_row(self, inner: Correlated) -> str:
        """Joins a query that has one row, or one for all that it is correlated by."""
        if inner.conditions:
            return self._join(inner, inner.about, side="LEFT")
        return self._join(inner, None, kind="CROSS")

    def _join(
        self,
        inner: Correlated,
        conditions: list[exp.Expr] | Callable[[str], list[exp.Expr]] | None,
        kind: str = "",
        side: str = "",
    ) -> str:
        alias = f"_subquery_{len(self.joins) + 1}"
        while any(item.alias.lower() == alias for item in self.around.scope.items):
            alias += "_"
        if callable(conditions):
            conditions = conditions(alias)
        elif conditions is not None:
            conditions = inner.about(alias)
        if not inner.query.expressions:
            inner.query.set("expressions", [aliased(exp.Literal.number(1), _VALUE)])
        subquery = exp.Subquery(this=inner.query, alias=exp.TableAlias(this=exp.to_identifier(alias)))
        join = exp.Join(this=subquery)
        if side:
            join.set("side", side)
        if kind:
            join.set("kind", kind)
        if conditions:
            join.set("on", exp.and_(*conditions))
        elif kind in ("SEMI", "ANTI") or side:
            join.set("on", exp.true())
        self.joins.append(join)
        return alias

    def _first_output(self, inner: Correlated) -> str:
        """The subquery's output, under a name that nothing else has."""
        return self._outputs(inner, 1)[0]

    def _outputs(self, inner: Correlated, number: int) -> list[str]:
        """The first outputs of a subquery, renamed: their own names may be those of columns outside."""
        first = inner.query.expressions[0]
        if number == 1 and not isinstance(first, exp.Alias) and not first.is_star:
            first.replace(aliased(first.copy(), _VALUE))
            return [_VALUE]
        names = output_names(inner.query, self.tables)
        new = [_VALUE if number == 1 else f"{_VALUE}_{place}" for place in range(1, number + 1)]
        kept = inner.keys
        values = [aliased(column(old), name) for old, name in zip(names, new, strict=False)]
        layer = exp.Subquery(this=inner.query, alias=exp.TableAlias(this=exp.to_identifier("_layer")))
        inner.query = exp.Select(expressions=[*values, *map(column, kept)], from_=exp.From(this=layer))
        return new


def _as_tests(test: exp.In) -> exp.Expr:
    """IN of several values at once: whether some row is equal to them, or may be."""
    values = test.this.expressions
    names = [f"{_VALUE}_{place}" for place in range(1, len(values) + 1)]
    alias = exp.TableAlias(
        this=exp.to_identifier(_ROWS), columns=[exp.to_identifier(name, quoted=True) for name in names]
    )
    rows = exp.Subquery(this=bare(test.args["query"]).copy(), alias=alias)
    pairs = zip(values, names, strict=True)
    equal = [exp.EQ(this=value.copy(), expression=column(name, _ROWS)) for value, name in pairs]

    def exists(conditions: Iterable[exp.Expr]) -> exp.Exists:
        one = exp.Select(expressions=[exp.Literal.number(1)], from_=exp.From(this=rows.copy()))
        one.set("where", exp.Where(this=exp.and_(*conditions)))
        return exp.Exists(this=one)

    found, perhaps = exists(equal), exists(_perhaps(each.copy()) for each in equal)
    return exp.paren(exp.Case().when(found, exp.true()).when(perhaps, exp.null()).else_(exp.false()))


def _perhaps(equal: exp.EQ) -> exp.Expr:
    """Whether two values are equal, or nobody knows."""
    unknown = [exp.Is(this=side.copy(), expression=exp.null()) for side in (equal.this, equal.expression)]
    return exp.paren(exp.or_(equal, *unknown))


def _or_zero(node: exp.Expr) -> exp.Expr:
    return exp.Coalesce(this=node.copy(), expressions=[exp.Literal.number(0)])

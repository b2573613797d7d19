"""A query inside of another one, made independent of it: what it says about both becomes a join's condition.

Where it says in WHERE what its own columns have to do with those outside, these columns become outputs of it,
and the condition moves. All other queries get the domain of what they name. Queries that give one row, or
must (they stand for a value, or aggregate without groups), are here as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from rollview.sql.functions import is_aggregate
from rollview.sql.names.free_columns import names, own_columns
from rollview.sql.names.outputs import output_names, scope_of
from rollview.sql.passes.dependent_joins import Around, OverDomain, outer_prefix, over_domain
from rollview.sql.passes.layers import aggregates, is_grouped
from rollview.sql.tree import aliased, bare, column, own, written_conjuncts

MARK = "_mark"
_HERE = "_here"
"""Stands for the alias of the join until that is known."""


@dataclass
class Correlated:
    """A query without what it says about the one around it; `outputs` are those that conditions use."""

    query: exp.Select
    outputs: dict[str, tuple[exp.Expr, str]] = field(default_factory=dict)
    conditions: list[exp.Expr] = field(default_factory=list)

    @property
    def keys(self) -> list[str]:
        return [name for _, name in self.outputs.values()]

    def about(self, alias: str) -> list[exp.Expr]:
        """The conditions on both, with the query's own columns under its alias."""

        def placed(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) and node.table == _HERE:
                return column(node.name, alias)
            return node

        return [each.copy().transform(placed) for each in self.conditions]


def correlated(
    query: exp.Expr, around: Around, keep_outputs: bool = True, by_equality: bool = False
) -> Correlated:
    """The query on its own; if `by_equality`, its conditions are nothing but equalities."""
    query = bare(query).copy()
    if not keep_outputs:
        _without_outputs(query)
    places = around.named_by(query)
    if not places:
        return Correlated(query if isinstance(query, exp.Select) else over_all(query, around))
    # Without GROUP BY there is one group, also of no rows; HAVING may let it pass.
    is_one_group = bool(query.args.get("having") and not query.args.get("group"))
    if isinstance(query, exp.Select) and not is_one_group:
        moved = _Moved(query, around)
        if moved.is_possible(places) and (moved.is_by_equality or not (by_equality or is_grouped(query))):
            return moved.correlated()
    return _with_domain(query, over_domain(query, around), around)


def _without_outputs(query: exp.Expr) -> None:
    """Of a query whose rows are not looked at, only their number matters."""
    if not query.args.get("offset") and not _is_limit_zero(query):
        for argument in ("order", "limit", *(["distinct"] if isinstance(query, exp.Select) else [])):
            query.set(argument, None)
    elif not query.args.get("order"):
        # Whichever rows are left out, as many stay.
        is_plain = isinstance(query, exp.Select) and not query.args.get("distinct")
        key = exp.true() if is_plain else exp.Literal.number(1)
        query.set("order", exp.Order(expressions=[exp.Ordered(this=key)]))
    if isinstance(query, exp.Select) and not is_grouped(query) and not query.args.get("distinct"):
        query.set("expressions", [])


def _is_limit_zero(query: exp.Expr) -> bool:
    limit = query.args.get("limit")
    return limit is not None and limit.expression == exp.Literal.number(0)


def completed(query: exp.Expr, around: Around) -> Correlated:
    """The same for a query that gives one row always, as a row for every value outside."""
    query = bare(query)
    whole = over_domain(query, around)
    values, columns = output_names(query, around.tables), tuple(whole.columns)
    assert isinstance(query, exp.Select)
    assert isinstance(whole.query, exp.Select)
    whole.query.set("expressions", [*whole.query.expressions, aliased(exp.true(), MARK)])
    missing = exp.Is(this=column(MARK, "_found"), expression=exp.null())
    items = [
        exp.Case().when(missing.copy(), of_nothing(item.unalias())).else_(column(name, "_found"))
        for item, name in zip(query.expressions, values, strict=True)
    ]
    outputs = [aliased(column(name, "_all"), name) for name in columns]
    on = [_equal(column(name, "_all"), column(name, "_found"), name, whole) for name in columns]
    join = exp.Join(this=_aliased(whole.query, "_found"), side="LEFT", on=exp.and_(*on))
    select = exp.Select(
        expressions=[
            *(aliased(item, name, quoted=True) for item, name in zip(items, values, strict=True)),
            *outputs,
        ],
        from_=exp.From(this=_aliased(whole.domain.copy(), "_all")),
        joins=[join],
    )
    inner = Correlated(select)
    for name, seen in whole.columns.items():
        inner.outputs[name] = (column(name), name)
        outside = around.scope.syntax(seen.column)
        inner.conditions.append(exp.NullSafeEQ(this=outside, expression=column(name, _HERE)))
    return inner


def _aliased(query: exp.Expr, alias: str) -> exp.Subquery:
    return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(alias)))


def _equal(outside: exp.Expr, inside: exp.Expr, name: str, whole: OverDomain) -> exp.Expr:
    """NULL needs to find its row only where there can be one."""
    kind = exp.EQ if name in whole.rejects_null else exp.NullSafeEQ
    return kind(this=outside, expression=inside)


def _with_domain(query: exp.Expr, whole: OverDomain, around: Around) -> Correlated:
    is_select = isinstance(query, exp.Select)
    inner = Correlated(whole.query if is_select else over_all(whole.query, around))  # type: ignore[arg-type]
    for name, seen in whole.columns.items():
        inner.outputs[name] = (column(name), name)
        outside = around.scope.syntax(seen.column)
        inner.conditions.append(_equal(outside, column(name, _HERE), name, whole))
    return inner


def over_all(query: exp.Expr, around: Around) -> exp.Select:
    """A SELECT over another query, with its columns."""
    names_of_all = output_names(query, around.tables)
    return exp.Select(
        expressions=[column(name) for name in names_of_all],
        from_=exp.From(this=_aliased(query.copy(), "_layer")),
    )


class _Moved:
    """A SELECT of which conditions in WHERE move to the join."""

    def __init__(self, query: exp.Select, around: Around) -> None:
        self._around = around
        self._inside = scope_of(query, around.tables)
        self._inner = Correlated(query)
        self._prefix = outer_prefix(query)
        where = query.args.get("where")
        parts = list(written_conjuncts(where.this)) if where is not None else []
        self._about_both = [part for part in parts if self._is_about_outside(part)]
        self._kept = [part for part in parts if not self._is_about_outside(part)]

    def is_possible(self, places: list[exp.Column]) -> bool:
        """Whether all conditions on the outside are in WHERE, and nothing comes after it."""
        query = self._inner.query
        own_places = [each for part in self._about_both for each in self._outside(part)]
        has_single_group = is_grouped(query) and not query.args.get("group")
        return (
            len(own_places) == len(places)
            and not any(any(own(part, exp.Query)) for part in self._about_both)
            and not query.args.get("limit")
            and not query.args.get("offset")
            and not (has_single_group and query.args.get("having"))
            and not any(any(own(item, exp.Window)) for item in query.expressions)
        )

    @property
    def is_by_equality(self) -> bool:
        """Whether each condition equates inside and outside, or is about the outside alone."""
        return all(self._equated(part) is not None or self._is_outside(part) for part in self._about_both)

    def correlated(self) -> Correlated:
        """The query without its conditions about the outside."""
        inner, query = self._inner, self._inner.query
        for part in self._about_both:
            side = self._equated(part)
            if side is not None:
                side.replace(self._exposed(side))
            elif not self._is_outside(part):
                for each in [each for each in part.find_all(exp.Column) if names(self._inside, each)]:
                    each.replace(self._exposed(each))
            inner.conditions.append(part)
        query.set("where", exp.Where(this=exp.and_(*self._kept)) if self._kept else None)
        outputs = [aliased(node, name) for node, name in inner.outputs.values()]
        query.set("expressions", [*query.expressions, *outputs])
        if is_grouped(query) and outputs:
            group = query.args.get("group") or exp.Group()
            keys = [node.copy() for node, _ in inner.outputs.values()]
            group.set("expressions", [*group.expressions, *keys])
            query.set("group", group)
        return inner

    def _exposed(self, node: exp.Expr) -> exp.Column:
        known = self._inner.outputs
        key = node.sql()
        if key not in known:
            known[key] = (node.copy(), f"{self._prefix}{len(known) + 1}")
        return column(known[key][1], _HERE)

    def _equated(self, part: exp.Expr) -> exp.Expr | None:
        """The side of an equality that is about the inside, if the other one is about the outside."""
        if not isinstance(part, exp.EQ):
            return None
        sides: tuple[exp.Expr, exp.Expr] = (part.this, part.expression)
        for inside, outside in (sides, sides[::-1]):
            if not self._is_about_outside(inside) and self._is_outside(outside):
                return inside
        return None

    def _is_outside(self, node: exp.Expr) -> bool:
        """Whether it names nothing inside, and something outside."""
        is_inside = any(names(self._inside, each) for each in node.find_all(exp.Column))
        return self._is_about_outside(node) and not is_inside

    def _is_about_outside(self, node: exp.Expr) -> bool:
        return any(True for _ in self._outside(node))

    def _outside(self, node: exp.Expr) -> Iterator[exp.Column]:
        for each in own_columns(node):
            if not names(self._inside, each) and names(self._around.scope, each):
                yield each


def is_null_of_nothing(query: exp.Expr) -> bool:
    """Whether a query of one row has nothing but NULLs in it where it finds no rows."""
    query = bare(query)
    if not has_one_row(query) or not isinstance(query, exp.Select):
        return False
    return all(isinstance(of_nothing(item.unalias()), exp.Null) for item in query.expressions)


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
    """The value of an expression over aggregates for no rows: 0 for counts, empty for lists, else NULL."""
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

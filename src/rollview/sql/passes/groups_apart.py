"""Queries inside a SELECT that groups, each where its columns are: below the groups, or above them.

A query in an argument of an aggregate function or in a key is asked for every row, so it becomes an output of
a SELECT below. One in an output, in HAVING or in ORDER BY is asked for every group, over a SELECT whose
outputs are the keys and the aggregates; it may name these: HAVING EXISTS (SELECT … WHERE b.x < min(a.x)).
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from rollview.algebra.relation import Table
from rollview.sql.dialect import DIALECT
from rollview.sql.errors import mistake
from rollview.sql.functions import is_aggregate
from rollview.sql.names.free_columns import free_columns, names
from rollview.sql.names.outputs import output_names, scope_of
from rollview.sql.passes.grouping_sets import has_grouping_sets, is_grouping, keys_of_sets
from rollview.sql.passes.layers import condition_on_groups, group_keys, is_grouped, is_of_group
from rollview.sql.tree import aliased, changed, column, own

_GROUPS, _ROWS = "_groups", "_rows"


def with_groups_apart(query: exp.Expr, tables: tuple[Table, ...]) -> exp.Expr:
    """The SELECT with no query among its groups; the same object where there is none."""
    if not isinstance(query, exp.Select) or not is_grouped(query):
        return query
    if any(item.is_star for item in query.expressions):
        return query
    places = (*query.expressions, *(query.args.get(each) for each in ("having", "group", "order")))
    if not any(place is not None and any(own(place, exp.Query)) for place in places):
        return query
    return _Apart(query.copy(), tables).run()


class _Apart:
    """One SELECT that groups, taken apart."""

    def __init__(self, select: exp.Select, tables: tuple[Table, ...]) -> None:
        self.select = select
        self.tables = tables
        self.scope = scope_of(select, tables)
        self.parts: dict[str, tuple[exp.Expr, str]] = {}
        """The groups by their text, each with its expression and its name."""

    def run(self) -> exp.Select:
        select = self.select
        outputs = output_names(select, self.tables)
        items = [item.unalias() for item in select.expressions]
        condition = condition_on_groups(select) if select.args.get("having") is not None else None
        order = select.args.get("order")
        # ORDER BY means outputs first, by name or by place.
        ordered = [each for each in order.expressions if not _is_output(each, outputs)] if order else []
        group = self._group()
        self._spelled(group)
        items = [self._spelled(item) for item in items]
        sets = has_grouping_sets(select)
        keys = keys_of_sets(select) if sets else {_text(key): key for key in group.expressions}
        over = _Over(self, set(keys))
        above = exp.Select(
            expressions=[
                aliased(over.replaced(item), name, quoted=True)
                for item, name in zip(items, outputs, strict=True)
            ]
        )
        if condition is not None:
            above.set("where", exp.Where(this=over.replaced(self._spelled(condition))))
        for each in ordered:
            each.set("this", over.replaced(self._spelled(each.this)))
        for argument in ("order", "limit", "offset", "distinct"):
            above.set(argument, select.args.get(argument))
        below = self._below(group)
        above.set("from_", exp.From(this=_derived(below, _GROUPS)))
        return above

    def _group(self) -> exp.Group:
        """GROUP BY with places and names of outputs written out; none for one group."""
        group = self.select.args.get("group") or exp.Group()
        keys = group_keys(self.select)
        if group.args.get("all"):
            return exp.Group(expressions=keys)
        group.set("expressions", keys)
        self.select.set("group", group)
        return group

    def _spelled(self, node: exp.Expr) -> exp.Expr:
        """The same with columns of FROM under their full names, so that the same text is the same value."""
        holder = node if isinstance(node, exp.Group) else exp.Paren(this=node.copy())
        for each in [*self._own_columns(holder), *self._columns_of_queries(holder)]:
            if names(self.scope, each):
                each.replace(self.scope.syntax(self.scope.resolve(each).column))
        return node if holder is node else holder.this

    def _own_columns(self, node: exp.Expr) -> list[exp.Column]:
        return [each for each in own(node, exp.Column) if isinstance(each, exp.Column) and not each.is_star]

    def _columns_of_queries(self, node: exp.Expr) -> Iterator[exp.Column]:
        for query in list(own(node, exp.Query)):
            yield from list(free_columns(query, (), self.tables))

    def _below(self, group: exp.Group) -> exp.Select:
        """The groups: keys and aggregates, over rows that have the values of the queries below them."""
        inner = self.select
        for argument in ("having", "order", "limit", "offset", "distinct"):
            inner.set(argument, None)
        outputs = [aliased(node, name) for node, name in self.parts.values()]
        inner.set("expressions", outputs or [aliased(exp.Count(this=exp.Star()), "_part_1")])
        inner.set("group", group if group.args.get("expressions") or has_grouping_sets(inner) else None)
        places = [*inner.expressions, *([group] if inner.args.get("group") else [])]
        return self._over_rows(inner) if any(any(own(each, exp.Query)) for each in places) else inner

    def _over_rows(self, inner: exp.Select) -> exp.Select:
        rows: dict[str, tuple[exp.Expr, str]] = {}

        def of_row(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) or _is_value_of_query(node):
                known = rows.setdefault(_text(node), (node.copy(), f"_row_{len(rows) + 1}"))
                return column(known[1], _ROWS)
            return node

        above = exp.Select(expressions=[changed(each, of_row) for each in inner.expressions])
        if inner.args.get("group"):
            above.set("group", changed(inner.args["group"], of_row))
        inner.set("expressions", [aliased(node, name) for node, name in rows.values()])
        inner.set("group", None)
        above.set("from_", exp.From(this=_derived(inner, _ROWS)))
        return above


class _Over:
    """Expressions over groups, with the parts of these instead of keys and aggregates."""

    def __init__(self, apart: _Apart, keys: set[str]) -> None:
        self.apart, self.keys = apart, keys

    def replaced(self, node: exp.Expr) -> exp.Expr:
        return changed(node.copy(), self._part)

    def _part(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Query):
            return self._inside(node)
        if _text(node) in self.keys or is_of_group(node) or is_grouping(node):
            return self._known(node)
        return node

    def _known(self, node: exp.Expr) -> exp.Column:
        parts = self.apart.parts
        _, name = parts.setdefault(_text(node), (node.copy(), f"_part_{len(parts) + 1}"))
        return column(name, _GROUPS)

    def _inside(self, query: exp.Expr) -> exp.Expr:
        """A query that names columns of the groups' rows: by keys, or in aggregates of these alone."""
        query = query.copy()
        scope, tables = self.apart.scope, self.apart.tables
        outside = [each for each in free_columns(query, (), tables) if names(scope, each)]
        while outside:
            place: exp.Expr = outside[0]
            whole = self._part_around(place, outside)
            if whole is None:
                text = place.name
                message = f"`{text}` is neither grouped nor aggregated"
                raise mistake(place, message, subject=text, hint="add it to GROUP BY")
            inside = set(map(id, whole.find_all(exp.Column)))
            whole.replace(self._known(whole))
            outside = [each for each in outside if id(each) not in inside]
        return query

    def _part_around(self, place: exp.Expr, outside: list[exp.Column]) -> exp.Expr | None:
        """The largest expression around a column that is a key, or an aggregate of columns outside."""
        found, node = None, place
        known = set(map(id, outside))
        while not isinstance(node, exp.Query):
            is_own = all(id(each) in known for each in node.find_all(exp.Column))
            if is_own and (_text(node) in self.keys or is_aggregate(node)):
                found = node
            if node.parent is None:
                break
            node = node.parent
        return found


def _is_value_of_query(node: exp.Expr) -> bool:
    if isinstance(node, exp.Exists):
        return isinstance(node.this, exp.Query)
    return isinstance(node, exp.Query) or (isinstance(node, exp.In) and bool(node.args.get("query")))


def _is_output(ordered: exp.Expr, outputs: tuple[str, ...]) -> bool:
    key = ordered.this
    if isinstance(key, exp.Column) and not key.table:
        return key.name.lower() in {name.lower() for name in outputs}
    return isinstance(key, exp.Literal) and not key.is_string


def _derived(query: exp.Select, alias: str) -> exp.Subquery:
    return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(alias)))


def _text(node: exp.Expr) -> str:
    return node.sql(dialect=DIALECT)

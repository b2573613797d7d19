"""Queries: SELECT and UNION ALL to a tree of blocks, by way of drafts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from rollview.algebra.bag import COUNT, keep
from rollview.algebra.expression import Column, Expression, call
from rollview.algebra.history import CSN
from rollview.algebra.view import Aggregate, Block, Node, Relation, Table, UnionAll
from rollview.planning.aggregate import SelectItem, aggregate, is_aggregate
from rollview.planning.grammar import is_parenthesised
from rollview.planning.normalize import Draft, normalize
from rollview.planning.place import DIALECT, mistake, refusal
from rollview.planning.scalar import condition, scalar
from rollview.planning.scope import Item, Scope, check_outputs, find_relation

_RESERVED = (CSN, COUNT)
"""Columns that change logs and view deltas add to a view's own."""


@dataclass(frozen=True)
class Joined:
    """Relations in order of appearance, what can be named of them, and the conditions of ON and USING."""

    scope: Scope
    relations: tuple[Relation, ...]
    conditions: tuple[Expression, ...]


class Translation:
    """From the syntax tree of a supported query to a view's tree, over these base tables."""

    def __init__(self, tables: Iterable[Table]) -> None:
        self._tables = tuple(tables)

    def node(self, query: exp.Expr) -> Node:
        """The tree of a whole query."""
        query = _bare(query)
        if not isinstance(query, exp.Select) or not is_aggregate(query):
            return _sum(self._drafts(query))
        scope, conditions, drafts = self._from(query)
        summary = aggregate(query, self._items(query, scope, named=True), scope)
        blocks = _sum(tuple(draft.above(conditions, summary.inputs) for draft in drafts))
        return Aggregate(blocks, summary.keys, summary.measures, summary.output)

    def _drafts(self, query: exp.Expr, named: bool = True) -> tuple[Draft, ...]:
        """The select-project-joins whose sum the query is.

        Outputs that nobody reads by name need none: those of all but the first in a UNION ALL.
        """
        query = _bare(query)
        if isinstance(query, exp.SetOperation):
            return self._union(query, named)
        if not isinstance(query, exp.Select):
            raise refusal(query, "a query other than SELECT and UNION ALL")
        if is_aggregate(query):
            raise refusal(
                query.args.get("group") or query.find(exp.AggFunc) or query,
                "an aggregate (GROUP BY) inside UNION ALL or a subquery",
                hint="aggregate above it: SELECT ... FROM (... UNION ALL ...) u GROUP BY ...",
            )
        scope, conditions, drafts = self._from(query)
        items = self._items(query, scope, named)
        outputs = [(item.name, item.column or scalar(item.node, scope)) for item in items]
        return tuple(draft.above(conditions, outputs) for draft in drafts)

    def _union(self, union: exp.SetOperation, named: bool) -> tuple[Draft, ...]:
        # Long chains lean to the left, so that side is walked in a loop.
        rights: list[exp.Expr] = []
        left: exp.Expr = union
        while isinstance(left, exp.SetOperation):
            rights.append(left.expression)
            left = _bare(left.this)
        drafts = self._drafts(left, named)
        names = [name for name, _ in drafts[0].outputs]
        for right in reversed(rights):
            added = self._drafts(right, named=False)
            width = len(added[0].outputs)
            if width != len(names):
                message = f"UNION ALL of {len(names)} and {width} columns"
                raise mistake(_bare(right), message, hint="both sides need the same number of columns")
            drafts += tuple(draft.renamed(names) for draft in added)
        return drafts

    def _from(self, select: exp.Select) -> tuple[Scope, tuple[Expression, ...], tuple[Draft, ...]]:
        """What can be named, the conditions of WHERE, and what they stand above."""
        clause = select.args.get("from_")
        if clause is None:
            raise refusal(select, "SELECT without FROM")
        if isinstance(clause.this, exp.Subquery) and not is_parenthesised(clause.this):
            scope, drafts = self._derived(clause.this, select)
        else:
            joined = self._joined(self._item(clause.this), select.args.get("joins") or [])
            columns = [column for relation in joined.relations for column in relation.columns]
            scope, drafts = joined.scope, (Draft(joined.relations, joined.conditions, keep(columns)),)
        where = select.args.get("where")
        return scope, (condition(where.this, scope),) if where else (), drafts

    def _derived(self, subquery: exp.Subquery, select: exp.Select) -> tuple[Scope, tuple[Draft, ...]]:
        if select.args.get("joins"):
            hint = "join the base relations themselves"
            raise refusal(subquery, "a subquery (SELECT) in a JOIN", hint=hint)
        drafts = self._drafts(subquery.this)
        names = [name for name, _ in drafts[0].outputs]
        item = Item(subquery.alias, tuple(names))
        return Scope.of(item), tuple(draft.renamed(map(item.column, names)) for draft in drafts)

    def _joined(self, left: Joined, joins: list[exp.Join]) -> Joined:
        """One join after the other; what is joined in parentheses sees only what is inside."""
        for join in joins:
            right = self._item(join.this)
            names = join.args.get("using")
            if join.args.get("method") == "NATURAL":
                names = left.scope.common(right.scope, join)
            conditions = [*left.conditions, *right.conditions]
            if names:
                scope, pairs = left.scope.join_using(right.scope, join, names)
                conditions += [call("=", Column(one), Column(other)) for one, other in pairs]
            else:
                scope = left.scope.join(right.scope, join.this)
            if join.args.get("on"):
                conditions.append(condition(join.args["on"], scope))
            left = Joined(scope, (*left.relations, *right.relations), tuple(conditions))
        return left

    def _item(self, node: exp.Expr) -> Joined:
        """A relation, or several that are joined with each other first."""
        if is_parenthesised(node) and isinstance(node, exp.Subquery):
            return self._joined(self._item(node.this), node.args.get("joins") or [])
        if not isinstance(node, exp.Table):
            raise refusal(node, "a FROM item other than source.table")
        relation = find_relation(node, self._tables)
        source = "" if node.alias else relation.table.source
        table = relation.table
        item = Item(relation.alias, table.columns, source, table.types)
        alone = Joined(Scope.of(item), (relation,), ())
        return self._joined(alone, node.args.get("joins") or [])

    def _items(self, select: exp.Select, scope: Scope, named: bool) -> list[SelectItem]:
        """The output columns, `*` expanded; each has a name if they are `named`."""
        items: list[SelectItem] = []
        for node in select.expressions:
            inner = node.unnest()
            if node.is_star and isinstance(node, exp.Star | exp.Column):
                items += [SelectItem(seen.name, node, Column(seen.column)) for seen in scope.star(node)]
            elif isinstance(node, exp.Alias):
                items.append(SelectItem(node.alias, node.this))
            elif isinstance(inner, exp.Column) and not inner.is_star:
                items.append(SelectItem(scope.resolve(inner).name, node))
            elif named:
                message = f"the output column `{node.sql(dialect=DIALECT)}` has no name"
                raise mistake(node, message, hint="give it one with AS")
            else:
                items.append(SelectItem(f"column_{len(items) + 1}", node))
        if named:
            check_outputs(((item.name, item.node) for item in items), _RESERVED)
        return items


def _bare(query: exp.Expr) -> exp.Expr:
    """A query without the parentheses around it."""
    while isinstance(query, exp.Subquery):
        query = query.this
    return query


def _sum(drafts: tuple[Draft, ...]) -> Block | UnionAll:
    blocks = tuple(map(normalize, drafts))
    return blocks[0] if len(blocks) == 1 else UnionAll(blocks)

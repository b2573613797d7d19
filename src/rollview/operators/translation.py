"""From the syntax tree of a query to a tree of operators.

The operators are asked in turn whether the outermost construct of a query is theirs; the first that claims it
translates it, and asks the translation for what stands below. Selections, projections, joins and UNION ALL
below an operator are flattened into drafts on the way, so that blocks are as large as they can be.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from rollview.algebra.bag import COUNT, keep
from rollview.algebra.expression import Column, Expression, call
from rollview.algebra.history import CSN
from rollview.algebra.node import Node
from rollview.algebra.relation import Relation, Table
from rollview.operators.draft import Draft
from rollview.sql.grammar import Syntax, is_parenthesised
from rollview.sql.place import DIALECT, mistake, refusal
from rollview.sql.scalar import condition, scalar
from rollview.sql.scope import Item, Scope, check_outputs, find_relation

_RESERVED = (CSN, COUNT)
"""Columns that change logs and view deltas add to a view's own."""


class Operator(Protocol):
    """What an operator's class says about the SQL that stands for it."""

    @property
    def name(self) -> str:
        """What a user calls it."""

    @property
    def syntax(self) -> Syntax:
        """The nodes of the syntax tree, each with its arguments, that it adds to the grammar."""

    def claims(self, query: exp.Expr) -> bool:
        """Whether the outermost construct of the query is its own."""

    def translate(self, query: exp.Expr, translation: Translation) -> Node:
        """The tree of a query that it claims."""


@dataclass(frozen=True)
class SelectItem:
    """An output column: its name, and its SQL or, where `*` was written, the column itself."""

    name: str
    node: exp.Expr
    column: Column | None = None


@dataclass(frozen=True)
class Joined:
    """Relations in order of appearance, what can be named of them, and the conditions of ON and USING."""

    scope: Scope
    relations: tuple[Relation, ...]
    conditions: tuple[Expression, ...]


class Translation:
    """From the syntax tree of a supported query to a view's tree, over these base tables."""

    def __init__(self, tables: Iterable[Table], operators: Iterable[Operator]) -> None:
        self._tables = tuple(tables)
        self._operators = tuple(operators)

    def node(self, query: exp.Expr) -> Node:
        """The tree of a whole query."""
        query = bare(query)
        for operator in self._operators:
            if operator.claims(query):
                return operator.translate(query, self)
        raise refusal(query, "a query other than SELECT and UNION ALL")

    def drafts(self, query: exp.Expr, named: bool = True) -> tuple[Draft, ...]:
        """The select-project-joins whose sum the query is.

        Outputs that nobody reads by name need none: those of all but the first in a UNION ALL.
        """
        query = bare(query)
        if isinstance(query, exp.SetOperation):
            return self._union(query, named)
        if not isinstance(query, exp.Select):
            raise refusal(query, "a query other than SELECT and UNION ALL")
        self._check_plain(query)
        scope, conditions, drafts = self.source(query)
        items = self.items(query, scope, named)
        outputs = [(item.name, item.column or scalar(item.node, scope)) for item in items]
        return tuple(draft.above(conditions, outputs) for draft in drafts)

    def _check_plain(self, query: exp.Select) -> None:
        """A block has no operators inside."""
        for operator in self._operators:
            if operator.claims(query):
                if operator.name == "block":
                    return
                raise refusal(
                    query.args.get("group") or query.find(exp.AggFunc) or query,
                    f"an {operator.name} (GROUP BY) inside UNION ALL or a subquery",
                    hint="aggregate above it: SELECT ... FROM (... UNION ALL ...) u GROUP BY ...",
                )

    def _union(self, union: exp.SetOperation, named: bool) -> tuple[Draft, ...]:
        # Long chains lean to the left, so that side is walked in a loop.
        rights: list[exp.Expr] = []
        left: exp.Expr = union
        while isinstance(left, exp.SetOperation):
            rights.append(left.expression)
            left = bare(left.this)
        drafts = self.drafts(left, named)
        names = [name for name, _ in drafts[0].outputs]
        for right in reversed(rights):
            added = self.drafts(right, named=False)
            width = len(added[0].outputs)
            if width != len(names):
                message = f"UNION ALL of {len(names)} and {width} columns"
                raise mistake(bare(right), message, hint="both sides need the same number of columns")
            drafts += tuple(draft.renamed(names) for draft in added)
        return drafts

    def source(self, select: exp.Select) -> tuple[Scope, tuple[Expression, ...], tuple[Draft, ...]]:
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
        drafts = self.drafts(subquery.this)
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

    def items(self, select: exp.Select, scope: Scope, named: bool) -> list[SelectItem]:
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


def bare(query: exp.Expr) -> exp.Expr:
    """A query without the parentheses around it."""
    while isinstance(query, exp.Subquery):
        query = query.this
    return query

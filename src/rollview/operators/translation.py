"""From the syntax tree of a query to a tree of operators.

The operators are asked in turn whether the outermost construct of a query is theirs; the first that claims it
translates it, and asks the translation for what stands below. Selections, projections, joins and UNION ALL
below an operator are flattened into drafts on the way, so that blocks are as large as they can be. An
operator below another one becomes a stage, which the draft above it reads like a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol

from sqlglot import exp

from rollview.algebra.bag import COUNT, keep
from rollview.algebra.block import Block
from rollview.algebra.expression import Call, Column, Expression, Literal, call, to_sql
from rollview.algebra.functions.casts import cast_to, cast_type
from rollview.algebra.history import CSN
from rollview.algebra.node import Node
from rollview.algebra.relation import Relation, Table
from rollview.algebra.view import STAGE_MARK, View
from rollview.operators.draft import Draft
from rollview.sql.grammar import Syntax, is_parenthesised
from rollview.sql.place import DIALECT, NodeError, mistake, refusal
from rollview.sql.scalar import condition, scalar
from rollview.sql.scope import Item, Scope, check_outputs, find_relation

_RESERVED = (CSN, COUNT)
"""Columns that change logs and view deltas add to a view's own."""


class Types(Protocol):
    """Knows types as Spark's analyzer has them."""

    def of_stage(self, stage: View) -> tuple[str, ...]:
        """The types of a stage's columns; none if they are not known."""

    def of_expression(self, part: str, expression: Expression, columns: Mapping[str, str]) -> str:
        """The type of an expression, in a part of a view, over columns of these types; empty if not known."""


class Untyped:
    """Knows nothing: good enough where no average of decimals is computed."""

    def of_stage(self, stage: View) -> tuple[str, ...]:  # noqa: ARG002
        """None."""
        return ()

    def of_expression(self, part: str, expression: Expression, columns: Mapping[str, str]) -> str:  # noqa: ARG002
        """Not known."""
        return ""


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
    """From the syntax tree of a supported query to a view's tree, over these base tables.

    `stages` has what was cut off below, in the order in which it was met; `types` has those of expressions
    that mattered. Outputs that nobody reads by name need none (`named`): those of all but the first in a
    UNION ALL.
    """

    def __init__(
        self,
        name: str,
        tables: Iterable[Table],
        operators: Iterable[Operator],
        types: Types,
        named: bool = True,
    ) -> None:
        self._name = name
        self._tables = tuple(tables)
        self._operators = tuple(operators)
        self._known_types = types
        self.types: dict[str, str] = {}
        self._named = named
        self.stages: list[View] = []

    def node(self, query: exp.Expr) -> Node:
        """The tree of a whole query."""
        query = bare(query)
        return self._operator(query).translate(query, self)

    def _operator(self, query: exp.Expr) -> Operator:
        """Whose the outermost construct of the query is."""
        for operator in self._operators:
            if operator.claims(query):
                return operator
        raise refusal(query, "a query other than SELECT and UNION ALL")

    def drafts(self, query: exp.Expr, named: bool = True) -> tuple[Draft, ...]:
        """The select-project-joins whose sum the query is."""
        query = bare(query)
        if isinstance(query, exp.SetOperation):
            return self._union(query, named)
        if not isinstance(query, exp.Select):
            raise refusal(query, "a query other than SELECT and UNION ALL")
        if self._has_state(query):
            return (_whole(self._stage(query, named)),)
        scope, conditions, drafts = self.source(query)
        items = self.items(query, scope, named)
        outputs = [(item.name, item.column or scalar(item.node, scope)) for item in items]
        return tuple(draft.above(conditions, outputs) for draft in drafts)

    def _has_state(self, query: exp.Expr) -> bool:
        """Whether another operator than those that are flattened stands at the top of the query."""
        query = bare(query)
        return not isinstance(query, exp.SetOperation) and self._operator(query).name != Block.name

    def _stage(self, query: exp.Expr, named: bool = True) -> Relation:
        """Cuts a query off: it becomes a stage, and a relation of what stands above."""
        name = f"{self._name}{STAGE_MARK}{len(self.stages) + 1}"
        below = Translation(name, self._tables, self._operators, self._known_types, named)
        root = below.node(query)
        stage = View(name, root, query.sql(dialect=DIALECT), stages=tuple(below.stages), types=below.types)
        self.stages.append(stage)
        types = self._known_types.of_stage(stage)
        table = Table("", name, root.output_columns, types=types, own_log=True)
        return Relation(name, table)

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
        if _is_derived(clause.this) and not self._has_state(clause.this):
            scope, drafts = self._derived(clause.this, select)
        else:
            joined = self._joined(self._item(clause.this), select.args.get("joins") or [])
            columns = [column for relation in joined.relations for column in relation.columns]
            scope, drafts = joined.scope, (Draft(joined.relations, joined.conditions, keep(columns)),)
        where = select.args.get("where")
        return scope, (condition(where.this, scope),) if where else (), drafts

    def _derived(self, subquery: exp.Subquery, select: exp.Select) -> tuple[Scope, tuple[Draft, ...]]:
        if select.args.get("joins"):
            raise _refused_in_join(subquery)
        drafts = self.drafts(subquery.this)
        names = [name for name, _ in drafts[0].outputs]
        item = Item(subquery.alias, tuple(names), types=self._types_of(drafts))
        return Scope.of(item), tuple(draft.renamed(map(item.column, names)) for draft in drafts)

    def _types_of(self, drafts: Sequence[Draft]) -> tuple[str, ...]:
        """The types of the drafts' sum: where they differ, the one that holds both."""
        each = [
            [self.type_of(expression, draft.column_types()) for _, expression in draft.outputs]
            for draft in drafts
        ]
        return tuple(reduce(self._wider, kinds) for kinds in zip(*each, strict=True))

    def _wider(self, one: str, other: str) -> str:
        if one == other or not (one and other):
            return one if other else ""
        nulls = [call(cast_to(kind.upper().replace(" ", "")), Literal(None)) for kind in (one, other)]
        return self.type_of(call("COALESCE", *nulls), {})

    def type_of(self, expression: Expression, columns: Mapping[str, str]) -> str:
        """The type of an expression over columns of these types; empty if it is not known."""
        if isinstance(expression, Column):
            return columns.get(expression.name, "")
        if isinstance(expression, Call) and (to := cast_type(expression.function)):
            return to
        kind = self._known_types.of_expression(self._name, expression, columns)
        if kind:
            self.types[to_sql(expression)] = kind
        return kind

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
        if _is_derived(node):
            if not self._has_state(node):
                raise _refused_in_join(node)
            stage, source = self._stage(bare(node)), ""
            relation = replace(stage, alias=node.alias or stage.alias)
        elif isinstance(node, exp.Table):
            relation = find_relation(node, self._tables)
            source = "" if node.alias else relation.table.source
        else:
            raise refusal(node, "a FROM item other than source.table")
        table = relation.table
        item = Item(relation.alias, table.columns, source, table.types)
        alone = Joined(Scope.of(item), (relation,), ())
        return self._joined(alone, node.args.get("joins") or [])

    def items(self, select: exp.Select, scope: Scope, named: bool | None = None) -> list[SelectItem]:
        """The output columns, `*` expanded; each has a name if they are `named`."""
        named = self._named if named is None else named
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
                items.append(SelectItem("", node))
        if named:
            check_outputs(((item.name, item.node) for item in items), _RESERVED)
            return items
        names = [item.name.lower() for item in items]
        own = [bool(name) and names.index(name) == i for i, name in enumerate(names)]
        return [item if own[i] else replace(item, name=f"column_{i + 1}") for i, item in enumerate(items)]


def _is_derived(node: exp.Expr) -> bool:
    """Whether a FROM item is a query of its own, not joins in parentheses."""
    return isinstance(node, exp.Subquery) and not is_parenthesised(node)


def _refused_in_join(subquery: exp.Expr) -> NodeError:
    return refusal(subquery, "a subquery (SELECT) in a JOIN", hint="join the base relations themselves")


def _whole(relation: Relation) -> Draft:
    """All rows and columns of a relation."""
    outputs = zip(relation.table.columns, map(Column, relation.columns), strict=True)
    return Draft((relation,), (), tuple(outputs))


def bare(query: exp.Expr) -> exp.Expr:
    """A query without the parentheses around it."""
    while isinstance(query, exp.Subquery):
        query = query.this
    return query

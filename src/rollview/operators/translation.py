"""From the syntax tree of a query to a tree of operators.

The operators are asked in turn whether the outermost construct of a query is theirs; the first that claims it
translates it, and asks the translation for the part below. Selections, projections, joins and UNION ALL
below an operator are flattened into drafts on the way, so that blocks are as large as they can be. An
operator below another one becomes a stage, which the draft above it reads like a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from hashlib import sha256
from typing import Protocol

from sqlglot import exp

from rollview.algebra.bag import COUNT
from rollview.algebra.expression import Call, Column, Expression, Literal, call, cast_to, cast_type, to_sql
from rollview.algebra.history import CSN
from rollview.algebra.node import Block, Node
from rollview.algebra.relation import Relation, Table
from rollview.algebra.view import STAGE_MARK, View, owner
from rollview.errors import UnsupportedError
from rollview.operators.draft import Draft
from rollview.operators.matching import Joined, joined
from rollview.sql.dialect import DIALECT
from rollview.sql.errors import NodeError, mistake, refusal, suppress_known_to_spark
from rollview.sql.grammar import Syntax
from rollview.sql.names.ctes import is_cte
from rollview.sql.names.outputs import has_column_aliases, renamed
from rollview.sql.names.scope import Item, Scope, check_outputs, find_relation
from rollview.sql.pipeline import simple
from rollview.sql.scalar import condition, scalar
from rollview.sql.tree import FromSyntax, aliased, bare, is_parenthesised

_RESERVED = (CSN, COUNT)
_DIGITS = 10
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
        return ()

    def of_expression(self, part: str, expression: Expression, columns: Mapping[str, str]) -> str:  # noqa: ARG002
        return ""


class Operator(Protocol):
    """The methods by which an operator's class recognizes and translates its SQL."""

    @property
    def name(self) -> str:
        """The name for users."""

    @property
    def syntax(self) -> Syntax:
        """The nodes of the syntax tree, each with its arguments, that it adds to the grammar."""

    @property
    def comes_first(self) -> bool:
        """Whether it is asked before a query is taken apart into layers."""

    def claims(self, query: exp.Expr) -> bool:
        """Whether the outermost construct of the query is its own."""

    def translate(self, query: exp.Expr, translation: Translation) -> Node:
        """The tree of a query that it claims."""


Instead = Callable[["exp.Expr", "Translation", NodeError], Node]
"""Makes the node of a query that cannot be translated, because of an error."""


@dataclass(frozen=True)
class SelectItem:
    """An output column: its name, and its SQL or, where `*` was written, the column itself."""

    name: str
    node: exp.Expr
    column: Column | None = None


@dataclass(frozen=True)
class Stages:
    """The stages of a view, whichever part reads them: the same text is the same stage.

    A stage is called after its text, so that it keeps its name whichever part of the view it is in.
    """

    view: str
    views: dict[str, View] = field(default_factory=dict)
    relations: dict[str, Relation] = field(default_factory=dict)

    def name_of(self, sql: str, named: bool) -> str:
        """The name of the stage that a query is."""
        digest = sha256(f"{named}{sql}".encode()).hexdigest()[:_DIGITS]
        return f"{owner(self.view)}{STAGE_MARK}{digest}"

    def keep(self, stage: View, relation: Relation) -> Relation:
        """A stage, which is known from now on."""
        self.views[stage.name] = stage
        self.relations[stage.name] = relation
        return relation


class Translation:
    """From the syntax tree of a supported query to a view's tree, over these base tables.

    `stages` are those of the whole view; `types` has those of expressions that mattered. Outputs that nobody
    reads by name need none (`named`): those of all but the first in a UNION ALL. `instead` makes a node of a
    query that Spark knows and the translation does not; without it, such a query is refused.
    """

    def __init__(
        self,
        name: str,
        tables: Iterable[Table],
        operators: Iterable[Operator],
        types: Types,
        named: bool = True,
        stages: Stages | None = None,
        instead: Instead | None = None,
    ) -> None:
        self._name = name
        self._tables = tuple(tables)
        self._operators = tuple(operators)
        self._known_types = types
        self.types: dict[str, str] = {}
        self._named = named
        self._stages = Stages(name) if stages is None else stages
        self._instead = instead
        self._aliases = 0
        self._table: exp.Table | None = None
        """The first that the query names, as its text was when its translation began."""
        self._used: set[str] | None = None

    @property
    def tables(self) -> tuple[Table, ...]:
        return self._tables

    def node(self, query: exp.Expr) -> Node:
        """The tree of a whole query; what nobody can take apart is recomputed."""
        if self._table is None:
            self._table = next(_tables_in(query), None)
        with suppress_known_to_spark() as faults:
            simple = self._simple(query)
            return self._operator(simple).translate(simple, self)
        return self.recomputed(query, faults[0])

    def recomputed(self, query: exp.Expr, fault: NodeError) -> Node:
        """A query that is left to Spark as it is, because of something in it."""
        if self._instead is None:
            raise fault
        return self._instead(query, self, fault)

    def _simple(self, query: exp.Expr) -> exp.Expr:
        """The query with one operator outermost, and no queries inside its expressions."""
        query = bare(query)
        if any(operator.comes_first and operator.claims(query) for operator in self._operators):
            return query
        return simple(query, self._tables)

    def _operator(self, query: exp.Expr) -> Operator:
        """Whose the outermost construct of the query is."""
        for operator in self._operators:
            if operator.claims(query):
                return operator
        raise refusal(query, "a query other than SELECT and UNION ALL")

    def drafts(self, query: exp.Expr, named: bool = True) -> tuple[Draft, ...]:
        """The select-project-joins whose sum the query is."""
        query = self._simple(query)
        if isinstance(query, exp.Union):
            return self._union(query, named)
        if self._has_state(query):
            return (_whole(self.stage(query, named)),)
        assert isinstance(query, exp.Select)
        scope, conditions, drafts = self.source(query)
        items = self.items(query, scope, named)
        outputs = [(item.name, item.column or scalar(item.node, scope)) for item in items]
        return tuple(draft.above(conditions, outputs) for draft in drafts)

    def _has_state(self, query: exp.Expr) -> bool:
        """Whether the topmost operator of the query is one that is not flattened."""
        query = self._simple(query)
        return not isinstance(query, exp.Union) and self._operator(query).name != Block.name

    def stage(self, query: exp.Expr, named: bool = True) -> Relation:
        """Cuts a query off: it becomes a stage, and a relation of the part above."""
        # Its text has to say all, as it can be read alone.
        query = query if any(_tables_in(query)) else self._with_a_table(query)
        sql = query.sql(dialect=DIALECT)
        name = self._stages.name_of(sql, named)
        if known := self._stages.relations.get(name):
            return known
        below = Translation(
            name, self._tables, self._operators, self._known_types, named, self._stages, self._instead
        )
        root = below.node(query)
        stage = View(name, root, sql, stages=below.used_stages(root), types=below.types)
        types = self._known_types.of_stage(stage)
        table = Table("", name, root.output_columns, root.table_key or (), types=types, own_log=True)
        return self._stages.keep(stage, Relation(name, table))

    def ready(self, drafts: Iterable[Draft]) -> list[Draft]:
        """Drafts of which blocks can be made: each reads a relation, and finds what it joins by equality."""
        based = (draft if draft.relations else self._over_one_row(draft) for draft in drafts)
        return [each for draft in based for each in draft.null_safe_apart()]

    def _over_one_row(self, draft: Draft) -> Draft:
        """Constants over a relation that has one row at all times."""
        over = draft.times(_whole(self.stage(self._one_row())))
        return replace(over, outputs=draft.outputs)

    def _with_a_table(self, query: exp.Expr) -> exp.Expr:
        """A query of constants alone over a table, of which nothing is read."""
        query = query.copy()
        for select in list(query.find_all(exp.Select)):
            if select.args.get("from_") is None:
                one = exp.Subquery(this=self._one_row(), alias=exp.TableAlias(this=exp.to_identifier("_one")))
                select.set("from_", exp.From(this=one))
        return query

    def _one_row(self) -> exp.Select:
        """The count of no rows: one row at all times."""
        if self._table is None:
            message = "a view of constants alone: it names no table"
            raise UnsupportedError(message, hint="select from a table of a source, or from another view")
        table = self._table.copy()
        table.set("joins", None)
        return exp.Select(
            expressions=[aliased(exp.Count(this=exp.Star()), "none")],
            from_=exp.From(this=table),
            where=exp.Where(this=exp.false()),
        )

    def used_stages(self, root: Node) -> tuple[View, ...]:
        """The stages that a tree reads: of an outer join that turns out to be an inner one, some are not."""
        used = {relation.table.name for block in root.blocks for relation in block.relations}
        return tuple(stage for name, stage in self._stages.views.items() if name in used)

    def _union(self, union: exp.SetOperation, named: bool) -> tuple[Draft, ...]:
        # Long chains lean to the left, so that side is walked in a loop.
        rights: list[exp.Expr] = []
        left: exp.Expr = union
        while isinstance(left, exp.Union) and not left.args.get("distinct"):
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
        """The scope, the conditions of WHERE, and the drafts below them."""
        joined = self.from_items(select)
        where = select.args.get("where")
        conditions = (condition(where.this, joined.scope),) if where else ()
        possible = [draft for draft in joined.drafts if not draft.where(conditions).is_empty]
        return joined.scope, conditions, tuple(possible) or joined.drafts[:1]

    def from_items(self, select: exp.Select) -> Joined:
        """The drafts of FROM; a single row without columns where there is none."""
        clause = select.args.get("from_")
        if clause is None:
            return Joined(Scope(), (Draft((), (), ()),), FromSyntax(select))
        outside, self._used = self._used, _names_in(select)
        joined = self._joined(self._item(clause.this), select.args.get("joins") or [])
        self._used = outside
        return joined

    def _derived(self, subquery: exp.Subquery) -> Joined:
        """A query in FROM that stores nothing: the part above is merged into it."""
        drafts = self.drafts(subquery.this, named=not has_column_aliases(subquery))
        names = renamed(subquery, [name for name, _ in drafts[0].outputs])
        item = Item(subquery.alias or self._unnamed(), tuple(names), types=self._types_of(drafts))
        inside = tuple(draft.renamed(map(item.column, names)) for draft in drafts)
        return Joined(Scope.of(item), inside, FromSyntax(subquery))

    def _unnamed(self) -> str:
        """An alias for a query in FROM that has none, so that nobody can name it."""
        self._aliases += 1
        return f"[{self._aliases}]"

    def is_used(self, column: str) -> bool:
        """Whether the SELECT that is translated names a column somewhere, or shows all of them."""
        return self._used is None or column.lower() in self._used

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

    def _joined(self, left: Joined, joins: Sequence[exp.Join]) -> Joined:
        """One join after the other; what is joined in parentheses sees only what is inside."""
        for join in joins:
            left = joined(self, left, self._item(join.this), join)
        return left

    def _item(self, node: exp.Expr) -> Joined:
        """A relation, a query, or several that are joined with each other first."""
        if is_parenthesised(node) and isinstance(node, exp.Subquery):
            inside = self._joined(self._item(node.this), node.args.get("joins") or [])
            return replace(inside, syntax=FromSyntax(node))
        if isinstance(node, exp.Subquery) and (not self._has_state(node) or has_column_aliases(node)):
            return self._derived(node)
        if isinstance(node, exp.Subquery):
            stage, place = self.stage(bare(node)), ""
            relation = replace(stage, alias=node.alias or stage.alias)
        elif isinstance(node, exp.Table):
            relation = find_relation(node, self._tables)
            place = "" if node.alias else ".".join(part.name for part in node.parts[:-1])
        else:
            raise refusal(node, "a FROM item other than source.table")
        table = relation.table
        names = renamed(node, table.columns)
        item = Item(relation.alias, tuple(names), place, table.types)
        draft = _whole(relation).renamed(map(item.column, names))
        alone = Joined(Scope.of(item), (draft,), FromSyntax(node))
        inside = self._joined(alone, node.args.get("joins") or [])
        return replace(inside, syntax=FromSyntax(node))

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


def _tables_in(query: exp.Expr) -> Iterator[exp.Table]:
    """The tables that a query names."""
    return (table for table in query.find_all(exp.Table, bfs=False) if not is_cte(table))


def _names_in(select: exp.Select) -> set[str] | None:
    """All names in a SELECT; None where it shows all columns, or joins by those that have one name."""
    joins = select.args.get("joins") or []
    if any(item.is_star for item in select.expressions) or any(join.args.get("method") for join in joins):
        return None
    return {each.name.lower() for each in select.find_all(exp.Identifier)}


def _whole(relation: Relation) -> Draft:
    """All rows and columns of a relation. A column without a type is NULL, and has one where it is used."""
    table = relation.table
    untyped = {name for name, kind in zip(relation.columns, table.types, strict=False) if kind == "void"}
    read = [Literal(None) if name in untyped else Column(name) for name in relation.columns]
    return Draft((relation,), (), tuple(zip(table.columns, read, strict=True)))

"""Queries that no other operator can maintain: what they read is kept, and Spark runs them again over it.

WITH RECURSIVE, and what the translation cannot take apart. The stored state has the rows of all relations
that the query names, of each only the columns that it may use, with a number that says which one. A change
of a relation is a change of the state, so that the query stays exact at every csn, can be rolled, and feeds
others like any stage. The shown rows are computed from the whole state, once for every csn that is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from sqlglot import exp

from rollview.algebra.bag import Bag, keep
from rollview.algebra.costs import FULL_PART, Cost
from rollview.algebra.expression import Column, Expression, Literal, call
from rollview.algebra.node import Node
from rollview.algebra.relation import Relation
from rollview.algebra.text import facts
from rollview.operators.block import sum_of
from rollview.operators.draft import Draft
from rollview.operators.groups import IN_ORDER, check_order
from rollview.operators.translation import Translation
from rollview.sql.dialect import DIALECT
from rollview.sql.errors import NodeError, mistake
from rollview.sql.grammar import Syntax, check_stable
from rollview.sql.names.ctes import is_cte, is_recursive
from rollview.sql.names.outputs import output_names
from rollview.sql.names.scope import find_relation

B = TypeVar("B", bound=Bag)

WHICH = "_which"
"""The number of the relation that a row is of; NULL for the one row that is always there."""


@dataclass(frozen=True)
class Kept:
    """A relation that the query names, and the columns of the state that hold its own."""

    name: str
    number: int
    columns: tuple[tuple[str, str], ...]

    @property
    def is_of_it(self) -> Expression:
        """Whether a row of the state is one of the relation."""
        return call("=", Column(WHICH), Literal(self.number))


@dataclass(frozen=True)
class Recomputed(Node):
    """A query as text, over relations that are kept."""

    input: Node
    sql: str
    relations: tuple[Kept, ...]
    columns: tuple[str, ...]
    reason: str
    hint: str = ""

    name: ClassVar[str] = "query"
    method: ClassVar[str] = "full"
    comes_first: ClassVar[bool] = True
    syntax: ClassVar[Syntax] = {}

    @staticmethod
    def claims(query: exp.Expr) -> bool:
        """A query with WITH RECURSIVE of its own."""
        return is_recursive(query)

    @classmethod
    def translate(cls, query: exp.Expr, translation: Translation) -> Recomputed:
        return cls._of(query, translation, "WITH RECURSIVE")

    @classmethod
    def instead(cls, query: exp.Expr, translation: Translation, fault: NodeError) -> Recomputed:
        """The query unchanged, because it cannot be translated."""
        check_stable(query)
        if query.find(exp.Pivot) and any(item.is_star for item in query.expressions):
            # Its columns have names that only Spark knows.
            raise fault
        return cls._of(query, translation, fault.error.subject, fault.error.hint)

    @classmethod
    def _of(cls, query: exp.Expr, translation: Translation, reason: str, hint: str = "") -> Recomputed:
        for node in query.find_all(*IN_ORDER):
            if node.find_ancestor(exp.Window) is None:
                check_order(node)
        used = _used_names(query)
        found: dict[str, Relation] = {}
        for table in query.find_all(exp.Table):
            if not is_cte(table) and not isinstance(table.this, exp.Func):
                name = ".".join(part.name for part in table.parts)
                found.setdefault(name.lower(), find_relation(_plain(table), translation.tables))
        if not found:
            raise mistake(query, "a query of constants alone: it names no table")
        kept: list[Kept] = []
        for name, relation in found.items():
            own = [each for each in relation.table.columns if used is None or each.lower() in used]
            first = sum(len(each.columns) for each in kept) + 1
            # Rows count even where no column of theirs is asked for.
            own = own or [relation.table.columns[0]]
            columns = tuple((each, f"column_{place}") for place, each in enumerate(own, start=first))
            kept.append(Kept(name, len(kept) + 1, columns))
        drafts = [_draft(found[each.name], each, kept) for each in kept]
        names = output_names(query, translation.tables)
        text = query.sql(dialect=DIALECT)
        return cls(sum_of(drafts, translation), text, tuple(kept), names, reason, hint)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def output_columns(self) -> tuple[str, ...]:
        return self.columns

    @property
    def state_columns(self) -> tuple[str, ...]:
        """Which relation a row is of, and the columns of all."""
        return (WHICH, *(name for each in self.relations for _, name in each.columns))

    @property
    def key(self) -> tuple[str, ...]:
        """None: any row may have to do with any other."""
        return ()

    def absorb(self, position: int, rows: B, *extra: str) -> B:
        """The rows themselves."""
        assert position == 0
        return rows.project(keep((*self.state_columns, *extra)))

    def state_from(self, inputs: Sequence[B]) -> B:
        """All rows, and one that is none of theirs: the query has an answer even where all are empty."""
        one = inputs[0].summarize((), [(WHICH, Literal(1))])
        nothing = one.project([(name, Literal(None)) for name in self.state_columns])
        return self.absorb(0, inputs[0]).plus(nothing).net_effect()

    def emptying(self, state: B, csn: int) -> B:
        """All rows of the relations."""
        return super().emptying(state.select(call("NOT", call("IS NULL", Column(WHICH)))), csn)

    def present(self, state: B, *extra: str) -> B:
        """The query's answer."""
        tables = {
            each.name: (each.is_of_it, [(own, Column(name)) for own, name in each.columns])
            for each in self.relations
        }
        return state.queried(self.sql, tables, self.columns, extra)

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Everything, at every change."""
        sentence = f"{self.reason}: the relations that it reads are stored, and it is recomputed from them"
        hint = self.hint or "write it without, or make a view of its own of what changes rarely"
        return (Cost(FULL_PART, sentence, hint),)

    def render(self, place: str = "") -> Iterator[str]:
        """The text, what is kept for it, then the relations."""
        yield f"{self.name}{place}"
        yield from facts("text", [self.sql])
        yield from facts(
            "kept", [f"{each.name}: {', '.join(own for own, _ in each.columns)}" for each in self.relations]
        )
        yield from self.input.render()

    def explain(self) -> str:
        """All of it is computed again."""
        names = ", ".join(each.name for each in self.relations)
        return f"recomputed from the rows of {names}, which are stored"


def _plain(table: exp.Table) -> exp.Table:
    """The name alone."""
    plain = table.copy()
    for argument in ("alias", "joins", "pivots"):
        plain.set(argument, None)
    return plain


def _draft(relation: Relation, own: Kept, kept: Sequence[Kept]) -> Draft:
    """The rows of a relation, with NULLs in the columns of all others."""
    inside = dict(zip(relation.table.columns, relation.columns, strict=True))
    outputs: list[tuple[str, Expression]] = [(WHICH, Literal(own.number))]
    for each in kept:
        for column, name in each.columns:
            outputs.append((name, Column(inside[column]) if each is own else Literal(None)))
    return Draft((relation,), (), tuple(outputs))


def _used_names(query: exp.Expr) -> set[str] | None:
    """All names in a query; None where it may use any column."""
    stars = [each for each in query.find_all(exp.Star) if not isinstance(each.parent, exp.Count)]
    by_name = any(join.args.get("method") for join in query.find_all(exp.Join))
    if by_name or any(map(_shows_relations, stars)) or query.find(exp.Pivot):
        return None
    return {each.name.lower() for each in query.find_all(exp.Identifier)}


def _shows_relations(star: exp.Star) -> bool:
    """Whether a star may stand for columns of a relation, and not of a WITH alone."""
    select = star.find_ancestor(exp.Select)
    items = [] if select is None else [select.args.get("from_"), *(select.args.get("joins") or [])]
    named = [each.this for each in items if each is not None]
    return not all(isinstance(each, exp.Table) and is_cte(each) for each in named)

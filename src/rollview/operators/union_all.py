"""UNION ALL: the sum of its inputs, column by position, named as the first input's columns are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from sqlglot import exp

from rollview.algebra.bag import Bag, keep
from rollview.algebra.derivation import KeptForm, Term
from rollview.algebra.expression import Column
from rollview.algebra.node import Node
from rollview.operators.translation import Translation
from rollview.sql.grammar import Syntax

B = TypeVar("B", bound=Bag)


@dataclass(frozen=True)
class UnionAll(Node):
    """The rows of all inputs. Linear, so that each input's delta passes through alone; nothing is stored."""

    parts: tuple[Node, ...]

    name: ClassVar[str] = "union all"
    comes_first: ClassVar[bool] = False
    is_linear: ClassVar[bool] = True
    syntax: ClassVar[Syntax] = {exp.Union: ("this", "expression", "distinct")}

    @staticmethod
    def claims(query: exp.Expr) -> bool:
        """UNION ALL, and no other set operation."""
        return isinstance(query, exp.Union) and not query.args.get("distinct")

    @classmethod
    def translate(cls, query: exp.Expr, translation: Translation) -> UnionAll:
        """All inputs, however deep they are nested, side by side."""
        return cls(tuple(draft.node() for draft in translation.ready(translation.drafts(query))))

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    @property
    def output_columns(self) -> tuple[str, ...]:
        """The names of the first input's columns, as in SQL."""
        return self.inputs[0].output_columns

    @property
    def terms(self) -> tuple[Term, ...]:
        """Those of all inputs, with the first one's names."""
        return tuple(term.renamed(self.output_columns) for each in self.parts for term in each.terms)

    def origins(self, column: str) -> tuple[str, ...]:
        """The column at the same place."""
        place = self.output_columns.index(column)
        return tuple(each.output_columns[place] for each in self.inputs)

    @property
    def kept(self) -> KeptForm | None:
        """The rows of all inputs, where these are no groups."""
        below = [each.kept for each in self.inputs]
        is_bag = all(each is not None and not each.is_grouped for each in below)
        return KeptForm.of_rows(self.output_columns) if is_bag else None

    def absorb(self, position: int, rows: B, *extra: str) -> B:
        """The rows under the first input's names."""
        theirs = self.inputs[position].output_columns
        if theirs == self.output_columns:
            return rows
        named = tuple(zip(self.output_columns, map(Column, theirs), strict=True))
        return rows.project((*named, *keep(extra)))

    def render(self, place: str = "") -> Iterator[str]:
        """The inputs, numbered."""
        for number, each in enumerate(self.inputs, start=1):
            yield from each.render(f" {number} of {len(self.inputs)} (UNION ALL){place}")

    def explain(self) -> str:
        return "rows; the deltas of the inputs are added up"

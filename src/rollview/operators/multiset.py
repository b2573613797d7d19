"""INTERSECT ALL and EXCEPT ALL: per row, how often it is on each side; both numbers just add up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from sqlglot import exp

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.expression import Column, Literal, call
from rollview.algebra.node import Node
from rollview.algebra.text import facts
from rollview.operators.block import sum_of
from rollview.operators.translation import Translation
from rollview.sql.errors import mistake
from rollview.sql.grammar import Syntax

B = TypeVar("B", bound=Bag)

LEFT, RIGHT, TIMES = "_left", "_right", "_times"
_MEASURES: tuple[Output, ...] = ((LEFT, Column(LEFT)), (RIGHT, Column(RIGHT)))


@dataclass(frozen=True)
class Multiset(Node):
    """The rows of the left side as often as the right side leaves them, or shares them."""

    input: Node
    columns: tuple[str, ...]
    is_except: bool

    name: ClassVar[str] = "multiset operation"
    method: ClassVar[str] = "counts"
    comes_first: ClassVar[bool] = False
    syntax: ClassVar[Syntax] = {}

    @staticmethod
    def claims(query: exp.Expr) -> bool:
        """INTERSECT ALL and EXCEPT ALL; without ALL they are groupings."""
        return isinstance(query, exp.Intersect | exp.Except) and not query.args.get("distinct")

    @classmethod
    def translate(cls, query: exp.Expr, translation: Translation) -> Multiset:
        """Both sides, each row with the side that it is on."""
        assert isinstance(query, exp.SetOperation)
        left = translation.drafts(query.this)
        right = translation.drafts(query.expression, named=False)
        names = [name for name, _ in left[0].outputs]
        if len(right[0].outputs) != len(names):
            message = f"{query.key.upper()} of {len(names)} and {len(right[0].outputs)} columns"
            raise mistake(query.expression, message, hint="both sides need the same number of columns")
        columns = [f"key_{number}" for number in range(1, len(names) + 1)]
        sides = [
            replace(draft, outputs=(*draft.renamed(columns).outputs, *_flags(side)))
            for side, drafts in enumerate((left, right))
            for draft in drafts
        ]
        return cls(sum_of(sides, translation), tuple(names), isinstance(query, exp.Except))

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def output_columns(self) -> tuple[str, ...]:
        """The names of the left side's columns, as in SQL."""
        return self.columns

    @property
    def key(self) -> tuple[str, ...]:
        """The whole row."""
        return tuple(f"key_{number}" for number in range(1, len(self.columns) + 1))

    @property
    def state_columns(self) -> tuple[str, ...]:
        """The row, and how often it is on each side."""
        return (*self.key, LEFT, RIGHT)

    @property
    def sums(self) -> tuple[str, ...]:
        return (LEFT, RIGHT)

    def absorb(self, position: int, rows: B, *extra: str) -> B:
        """How often each row is on each side."""
        assert position == 0
        return rows.summarize((*self.key, *extra), _MEASURES)

    def net_effect(self, rows: B, *extra: str) -> B:
        """The numbers added up per row."""
        return rows.added_up((*self.key, *extra), self.sums)

    def existing(self, net: B) -> B:
        """Rows that are on a side."""
        return net.select(call("<>", call("+", Column(LEFT), Column(RIGHT)), Literal(0)))

    def present(self, state: B, *extra: str) -> B:
        """Each row as often as it is left over, or shared."""
        left, right = Column(LEFT), Column(RIGHT)
        shared = call("IF", call("<", left, right), left, right)
        left_over = call("IF", call(">", left, right), call("-", left, right), Literal(0))
        shown = tuple(zip(self.columns, map(Column, self.key), strict=True))
        times = left_over if self.is_except else shared
        return state.project((*shown, *keep(extra), (TIMES, times))).weighted(TIMES)

    def render(self, place: str = "") -> Iterator[str]:
        """Which one it is, then both sides."""
        yield f"{'except all' if self.is_except else 'intersect all'}{place}"
        yield from facts("columns", self.columns)
        yield from self.input.render()

    def explain(self) -> str:
        return "how often each row is on each side; a change is added to its row"


def _flags(side: int) -> tuple[Output, ...]:
    return (LEFT, Literal(1 - side)), (RIGHT, Literal(side))

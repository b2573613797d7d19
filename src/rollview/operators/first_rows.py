"""The first rows of an order: ORDER BY … LIMIT, and what is kept of row_number or rank up to a number.

A row that comes changes the numbers of all rows behind it, so that a window below a filter would have as many
changes as rows. Here the filter is a part of the operator, and only rows that pass it are seen. What is
stored are the rows of the window.

While rows come and go, the others keep their order. Of those, the first N are all that can ever have a
number up to N: so a step looks at the rows that it touches and at N more of each partition, however many
there are and however often they change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from sqlglot import exp

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.costs import ONE_PARTITION, Cost
from rollview.algebra.derivation import Form
from rollview.algebra.expression import Column, Expression, Literal, call, rename
from rollview.algebra.node import Node, key_names
from rollview.algebra.text import facts, plain_sql_of
from rollview.operators.block import SelectProjectJoin
from rollview.operators.translation import Translation
from rollview.operators.window import Window
from rollview.sql.grammar import Syntax
from rollview.sql.names.scope import Item, Scope
from rollview.sql.passes.row_number_bounds import Bound, bound_of
from rollview.sql.scalar import condition, scalar
from rollview.sql.tree import bare

B = TypeVar("B", bound=Bag)

_PLACE = "_place_among_others"


@dataclass(frozen=True)
class FirstRows(Node):
    """Rows of a window whose output `place` is at most `most`, and which meet the `condition`."""

    window: Window
    place: str
    most: int
    condition: Expression
    output: tuple[Output, ...]

    name: ClassVar[str] = "first rows"
    method: ClassVar[str] = "by key"
    comes_first: ClassVar[bool] = False
    syntax: ClassVar[Syntax] = {}

    @staticmethod
    def claims(query: exp.Expr) -> bool:
        """A SELECT of the rows of one window that have a small number."""
        return bound_of(query) is not None

    @classmethod
    def translate(cls, query: exp.Expr, translation: Translation) -> Node:
        """The window, and what is selected from it."""
        bound = bound_of(query)
        assert isinstance(bound, Bound) and isinstance(query, exp.Select)
        window = translation.node(bare(bound.item))
        if not isinstance(window, Window):
            # Something else is above the window, such as an order of its own.
            return SelectProjectJoin.translate(query, translation)
        item = Item(bound.item.alias or "[first rows]", window.output_columns)
        scope = Scope.of(item)
        own = {item.column(name): name for name in window.output_columns}
        output = tuple(
            (each.name, rename(each.column or scalar(each.node, scope), own.__getitem__))
            for each in translation.items(query, scope)
        )
        wanted = rename(condition(query.args["where"].this, scope), own.__getitem__)
        place = next(name for name in window.output_columns if name.lower() == bound.column)
        return cls(window, place, bound.most, wanted, output)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The one below the window."""
        return self.window.inputs

    @property
    def output_columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.output)

    @property
    def state_columns(self) -> tuple[str, ...]:
        return self.window.state_columns

    @property
    def key(self) -> tuple[str, ...]:
        return self.window.key

    @property
    def form(self) -> Form | None:
        return self.window.form

    @property
    def shown_key(self) -> Mapping[str, str]:
        """Of what the window shows of it, what is selected."""
        below = self.window.shown_key
        own = key_names(tuple(below.values()), self.output)
        return {key: own[name] for key, name in below.items() if name in own}

    def absorb(self, position: int, rows: B, *extra: str) -> B:
        return self.window.absorb(position, rows, *extra)

    def present(self, state: B, *extra: str) -> B:
        """The numbers over the partitions of each state, and the rows that are wanted."""
        numbered = self.window.present(state, *extra)
        return numbered.select(self.condition).project((*self.output, *keep(extra)))

    def reduced(self, state: B, delta: B) -> tuple[Node, B, B]:
        """The rows that the delta touches, and of the others as many as can ever be shown."""
        columns = self.state_columns
        own = state.sharing(delta, columns)
        others = state.plus(own.negate()).net_effect()
        place = dict(self.window.output)[self.place]
        numbered = others.over((*keep(columns), (_PLACE, place)), self.key)
        first = numbered.select(call("<=", Column(_PLACE), Literal(self.most)))
        return self, own.plus(first.project(keep(columns))).materialized(), delta

    def render(self, place: str = "") -> Iterator[str]:
        """The condition on the window's rows, then the window."""
        yield f"{self.name}{place}"
        yield from facts("wanted", plain_sql_of([("", self.condition)]))
        yield from facts("output", plain_sql_of(self.output))
        yield from self.window.render()

    @property
    def costs(self) -> tuple[Cost, ...]:
        """A single partition has all rows."""
        if self.key:
            return ()
        sentence = "all rows are in one order: a step that changes any of them reads them all, once"
        hint = "filter or group first, so that the rows to be ordered are few"
        return (Cost(ONE_PARTITION, sentence, hint),)

    def explain(self) -> str:
        return f"the rows of each partition; of one that changes, the first {self.most:,} are found again"

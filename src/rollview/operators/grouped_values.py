"""GROUP BY with any aggregate function: the values of each group are kept, and the functions run over them.

MIN, MAX, COUNT(DISTINCT), percentiles and all else that does not just add up need the values of a group
again when one of them goes. The stored state is the bag of keys and arguments, each combination with its
count, sorted by key; nothing else of the rows below is kept. When a group changes, Spark runs the functions
over it.

Sums of floating-point numbers belong here as well: computed anew from the same values in the same order,
they never drift, however many refreshes there were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.costs import ONE_GROUP, Cost
from rollview.algebra.derivation import Form
from rollview.algebra.expression import Column, Literal, call
from rollview.algebra.history import CSN
from rollview.algebra.node import Node, key_names
from rollview.algebra.text import facts, plain_sql_of
from rollview.operators.partial_groups import PartialGroups

B = TypeVar("B", bound=Bag)

REAL = "_real"
"""1 for a row of the input; NULL for the one that stands for a single group when it has no rows."""


@dataclass(frozen=True)
class GroupedValues(Node):
    """Groups with all their values: `keys` and `values` are stored, `output` is computed from them.

    Without keys there is one group, which always exists: then a row that is none of the input keeps it there.
    """

    input: Node
    keys: tuple[str, ...]
    values: tuple[str, ...]
    output: tuple[Output, ...]

    name: ClassVar[str] = "aggregate of values"
    method: ClassVar[str] = "by key"

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The one below."""
        return (self.input,)

    @property
    def output_columns(self) -> tuple[str, ...]:
        """The names of the columns that a reader sees."""
        return tuple(name for name, _ in self.output)

    @property
    def state_columns(self) -> tuple[str, ...]:
        """Keys and values."""
        return (*self.keys, *self.values, *(() if self.keys else (REAL,)))

    @property
    def key(self) -> tuple[str, ...]:
        """The group's keys; none for a single group."""
        return self.keys

    @property
    def table_key(self) -> tuple[str, ...] | None:
        """The group keys, where all of them are shown."""
        return shown_keys(self.keys, self.output)

    @property
    def form(self) -> Form | None:
        """The keys and values of rows; a single group has one that is none of these."""
        below = self.input.form
        return below and below.above(dict(keep(self.state_columns))) if self.keys else None

    @property
    def shown_key(self) -> Mapping[str, str]:
        """The group keys that are shown."""
        return key_names(self.keys, self.output)

    def absorb(self, position: int, rows: B, *extra: str) -> B:
        """The keys and values of the rows."""
        assert position == 0
        real = () if self.keys else ((REAL, Literal(1)),)
        return rows.project((*keep((*self.keys, *self.values)), *real, *keep(extra)))

    def state_from(self, inputs: Sequence[B]) -> B:
        """The values of complete rows, and what keeps a single group there."""
        state = self.absorb(0, inputs[0])
        if self.keys:
            return state.net_effect()
        nothing = inputs[0].summarize((), [(REAL, Literal(1))])
        outputs = [(name, Literal(None)) for name in self.values]
        return state.plus(nothing.project((*outputs, (REAL, Literal(None))))).net_effect()

    def emptying(self, state: B, csn: int) -> B:
        """All values; what keeps a single group there stays."""
        real = state if self.keys else state.select(call("NOT", call("IS NULL", Column(REAL))))
        return super().emptying(real, csn)

    def present(self, state: B, *extra: str) -> B:
        """The functions, over each group."""
        return state.group((*self.keys, *extra), (*self.output, *keep(extra)))

    def reduced(self, state: B, delta: B) -> tuple[Node, B, B]:
        """The values that the delta touches, and one row per group for all others, where that will do."""
        if not self._has_parts:
            return self, state, delta
        parts, output = PartialGroups.of(self.keys, self.output)
        touched = parts.touched(state, delta)
        rest = parts.rest(state.plus(touched.negate()).net_effect())
        columns = (*self.state_columns, *parts.columns)
        values = tuple(name for name in columns if name not in self.keys and name != REAL)
        node = replace(self, values=values, output=output)
        less = parts.own(touched).plus(rest).project(keep(node.state_columns)).materialized()
        return node, less, parts.own(delta, CSN)

    @property
    def _has_parts(self) -> bool:
        """Whether the functions follow from those of parts of a group."""
        try:
            PartialGroups.of(self.keys, self.output)
        except ValueError:
            return False
        return True

    def render(self, place: str = "") -> Iterator[str]:
        """Keys, values and outputs, then the input."""
        yield f"{self.name}{place}"
        yield from facts("keys", self.keys or ["none: one group for all rows"])
        yield from facts("values", self.values)
        yield from facts("output", plain_sql_of(self.output))
        yield from self.input.render()

    @property
    def has_one_row(self) -> bool:
        """Without keys there is one group."""
        return not self.keys

    @property
    def costs(self) -> tuple[Cost, ...]:
        """A single group has all values."""
        if self.keys:
            return ()
        sentence = "one group keeps all its values, counted, "
        sentence += (
            "and a step reads them all, once" if self._has_parts else "and every change computes it from all"
        )
        hint = "group by something first, so that the values of the outer group are few"
        return (Cost(ONE_GROUP, sentence, hint),)

    def explain(self) -> str:
        """Groups are computed again from what is kept of them."""
        return "the values of each group, counted; a group that changes is computed again from its values"


def shown_keys(keys: Sequence[str], output: Sequence[Output]) -> tuple[str, ...] | None:
    """What the keys of groups are called in the output; None if there are none, or one is not shown."""
    shown = key_names(keys, output)
    return tuple(shown.values()) if keys and len(shown) == len(keys) else None

"""Nodes: the operators that a view's tree is made of. The leaves are blocks.

A node owns everything about itself. What a driver, a bag or an algorithm wants to know of an operator it asks
the node, so that a new operator is one new class.

**The law.** A node keeps a *state* that is linear in the rows of its inputs: `absorb` maps input rows to
state rows one by one or sum by sum, so

    state(R + ΔR) = state(R) + absorb(ΔR)

and a timed delta of the input becomes a timed delta of the state without anything being read. What a reader
sees is `present(state)`, which need not be linear. Its change at a csn is found at the *change points* of the
state's keys: the rows that `present` gives for a key just before and just after (`row_delta`). For that,
`present` takes further columns along as if they belonged to the operator's own keys.

A *linear* node shows its state as it is. The defaults are those of a node whose state is a bag of rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, ClassVar, TypeVar

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.change_points import are_few, change_points, running_points
from rollview.algebra.costs import Cost
from rollview.algebra.derivation import Form
from rollview.algebra.expression import Column, Literal
from rollview.algebra.history import CSN

if TYPE_CHECKING:
    from rollview.algebra.block import Block

B = TypeVar("B", bound=Bag)


class Node(ABC):
    """An operator with its inputs; a value, equal to the same operator over the same inputs."""

    name: ClassVar[str]
    """What `explain` calls the operator."""

    is_linear: ClassVar[bool] = False
    """Whether the state is what a reader sees, so that a delta of the state is one of the rows."""

    method: ClassVar[str] = "linear"
    """How it is maintained: `linear`, `counts`, or `by key`, where keys that change are computed again."""

    # Shape.

    @property
    @abstractmethod
    def output_columns(self) -> tuple[str, ...]:
        """The names of the columns that a reader sees."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes whose rows this one reads; none for a block."""
        return ()

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The leaves below, left to right."""
        return tuple(block for each in self.inputs for block in each.blocks)

    # State.

    @property
    def state_columns(self) -> tuple[str, ...]:
        """The columns of the stored state, and so of the stored delta."""
        return self.output_columns

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the state by which it works: rows that differ there do not meet."""
        return self.state_columns

    @property
    def sums(self) -> tuple[str, ...] | None:
        """The columns of the state besides its key, if it has one row per key, and they just add up.

        Then each row of a state is shown by itself, so that a signed bag of them can be presented.
        """
        return None

    @property
    def shown(self) -> tuple[Output, ...] | None:
        """The reader's columns, where each row of the state is shown as one row; None otherwise."""
        return keep(self.output_columns) if self.is_linear else None

    @property
    def shown_key(self) -> Mapping[str, str]:
        """For columns of the key that a reader sees unchanged, what they are called there."""
        return key_names(self.key, self.shown or ())

    @property
    def state_types(self) -> Mapping[str, str]:
        """Columns of the state that need another type than `absorb` gives: SQL over the input that has it."""
        return {}

    def refusal(self, types: Mapping[str, str]) -> tuple[str, str]:  # noqa: ARG002 - for those that refuse
        """Why a state with columns of these types cannot be kept exactly, and a hint; empty if it can."""
        return "", ""

    @property
    def row_key(self) -> tuple[str, ...] | None:
        """Columns of which a reader never sees the same values twice; None if none are known."""
        return None

    @property
    def table_key(self) -> tuple[str, ...] | None:
        """The same, for whoever reads what is shown as a table; more may be known of that."""
        return self.row_key

    @property
    def form(self) -> Form | None:
        """What the state has, over the columns of relations, where it is that simple."""
        return None

    def origins(self, column: str) -> tuple[str, ...] | None:  # noqa: ARG002 - for those that have some
        """Of each input the column that output rows have unchanged in this column; None if there is none.

        Input rows with another value there have no influence on these output rows.
        """
        return None

    @property
    def has_one_row(self) -> bool:
        """Whether a reader always sees exactly one row."""
        return False

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What it costs beyond the size of a change."""
        return ()

    # Rules.

    @abstractmethod
    def absorb(self, position: int, rows: B, *extra: str) -> B:
        """What rows of an input add to the state; columns named in `extra`, such as the csn, are kept."""

    def present(self, state: B, *extra: str) -> B:
        """What a reader sees of a state, for every combination of the `extra` columns on its own."""
        assert self.is_linear, f"{type(self).__name__} does not say what a reader sees"
        return state.project(keep((*self.output_columns, *extra)))

    def net_effect(self, rows: B, *extra: str) -> B:
        """State rows, or pieces of a delta, added up; columns that are not named are dropped."""
        return rows.project(keep((*self.state_columns, *extra))).net_effect()

    def existing(self, net: B) -> B:
        """What is there of a net state. A delta keeps more: a group without rows still says what to add."""
        return net

    def roll(self, state: B, delta: B) -> B:
        """The state after a piece of its timed delta, whatever the order of its rows."""
        whole = state.plus(delta.project(keep(state.columns)))
        return self.existing(self.net_effect(whole))

    def emptying(self, state: B, csn: int) -> B:
        """The timed delta that leaves, at a csn, the state of empty inputs; `state` is the one before it.

        By the law that is the state itself, taken away: what is there without any input row stays.
        """
        return state.negate().project((*keep(self.state_columns), (CSN, Literal(csn))))

    def reduced(self, state: B, delta: B) -> tuple[Node, B, B]:
        """An operator with a smaller state, of which each transaction changes the same rows.

        For keys that change often: what it costs once must be less than all else costs at every change.
        """
        return self, state, delta

    def row_delta(self, state: B, delta: B, after: int) -> B:
        """The timed delta of what a reader sees, not net; `state` is the one at csn `after`."""
        if self.is_linear:
            return delta
        if self.sums is None:
            few = are_few(self, state, delta)
            return change_points(*((self, state, delta) if few else self.reduced(state, delta)), after)
        return running_points(self, self.sums, state, delta, after)

    # Trees.

    def state_from(self, inputs: Sequence[B]) -> B:
        """The state for the complete rows of each input."""
        parts = [self.absorb(position, rows) for position, rows in enumerate(inputs)]
        return self.existing(self.net_effect(reduce(lambda left, right: left.plus(right), parts)))

    def state_of(self, contents: Iterator[B]) -> B:
        """The state for the complete content of each block below, left to right."""
        return self.state_from([each.rows_of(contents) for each in self.inputs])

    def rows_of(self, contents: Iterator[B]) -> B:
        """What a reader sees for the complete content of each block below, left to right."""
        return self.present(self.state_of(contents))

    def lift(self, number: int, delta: B, *extra: str) -> B:
        """The delta of the state for a delta of one of the blocks below, by its number; `extra` is kept."""
        if delta.has_no_rows:
            # Its columns need not have types that any function would take.
            return delta.project((*((name, Literal(None)) for name in self.state_columns), *keep(extra)))
        for position, each in enumerate(self.inputs):
            if number < len(each.blocks):
                assert each.is_linear, f"the input {each.name} has a state of its own"
                return self.absorb(position, each.lift(number, delta, *extra), *extra)
            number -= len(each.blocks)
        raise IndexError(f"no block {number} below {self.name}")

    # For people.

    @abstractmethod
    def render(self, place: str = "") -> Iterator[str]:
        """The operator and all below it as text, one fact per line; equal nodes give equal text."""

    @abstractmethod
    def explain(self) -> str:
        """How its rows are kept up to date, in a sentence."""


def key_names(keys: Sequence[str], output: Sequence[Output]) -> dict[str, str]:
    """For each of these columns that is shown as it is, what it is called there."""
    shown = {each.name: name for name, each in output if isinstance(each, Column)}
    return {key: shown[key] for key in keys if key in shown}

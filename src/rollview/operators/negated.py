"""What is subtracted in a sum of blocks: the rows of its input with their counts negated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from rollview.algebra.bag import Bag
from rollview.algebra.node import Node

B = TypeVar("B", bound=Bag)


@dataclass(frozen=True)
class Negated(Node):
    """Linear: what its input gains it loses. It only ever stands in a sum that has these rows."""

    input: Node

    name: ClassVar[str] = "minus"
    is_linear: ClassVar[bool] = True

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The one below."""
        return (self.input,)

    @property
    def output_columns(self) -> tuple[str, ...]:
        """Those of its input."""
        return self.input.output_columns

    def absorb(self, position: int, rows: B, *extra: str) -> B:  # noqa: ARG002 - all columns are kept
        """The rows, taken away."""
        assert position == 0
        return rows.negate()

    def render(self, place: str = "") -> Iterator[str]:
        """The input, said to be subtracted."""
        yield from self.input.render(f"{place} (subtracted)")

    def explain(self) -> str:
        """Nothing is stored but rows."""
        return "rows; the delta of the input is subtracted"

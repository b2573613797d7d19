"""Subtraction in a sum of blocks: the rows of the input with their counts negated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from rollview.algebra.bag import Bag
from rollview.algebra.derivation import Term
from rollview.algebra.node import Node

B = TypeVar("B", bound=Bag)


@dataclass(frozen=True)
class Negated(Node):
    """Linear: what its input gains it loses. It is only used in a sum that has these rows."""

    input: Node

    name: ClassVar[str] = "minus"
    is_linear: ClassVar[bool] = True

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def output_columns(self) -> tuple[str, ...]:
        return self.input.output_columns

    @property
    def terms(self) -> tuple[Term, ...]:
        """Those of its input with the other sign."""
        return tuple(replace(each, sign=-each.sign) for each in self.input.terms)

    def absorb(self, position: int, rows: B, *extra: str) -> B:  # noqa: ARG002 - all columns are kept
        """The rows, taken away."""
        assert position == 0
        return rows.negate()

    def render(self, place: str = "") -> Iterator[str]:
        """The input, said to be subtracted."""
        yield from self.input.render(f"{place} (subtracted)")

    def explain(self) -> str:
        return "rows; the delta of the input is subtracted"

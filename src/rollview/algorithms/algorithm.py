"""What drivers know of an algorithm: its processes, its claims, and which views it can serve."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rollview.algebra.levels import Level, Scenario
from rollview.algebra.view import View
from rollview.algorithms.effects import WHOLE_VIEW, ForwardQuery, Process


def one_position(view: View) -> Iterator[ForwardQuery]:
    """One position for all relations of a view."""
    yield ForwardQuery(view.name, WHOLE_VIEW)


@dataclass(frozen=True)
class Algorithm:
    """An algorithm as the drivers see it.

    `positions` names what has a position in the history. `claims`
    is the level it is held to in each scenario. `refusal` names the reason why it cannot serve a view, or
    is empty. `sequenced` says that it reads the history; otherwise it takes messages raw, in the order in
    which they arrive, as its paper does. `single_source`: all relations must be at one source.
    `networks` are those on which the claims hold.
    """

    name: str
    processes: Callable[[View], Iterator[Process]]
    positions: Callable[[View], Iterator[ForwardQuery]]
    claims: Mapping[Scenario, Level]
    refusal: Callable[[View], str]
    sequenced: bool
    single_source: bool = False
    networks: tuple[str, ...] = ("fifo",)
    takes_net_effect: bool = False
    """Whether an interval counts as one transaction, so that states inside of it are given up."""
    asks_the_view: bool = False
    """Whether the stored view answers for changes under a key that it keeps, instead of a source."""
    keeps_control: bool = False
    """Whether it must know more than its positions to go on."""

    def continues(self, other: Algorithm) -> bool:
        """Whether it can go on from where another one has come."""
        is_plain = not self.keeps_control and not other.keeps_control
        return self == other or (is_plain and self.positions is other.positions)

    @property
    def level(self) -> Level:
        """What it reaches where messages come in the order of csn and no state inside a unit is shown.

        Then a unit of work is one transaction of one source to those that take messages raw.
        """
        return min(self.claims.values()) if self.sequenced else self.claims[Scenario.SINGLE_UPDATE]

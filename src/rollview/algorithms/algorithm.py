"""The interface of an algorithm for drivers: its processes, its claims, and which views it can serve.

Claims are on the papers' two scales: how consistent a view is, and how far a transaction reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from rollview.algebra.view import View
from rollview.algorithms.effects import WHOLE_VIEW, ForwardQuery, Process


class Level(IntEnum):
    """The levels of zhuge1996 §4.2; each includes the ones below it."""

    NONE = 0
    CONVERGENCE = 1
    WEAK = 2
    STRONG = 3
    COMPLETE = 4

    def __str__(self) -> str:
        return self.name.lower()


class Scenario(StrEnum):
    """The transaction scenarios of zhuge1996 §3.1, in order of scope."""

    SINGLE_UPDATE = "single-update"
    SOURCE_LOCAL = "source-local"
    GLOBAL = "global"


def one_position(view: View) -> Iterator[ForwardQuery]:
    """One position for all relations of a view."""
    yield ForwardQuery(view.name, WHOLE_VIEW)


def nothing(_: View) -> str:
    """The reason against a view of an algorithm that serves all."""
    return ""


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
    needs_rest: bool = False
    """Whether a stream of updates can keep it from showing any state, as it waits until no query is open."""
    live_refusal: Callable[[View], str] = nothing
    """Why it cannot maintain a view on live sources, although the simulator lets it; empty if it can."""
    live_level: Level | None = None
    """The level that it reaches for the views that it may maintain there, if it claims less for all."""
    keeps_control: bool = False
    """Whether it must know more than its positions to continue."""

    def continues(self, other: Algorithm) -> bool:
        """Whether it can continue where another one stopped."""
        is_plain = not self.keeps_control and not other.keeps_control
        return self == other or (is_plain and self.positions is other.positions)

    @property
    def level(self) -> Level:
        """The level that it reaches where messages come in the order of csn and no state inside a unit is
        shown.

        Then a unit of work is one transaction of one source to those that take messages raw.
        """
        if self.live_level is not None:
            return self.live_level
        return min(self.claims.values()) if self.sequenced else self.claims[Scenario.SINGLE_UPDATE]

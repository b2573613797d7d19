"""Which algorithms there are, what each guarantees, and which views it can serve."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rollview.algebra.dependencies import keeps_keys
from rollview.algebra.levels import Level, Scenario
from rollview.algebra.view import Block, View
from rollview.algorithms import conventional, sweep
from rollview.algorithms.effects import ForwardQuery, Process


@dataclass(frozen=True)
class Algorithm:
    """An algorithm as the drivers see it.

    `positions` names what has a position in the history, for algorithms that keep a view delta. `claims`
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


def _no_positions(_: View) -> Iterator[ForwardQuery]:
    return iter(())


def _serves_all(_: View) -> str:
    return ""


def _needs_keys(view: View) -> str:
    if not isinstance(view.root, Block):
        return "it maintains select-project-join views only"
    if not keeps_keys(view.root):
        return "the view does not keep the key of every relation"
    return ""


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            "sweep",
            sweep.processes,
            sweep.forward_queries,
            dict.fromkeys(Scenario, Level.COMPLETE),
            _serves_all,
            True,
        ),
        Algorithm(
            "conventional",
            conventional.processes,
            _no_positions,
            dict.fromkeys(Scenario, Level.NONE),
            _needs_keys,
            False,
        ),
    )
}

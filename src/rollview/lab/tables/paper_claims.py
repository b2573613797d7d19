"""The papers' counted claims, counted: how many queries and sub-queries they say, and how many there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import factorial

from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.examples.strobe import compensating_queries, in_turn
from rollview.lab.examples.version_numbers import join_graph_world
from rollview.lab.simulator.network import NETWORKS
from rollview.lab.simulator.schedule import Recorded, Schedule
from rollview.lab.simulator.simulation import simulate_run
from rollview.lab.simulator.warehouse import Costs
from rollview.lab.simulator.world import World
from rollview.lab.tables.measured_costs import measure_cost


@dataclass(frozen=True)
class PaperClaim:
    """A number in a paper, and the number measured."""

    source: str
    what: str
    says: str
    measured: str
    holds: bool


def paper_claims() -> list[PaperClaim]:
    """All of them."""
    return [*_expansions(), *_sub_queries(), *_compensating_queries()]


def _expansions() -> Iterator[PaperClaim]:
    for relations in range(2, 7):
        one = round(measure_cost("equation-1", relations, 0, worlds=1).queries)
        two = round(measure_cost("equation-2", relations, 0, worlds=1).queries)
        says = 2**relations - 1
        what = f"queries for a delta of {relations} relations"
        yield PaperClaim("salem2000 eq. 1", what, f"2ⁿ − 1 = {says}", str(one), one == says)
        yield PaperClaim("salem2000 eq. 2", what, f"n = {relations}", str(two), two == relations)


def _sub_queries() -> Iterator[PaperClaim]:
    shared = _costs("version-numbers", join_graph_world(), Recorded([])).questions
    scans = _costs("agrawal-sweep", join_graph_world(), Recorded([])).questions
    yield PaperClaim(
        "sze2000 Example 5",
        "sub-queries along the join graph, against left and right scans",
        "3 instead of 5",
        f"{shared} instead of {scans}",
        (shared, scans) == (3, 5),
    )


def _compensating_queries() -> Iterator[PaperClaim]:
    for relations in (2, 3, 4):
        most = compensating_queries(relations, in_turn, 3).outcome.costs.executions - 1
        bound = factorial(relations - 1)
        yield PaperClaim(
            "zhuge1996 §6",
            f"compensating queries of C-Strobe for {relations} relations, grouped",
            f"at most (n − 1)! = {bound}",
            str(most),
            most <= bound,
        )


def _costs(name: str, world: World, schedule: Schedule) -> Costs:
    return simulate_run(world, ALGORITHMS[name], NETWORKS["fifo"], schedule).costs

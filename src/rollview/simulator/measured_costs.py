"""What a transaction costs, measured: queries, sub-queries, round trips, rows shipped, rows corrected.

A burst of transactions is concurrent: all of them are committed and reported before the first question is
answered, which is the worst that can happen to a compensating algorithm. Worlds are chains of relations,
each at a source of its own (all at one source for algorithms that know only one).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rollview.algebra.levels import Scenario
from rollview.algebra.relation import Table
from rollview.algorithms.registry import ALGORITHMS
from rollview.planning import parse_view
from rollview.simulator.costs import Costs
from rollview.simulator.generate import Size, generate_over
from rollview.simulator.network import NETWORKS
from rollview.simulator.schedule import Action
from rollview.simulator.shape import Shape
from rollview.simulator.simulation import simulate_run

_ORDER = ("commit", "deliver", "propagate", "ask")


class Burst:
    """Everything is committed and reported before the first question is answered."""

    def __init__(self) -> None:
        self.choices: list[int] = []

    def choose(self, actions: Sequence[Action]) -> int:
        """The first action of the kind that comes first in a burst."""
        position = min(range(len(actions)), key=lambda index: _ORDER.index(actions[index][0]))
        self.choices.append(position)
        return position


@dataclass(frozen=True)
class MeasuredCost:
    """Averages per transaction."""

    algorithm: str
    relations: int
    concurrent: int
    queries: float
    questions: float
    rounds: float
    rows_shipped: float
    rows_compensated: float
    most_queries: int


def chain(relations: int, sources: int) -> Shape:
    """r1 ⋈ r2 ⋈ … along a.b, a view that keeps all keys."""
    names = ["x" if sources == 1 else "xyzuvw"[index] for index in range(relations)]
    tables = tuple(Table(name, f"t{i + 1}", ("k", "a", "b"), ("k",)) for i, name in enumerate(names))
    aliases = [f"r{i + 1}" for i in range(relations)]
    columns = ", ".join(f"{alias}.k AS k{i + 1}" for i, alias in enumerate(aliases))
    origin = ", ".join(f"{table.qualified} {alias}" for alias, table in zip(aliases, tables, strict=True))
    where = " AND ".join(f"{one}.b = {other}.a" for one, other in pairwise(aliases))
    sql = f"SELECT {columns} FROM {origin}" + (f" WHERE {where}" if where else "")
    return Shape(tables, (parse_view(sql, tables, "v"),))


def measure_cost(name: str, relations: int, concurrent: int, worlds: int = 20) -> MeasuredCost:
    """One update that meets `concurrent` others, averaged over worlds and over the updates."""
    algorithm = ALGORITHMS[name]
    shape = chain(relations, 1 if algorithm.single_source else 0)
    size = Size(relations, concurrent + 1, snapshots=False)
    costs = Costs()
    most = 0
    for seed in range(worlds):
        world = generate_over(shape, random.Random(seed), Scenario.SINGLE_UPDATE, size)
        found = simulate_run(world, algorithm, NETWORKS["fifo"], Burst()).costs
        most = max(most, found.executions)
        costs.add(found)
    count = worlds * (concurrent + 1)
    return MeasuredCost(
        name,
        relations,
        concurrent,
        costs.executions / count,
        costs.questions / count,
        costs.rounds / count,
        costs.rows_shipped / count,
        costs.rows_compensated / count,
        most,
    )


def measure_costs(
    algorithms: Iterable[str], relations: Iterable[int], concurrent: Iterable[int]
) -> list[MeasuredCost]:
    """Every combination."""
    return [
        measure_cost(name, number, others)
        for name in algorithms
        for number in relations
        for others in concurrent
    ]

"""What a transaction costs, measured: queries, sub-queries, round trips, rows shipped, rows corrected.

A burst of transactions is concurrent: all of them are committed and reported before the first question is
answered, which is the worst that can happen to a compensating algorithm. In a steady stream, transactions are
committed while questions are under way, and some relations change more often than others. Worlds are chains
of relations, each at a source of its own (all at one source for algorithms that know only one).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rollview.algebra.levels import Scenario
from rollview.algebra.relation import Table
from rollview.algorithms.registry import ALGORITHMS
from rollview.planning import parse_view
from rollview.simulator.costs import Costs
from rollview.simulator.generate import Size, generate_over
from rollview.simulator.network import NETWORKS
from rollview.simulator.schedule import Action, Schedule
from rollview.simulator.shape import Shape
from rollview.simulator.simulation import simulate_run

_ORDER = ("commit", "deliver", "propagate", "ask")

STREAM_RATES = (8, 4, 1)
STREAM_TRANSACTIONS = 24


class Burst:
    """Everything is committed and reported before the first question is answered."""

    def __init__(self) -> None:
        self.choices: list[int] = []

    def choose(self, actions: Sequence[Action]) -> int:
        """The first action of the kind that comes first in a burst."""
        position = min(range(len(actions)), key=lambda index: _ORDER.index(actions[index][0]))
        self.choices.append(position)
        return position


class Stream:
    """All kinds of actions take turns, so that transactions are committed while questions are under way."""

    def __init__(self) -> None:
        self.choices: list[int] = []
        self._last = 0

    def choose(self, actions: Sequence[Action]) -> int:
        """The first action of the kind whose turn it is, or else of the next one that is possible."""

        def turn(position: int) -> int:
            return (_ORDER.index(actions[position][0]) - self._last - 1) % len(_ORDER)

        position = min(range(len(actions)), key=turn)
        self._last = _ORDER.index(actions[position][0])
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
    return _measure(name, Size(relations, concurrent + 1, snapshots=False), Burst, worlds)


def measure_stream(name: str, worlds: int = 20) -> MeasuredCost:
    """Updates that go on while questions are under way, at unequal rates."""
    size = Size(len(STREAM_RATES), STREAM_TRANSACTIONS, snapshots=False, rates=STREAM_RATES)
    return _measure(name, size, Stream, worlds)


def _measure(name: str, size: Size, schedule: Callable[[], Schedule], worlds: int) -> MeasuredCost:
    algorithm = ALGORITHMS[name]
    shape = chain(size.relations, 1 if algorithm.single_source else 0)
    costs = Costs()
    most = 0
    for seed in range(worlds):
        world = generate_over(shape, random.Random(seed), Scenario.SINGLE_UPDATE, size)
        found = simulate_run(world, algorithm, NETWORKS["fifo"], schedule()).costs
        most = max(most, found.executions)
        costs.add(found)
    count = worlds * size.transactions
    return MeasuredCost(
        name,
        size.relations,
        size.transactions - 1,
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

"""The measured costs of a transaction: queries, sub-queries, round trips, rows shipped, rows corrected.

A burst of transactions is concurrent: all of them are committed and reported before the first question is
answered, which is the worst that can happen to a compensating algorithm. In a steady stream, transactions are
committed while questions are under way, and some relations change more often than others. Worlds are chains
of relations, each at a source of its own (all at one source for algorithms that know only one).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rollview.algebra.history import Transaction
from rollview.algebra.relation import Table
from rollview.algorithms.algorithm import Level, Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.simulator.generate import Shape, Size, generate_over
from rollview.lab.simulator.keyed_worlds import draw_keyed_world
from rollview.lab.simulator.network import NETWORKS
from rollview.lab.simulator.schedule import Action, Schedule
from rollview.lab.simulator.simulation import simulate_run
from rollview.lab.simulator.warehouse import Costs
from rollview.planning import parse_view

_ORDER = ("commit", "deliver", "propagate", "ask")

STREAM_RATES = (8, 4, 1)
STREAM_TRANSACTIONS = 24
KEYED_TRANSACTIONS = 12
KEYED_WORLDS = 60

_ROUND = ("commit", "ask", "deliver")

REST_RATES = (0.25, 0.5, 1.0, 2.0, 4.0)
REST_RELATIONS, REST_TRANSACTIONS, REST_WORLDS = 3, 60, 5


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


class Batches(Stream):
    """The same, but an interval does not begin before it has so many transactions, if others can happen."""

    def __init__(self, least: int) -> None:
        super().__init__()
        self._least = least

    def choose(self, actions: Sequence[Action]) -> int:
        """As in a stream, without the intervals that are too short."""
        chosen = [place for place, action in enumerate(actions) if not self._is_short(action, actions)]
        places = chosen or range(len(actions))
        found = places[super().choose([actions[place] for place in places])]
        self.choices[-1] = found
        return found

    def _is_short(self, action: Action, actions: Sequence[Action]) -> bool:
        # Whoever could begin an interval offers all that is new, and the next transaction alone.
        offered = [upto for kind, name, upto in actions if (kind, name) == ("propagate", action[1])]
        return action[0] == "propagate" and max(offered) - min(offered) + 1 < self._least


class Steady:
    """So many transactions are committed and reported in every round of look-ups, which see them."""

    def __init__(self, per_round: float) -> None:
        self.choices: list[int] = []
        self._per_round = self._due = per_round
        self._phase = 0
        self._commits = 0

    def choose(self, actions: Sequence[Action]) -> int:
        """A commit that is due, then all answers at the sources, then all messages at the warehouse."""
        while not (possible := self._possible(actions)):
            self._phase = (self._phase + 1) % len(_ROUND)
            self._due += self._per_round if self._phase == 0 else 0.0
        if self._phase == 0:
            self._due -= 1.0
            self._commits += 1
        # Sources take turns.
        position = possible[self._commits % len(possible)] if self._phase == 0 else possible[0]
        self.choices.append(position)
        return position

    def _possible(self, actions: Sequence[Action]) -> list[int]:
        if self._phase == 0 and self._due < 1.0:
            return []
        return [place for place, action in enumerate(actions) if action[0] == _ROUND[self._phase]]


@dataclass(frozen=True)
class MeasuredRest:
    """How a view moves while transactions keep coming: shares of their number, averaged over worlds."""

    algorithm: str
    per_round: float
    shown: float
    longest_wait: float


@dataclass(frozen=True)
class MeasuredCost:
    """Averages per transaction of its world."""

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
    """Updates while questions are under way, at unequal rates."""
    size = Size(len(STREAM_RATES), STREAM_TRANSACTIONS, snapshots=False, rates=STREAM_RATES)
    return _measure(name, size, Stream, worlds)


def measure_batches(name: str, least: int, worlds: int = 20) -> MeasuredCost:
    """A stream that is propagated in intervals of so many transactions at least."""
    size = Size(len(STREAM_RATES), STREAM_TRANSACTIONS, snapshots=False, rates=STREAM_RATES)
    return _measure(name, size, lambda: Batches(least), worlds)


def measure_keyed(
    name: str, scenario: Scenario, worlds: int = KEYED_WORLDS, schedule: Callable[[], Schedule] = Stream
) -> MeasuredCost | None:
    """Updates of tables with keys and foreign keys while questions are under way; None if it is refused."""
    algorithm = ALGORITHMS[name]
    costs, count, most = Costs(), 0, 0
    if algorithm.single_source:
        return None
    for seed in range(worlds):
        world = draw_keyed_world(random.Random(seed), scenario, KEYED_TRANSACTIONS)
        if any(algorithm.refusal(view) for view in world.views):
            return None
        outcome = simulate_run(world, algorithm, NETWORKS["fifo"], schedule())
        most, count = max(most, outcome.costs.executions), count + len(outcome.commits)
        costs.add(outcome.costs)
    return _averages(name, 0, 0, costs, count, most)


def measure_rests() -> list[MeasuredRest]:
    """All algorithms that show states as messages come, at all rates."""
    raw = [name for name, each in ALGORITHMS.items() if not each.sequenced and each.level > Level.CONVERGENCE]
    return [measure_rest(name, per_round) for name in raw for per_round in REST_RATES]


def measure_rest(name: str, per_round: float, worlds: int = REST_WORLDS) -> MeasuredRest:
    """How often a view is shown while so many transactions come per round of look-ups."""
    algorithm = ALGORITHMS[name]
    size = Size(REST_RELATIONS, REST_TRANSACTIONS, snapshots=False)
    shape = chain(size.relations, 1 if algorithm.single_source else 0)
    shown = longest = 0
    for seed in range(worlds):
        world = generate_over(shape, random.Random(seed), Scenario.SINGLE_UPDATE, size)
        run = simulate_run(world, algorithm, NETWORKS["fifo"], Steady(per_round))
        committed, waits = 0, [0]
        for event in run.timeline:
            if isinstance(event, Transaction):
                committed += 1
                waits[-1] += 1
            elif committed < size.transactions:
                waits.append(0)
        shown += len(waits) - 1
        longest += max(waits)
    count = worlds * size.transactions
    return MeasuredRest(name, per_round, shown / count, longest / count)


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
    return _averages(name, size.relations, size.transactions - 1, costs, count, most)


def _averages(
    name: str, relations: int, concurrent: int, costs: Costs, count: int, most: int
) -> MeasuredCost:
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


@dataclass(frozen=True)
class CostTables:
    """Costs in bursts, while others commit, in worlds of keys without those that are refused there, and in
    intervals of different lengths, of the algorithms that `auto` chooses from.
    """

    bursts: Sequence[MeasuredCost]
    streams: Sequence[MeasuredCost]
    keyed: Mapping[Scenario, Sequence[MeasuredCost]]
    batches: Mapping[int, Sequence[MeasuredCost]]
    rests: Sequence[MeasuredRest] = ()


RELATIONS = (2, 3, 4, 5, 6)
CONCURRENT = (0, 1, 3, 10)
BATCHES = (1, 4, 8, 12, 24)
BY_LEVEL = ("sweep", "net-effect", "conventional")
"""What `complete` and lower levels use, and what corrects nothing, whatever becomes of the view."""


def measure_tables(algorithms: Sequence[str]) -> CostTables:
    """All tables of costs."""
    keyed = {
        scenario: [cost for name in algorithms if (cost := measure_keyed(name, scenario)) is not None]
        for scenario in (Scenario.SINGLE_UPDATE, Scenario.SOURCE_LOCAL)
    }
    bursts = measure_costs(algorithms, RELATIONS, CONCURRENT)
    batches = {least: [measure_batches(name, least) for name in BY_LEVEL] for least in BATCHES}
    streams = [measure_stream(name) for name in algorithms]
    return CostTables(bursts, streams, keyed, batches, measure_rests())


def are_least(costs: Sequence[MeasuredCost], measure: str) -> frozenset[str]:
    """Which algorithms have the least of a measure among those that show every state, to what is printed."""
    shown = {
        cost.algorithm: round(getattr(cost, measure), 2)
        for cost in costs
        if shows_every_state(cost.algorithm)
    }
    return frozenset(name for name, value in shown.items() if value == min(shown.values()))


def shows_every_state(name: str) -> bool:
    """Whether an algorithm claims to be complete for updates of single rows, by asking sources.

    The price of `ipda` is paid by the writers of the sources, and is not counted here.
    """
    return name != "ipda" and ALGORITHMS[name].claims[Scenario.SINGLE_UPDATE] is Level.COMPLETE

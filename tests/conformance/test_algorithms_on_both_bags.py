"""The sweep, which may ask a view, and ComputeDelta give the same timed deltas on Spark as in memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rollview.algebra.history import UnitOfWork
from rollview.algebra.relation import Table
from rollview.algorithms.algorithm import Scenario
from rollview.algorithms.effects import (
    Answer,
    Answerable,
    Ask,
    Await,
    Changes,
    Compensated,
    Effect,
    Execute,
    ForwardQuery,
    HighWater,
    Interval,
    Netted,
    Publish,
    Question,
    RowsOf,
    Spared,
    StateAt,
    StateWith,
)
from rollview.algorithms.interpreter import known_state
from rollview.algorithms.kept_keys import Forward
from rollview.algorithms.recomputing import empty
from rollview.algorithms.salem2000.compute_delta import view_delta
from rollview.algorithms.sweep import evaluate_forward, evaluate_step
from rollview.bags import PlacedBag
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.memory.evaluate import evaluate_blocks
from rollview.lab.memory.history import History
from rollview.lab.simulator.generate import Size, generate
from rollview.lab.simulator.source import SimulatedSource
from rollview.lab.simulator.world import World
from rollview.planning import parse_view

pytestmark = pytest.mark.slow


class _Server:
    """Serves effects from a finished history; sources answer at a state somewhere in the middle of it."""

    def __init__(self, world: World, seed: int, to_bag: Callable[[MemoryBag], Any]) -> None:
        generator = random.Random(seed)
        self._to_bag = to_bag
        self.history = History({table.qualified: table.columns for table in world.tables}, world.sources)
        scripts = {source: list(script) for source, script in world.scripts.items()}
        while any(scripts.values()):
            source = generator.choice([name for name, script in scripts.items() if script])
            csn = self.history.last_csn + 1
            self.history.append(UnitOfWork(csn, float(csn), (scripts[source].pop(0),)))
        initial = {name: dict.fromkeys(rows, 1) for name, rows in world.initial.items()}
        root = world.views[0].root
        self._state = root.state_of(evaluate_blocks(root, initial))
        self.spared = 0
        self._sources = {}
        for name in world.sources:
            tables = [table for table in world.tables if table.source == name]
            rows = {table.qualified: dict.fromkeys(world.initial[table.qualified], 1) for table in tables}
            source_ = SimulatedSource(name, tables, rows, world.scripts[name], snapshots=False)
            for _ in range(generator.randint(0, len(world.scripts[name]))):
                source_.commit(0.0)
            self._sources[name] = source_

    def run(self, steps: Generator[Effect, Any, Any]) -> Any:
        value = None
        while True:
            try:
                value = self._serve(steps.send(value))
            except StopIteration as end:
                return end.value

    def _serve(self, effect: Effect) -> Any:
        match effect:
            case Execute(at=at):
                return self.history.last_csn if at is None else at
            case Changes(table=table, after=after, upto=upto):
                return self._to_bag(self.history.changes(table, after, upto))
            case Ask(questions=questions):
                return tuple(self._answer(question) for question in questions)
            case Await(answers=answers):
                return tuple(self.history.in_csn(answer.source, answer.saw) for answer in answers)
            case RowsOf(columns=columns, rows=rows):
                return self._to_bag(MemoryBag.of_pairs(columns, rows))
            case Compensated() | Netted():
                return None
            case HighWater():
                return 0
            case Answerable():
                return known_state(effect, 0, self.history.touched)
            case StateWith(keys=keys):
                state = self._to_bag(self._state)
                return state if keys is None else state.sharing(keys, keys.columns)
            case Spared(rows=rows):
                self.spared += sum(_in_memory(rows).counts.values()) ** 2 + 1
                return None
        raise AssertionError(effect)

    def _answer(self, question: Question[Any]) -> Answer[Any]:
        keys = tuple(None if bag is None else _in_memory(bag) for bag in question.keys)
        source = self._sources[question.sub_query.source]
        answer = source.answer(Question(question.block, question.sub_query, keys))
        return Answer(answer.source, tuple(self._to_bag(bag) for bag in answer.rows), answer.saw)


def _in_memory(bag: Any) -> MemoryBag:
    return MemoryBag(bag.columns, bag.collect()) if isinstance(bag, PlacedBag) else bag


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(2, 6))]
)
def test_differential_the_sweep(seed: int, spark: SparkSession) -> None:
    world = generate(random.Random(seed), Scenario.SOURCE_LOCAL, Size(relations=3, transactions=6))

    def to_spark(bag: MemoryBag) -> PlacedBag:
        return PlacedBag.of(spark, dict.fromkeys(bag.columns, "bigint"), bag.counts)

    here, there = _Server(world, seed, lambda bag: bag), _Server(world, seed, to_spark)
    whole = Interval(0, here.history.last_csn)
    for block in world.views[0].blocks:
        for start in range(len(block.relations)):
            query = Forward(block, start, whole)
            expected = here.run(evaluate_forward(query))
            assert _in_memory(there.run(evaluate_forward(query))) == expected


def test_differential_compute_delta(spark: SparkSession) -> None:
    world = generate(random.Random(3), Scenario.SOURCE_LOCAL, Size(relations=2, transactions=5))

    def to_spark(bag: MemoryBag) -> PlacedBag:
        return PlacedBag.of(spark, dict.fromkeys(bag.columns, "bigint"), bag.counts)

    here, there = _Server(world, 3, lambda bag: bag), _Server(world, 3, to_spark)
    block, interval = world.views[0].blocks[0], Interval(0, here.history.last_csn)
    assert _in_memory(there.run(view_delta(block, interval))) == here.run(view_delta(block, interval))


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(3, 9))]
)
def test_differential_a_step_that_asks_the_view(seed: int, spark: SparkSession) -> None:
    """Relations of which the view keeps the keys; each goes through an interval of its own."""
    generator = random.Random(seed)
    world = generate(generator, Scenario.SOURCE_LOCAL, Size(relations=3, transactions=9, keyed=True))

    def to_spark(bag: MemoryBag) -> PlacedBag:
        found = PlacedBag.of(spark, dict.fromkeys(bag.columns, "bigint"), bag.counts)
        # As in a step of a project: what has few rows is at the driver.
        found.collect_if_small()
        return found

    here, there = _Server(world, seed, lambda bag: bag), _Server(world, seed, to_spark)
    (block,) = world.views[0].blocks
    last = here.history.last_csn
    for ends in ([last] * 3, [generator.randint(0, last) for _ in range(3)], [last, 0, last]):
        for as_one in (False, True)[: 1 + (len(set(ends)) == 1)]:
            intervals = [Interval(0, end) for end in ends]
            expected = here.run(evaluate_step(block, intervals, "v", as_one))
            assert _in_memory(there.run(evaluate_step(block, intervals, "v", as_one))) == expected
    assert here.spared and here.spared == there.spared


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a, b FROM s.r",
        "SELECT a, count(*) AS n, sum(b) AS total FROM s.r GROUP BY a",
        "SELECT count(*) AS n, sum(b) AS total FROM s.r",
    ],
)
def test_differential_emptying(sql: str, spark: SparkSession) -> None:
    """What a view loses at a TRUNCATE leaves the state of no rows at all, on both."""
    view = parse_view(sql, [Table("s", "r", ("a", "b"))], "v")
    rows = {(1, 2): 2, (1, None): 1, (None, 3): 1}
    state, nothing = (view.root.state_of(evaluate_blocks(view.root, {"s.r": each})) for each in (rows, {}))
    there = PlacedBag.of(spark, dict.fromkeys(state.columns, "bigint"), state.counts)
    for before in (state, there):
        process = empty(view, [ForwardQuery("v", 0, 0)], 7)
        assert next(process) == StateAt("v", 6)
        published = process.send(before)
        assert isinstance(published, Publish) and published.moves == ((ForwardQuery("v", 0, 0), 7),)
        assert _in_memory(published.delta) == view.root.emptying(state, 7)
        assert _in_memory(view.root.roll(before, published.delta)) == nothing

"""The sweep and ComputeDelta run unchanged on Spark and give the same timed deltas as in memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rollview.algebra.bag import MemoryBag
from rollview.algebra.evaluate import evaluate_blocks
from rollview.algebra.history import History, UnitOfWork
from rollview.algebra.levels import Scenario
from rollview.algebra.relation import Table
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
    Interval,
    Publish,
    Question,
    RowsOf,
    StateAt,
    StateWith,
)
from rollview.algorithms.emptying import empty
from rollview.algorithms.forward import Forward
from rollview.algorithms.kept_keys import answered_by_view
from rollview.algorithms.salem2000.compute_delta import view_delta
from rollview.algorithms.sweep import evaluate_forward
from rollview.planning import parse_view
from rollview.simulator.generate import Size, generate
from rollview.simulator.source import SimulatedSource
from rollview.simulator.world import World
from rollview.spark import SparkBag

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
            case Compensated():
                return None
        raise AssertionError(effect)

    def _answer(self, question: Question[Any]) -> Answer[Any]:
        keys = tuple(None if bag is None else _in_memory(bag) for bag in question.keys)
        source = self._sources[question.sub_query.source]
        answer = source.answer(Question(question.block, question.sub_query, keys))
        return Answer(answer.source, tuple(self._to_bag(bag) for bag in answer.rows), answer.saw)


def _in_memory(bag: Any) -> MemoryBag:
    return MemoryBag(bag.columns, bag.collect()) if isinstance(bag, SparkBag) else bag


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(2, 6))]
)
def test_differential_the_sweep(seed: int, spark: SparkSession) -> None:
    world = generate(random.Random(seed), Scenario.SOURCE_LOCAL, Size(relations=3, transactions=6))

    def to_spark(bag: MemoryBag) -> SparkBag:
        return SparkBag.of(spark, dict.fromkeys(bag.columns, "bigint"), bag.counts)

    here, there = _Server(world, seed, lambda bag: bag), _Server(world, seed, to_spark)
    whole = Interval(0, here.history.last_csn)
    for block in world.views[0].blocks:
        for start in range(len(block.relations)):
            query = Forward(block, start, whole)
            expected = here.run(evaluate_forward(query))
            assert _in_memory(there.run(evaluate_forward(query))) == expected


def test_differential_compute_delta(spark: SparkSession) -> None:
    world = generate(random.Random(3), Scenario.SOURCE_LOCAL, Size(relations=2, transactions=5))

    def to_spark(bag: MemoryBag) -> SparkBag:
        return SparkBag.of(spark, dict.fromkeys(bag.columns, "bigint"), bag.counts)

    here, there = _Server(world, 3, lambda bag: bag), _Server(world, 3, to_spark)
    block, interval = world.views[0].blocks[0], Interval(0, here.history.last_csn)
    assert _in_memory(there.run(view_delta(block, interval))) == here.run(view_delta(block, interval))


def test_differential_kept_keys(spark: SparkSession) -> None:
    """A row goes, one changes, one goes and comes back; then one that was not there: sources are asked."""
    tables = [Table("s", "r", ("k", "a", "x"), ("k",)), Table("s", "t", ("k", "y"), ("k",))]
    sql = "SELECT r.k AS id, r.x + 1 AS more, r.a, t.y FROM s.r r JOIN s.t t ON r.a = t.k"
    block = parse_view(sql, tables, "v").blocks[0]
    state = {(1, 11, 5, 50): 1, (2, 21, 5, 50): 1, (3, 31, 6, 60): 1, (4, 41, 6, 60): 1}
    changes = {
        (1, 5, 10, 1): -1,
        (2, 5, 20, 1): -1,
        (2, 5, 22, 1): 1,
        (2, 5, 22, 3): -1,
        (2, 5, 23, 3): 1,
        (3, 6, 30, 2): -1,
        (3, 6, 33, 4): 1,
    }
    expected = {
        (1, 11, 5, 50, 1): -1,
        (2, 21, 5, 50, 1): -1,
        (2, 23, 5, 50, 1): 1,
        (2, 23, 5, 50, 3): -1,
        (2, 24, 5, 50, 3): 1,
        (3, 31, 6, 60, 2): -1,
        (3, 34, 6, 60, 4): 1,
    }

    def answered(to_bag: Callable[[MemoryBag], Any], rows: dict[Any, int]) -> Any:
        own = MemoryBag(("r.k", "r.a", "r.x", "_csn"), rows)
        steps = answered_by_view(Forward(block, 0, Interval(0, 9), view="v"), to_bag(own))
        value: Any = None
        while True:
            try:
                match steps.send(value):
                    case Answerable():
                        value = 0
                    case StateWith(keys=keys):
                        value = to_bag(MemoryBag(("id", "more", "a", "y"), state)).sharing(keys, keys.columns)
                    case _:
                        value = None
            except StopIteration as end:
                return end.value

    def to_spark(bag: MemoryBag) -> SparkBag:
        return SparkBag.of(spark, dict.fromkeys(bag.columns, "bigint"), bag.counts)

    for to_bag in (lambda bag: bag, to_spark):
        assert _in_memory(answered(to_bag, changes)).counts == expected
        assert answered(to_bag, changes | {(9, 5, 90, 2): 1, (9, 5, 90, 3): -1}) is None
        assert answered(to_bag, changes | {(4, 6, 40, 2): -1, (4, 5, 40, 2): 1}) is None


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
    there = SparkBag.of(spark, dict.fromkeys(state.columns, "bigint"), state.counts)
    for before in (state, there):
        process = empty(view, [ForwardQuery("v", 0, 0)], 7)
        assert next(process) == StateAt("v", 6)
        published = process.send(before)
        assert isinstance(published, Publish) and published.moves == ((ForwardQuery("v", 0, 0), 7),)
        assert _in_memory(published.delta) == view.root.emptying(state, 7)
        assert _in_memory(view.root.roll(before, published.delta)) == nothing

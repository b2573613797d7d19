"""Both bags agree: random programs of bag operations give the same net effect in memory and on Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from rollview.algebra.bag import before_it
from rollview.algebra.expression import Column, Literal, call
from rollview.bags import PlacedBag
from rollview.lab.memory.bag import MemoryBag

pytestmark = pytest.mark.slow

A, B = Column("r.a"), Column("r.b")
values = st.sampled_from([None, 0, 1, 2])
pairs = st.dictionaries(st.tuples(values, values), st.sampled_from([-2, -1, 1, 2]), max_size=6)

Step = Callable[[Any, Any, Any], Any]
"""A step of a program: from the rows so far, a second bag with the same columns, and one with others."""

STEPS: dict[str, Step] = {
    "plus": lambda r, s, t: r.plus(s),
    "negate": lambda r, s, t: r.negate(),
    "net effect": lambda r, s, t: r.net_effect(),
    "select": lambda r, s, t: r.select(call("OR", call("<", A, B), call("IS NULL", A))),
    "select in": lambda r, s, t: r.select(call("NOT", call("IN", A, Literal(1), Literal(None)))),
    "project": lambda r, s, t: r.project(
        [("r.a", call("COALESCE", call("+", A, B), Literal(7))), ("r.b", call("IF", call("=", A, B), A, B))]
    ),
    "remainder": lambda r, s, t: r.project([("r.a", call("%", call("NEGATIVE", A), Literal(2))), ("r.b", B)]),
    "join": lambda r, s, t: r.join(t, [("r.b", "t.c")], call("<=", A, Column("t.d"))).project(
        [("r.a", A), ("r.b", Column("t.d"))]
    ),
    "join on both": lambda r, s, t: r.join(t, [("r.a", "t.c"), ("r.b", "t.d")]).project(
        [("r.a", A), ("r.b", Literal(1))]
    ),
    "settled": lambda r, s, t: r.materialized(),
    "product": lambda r, s, t: r.join(t, []).project([("r.a", Column("t.c")), ("r.b", B)]),
    "distinct": lambda r, s, t: r.net_effect().distinct(["r.a", "r.b"]),
    "summarize": lambda r, s, t: r.net_effect().summarize(["r.a"], [("r.b", B)]),
    "running": lambda r, s, t: (
        r.net_effect()
        .project([("r.a", A), ("r.o", call("COALESCE", B, Literal(0))), ("r.n", Literal(1)), ("r.b", B)])
        .running(["r.a"], "r.o", ["r.n", "r.b"])
        .project([("r.a", Column("r.n")), ("r.b", Column(before_it("r.b")))])
    ),
    "least": lambda r, s, t: r.project([("r.a", call("LEAST", A, B)), ("r.b", call("<=>", A, B))]).project(
        [("r.a", A), ("r.b", call("IF", B, Literal(1), Literal(0)))]
    ),
}


# Shrinking takes minutes of small jobs; the programs are short enough to be read as they are found.
@settings(
    max_examples=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example({(None, None): -2}, {}, {(None, None): -2, (None, 0): 2}, ["product", "summarize"], False)
@given(pairs, pairs, pairs, st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5), st.booleans())
def test_differential_programs(
    spark: SparkSession,
    r: dict[Any, int],
    s: dict[Any, int],
    t: dict[Any, int],
    program: list[str],
    at_driver: bool,
) -> None:
    left, right = ("r.a", "r.b"), ("t.c", "t.d")
    memory = [MemoryBag(left, dict(r)), MemoryBag(left, dict(s)), MemoryBag(right, dict(t))]
    on_spark = [PlacedBag.of(spark, dict.fromkeys(bag.columns, "bigint"), bag.counts) for bag in memory]
    if at_driver:
        on_spark = [bag.materialized() for bag in on_spark]
    here, there = memory[0], on_spark[0]
    for name in program:
        here = STEPS[name](here, *memory[1:])
        there = STEPS[name](there, *on_spark[1:])
    assert there.columns == here.columns
    assert there.collect() == here.counts
    assert there.is_empty() == here.is_empty()


@pytest.mark.parametrize("keys", [[], ["r.a"]])
def test_differential_summaries_of_nothing(spark: SparkSession, keys: list[str]) -> None:
    measures = [("n", Literal(1)), ("total", B)]
    here = MemoryBag(("r.a", "r.b"), {}).summarize(keys, measures)
    there = PlacedBag.of(spark, {"r.a": "bigint", "r.b": "bigint"}, {}).summarize(keys, measures)
    assert there.collect() == here.counts


def test_a_group_of_cancelled_rows_adds_nothing(spark: SparkSession) -> None:
    """A bag that is not net may have such groups; rolled into a summary they are not there."""
    schema = {"r.a": "bigint", "r.b": "bigint"}
    rows = PlacedBag.of(spark, schema, {(1, 2): 1})
    delta = rows.plus(rows.negate()).summarize(["r.a"], [("n", Literal(1)), ("total", B)])
    assert delta.collect() == {(1, 0, 0): 1}
    sums = [("n", Column("n")), ("total", Column("total"))]
    state = rows.summarize(["r.a"], [("n", Literal(1)), ("total", B)])
    assert state.plus(delta).summarize(["r.a"], sums).collect() == state.collect()

"""The same rows give the same values, bit by bit, in whatever order and in how many parts Spark has them.

So the row that a delta takes away is the very row that is stored: along a history, with terms that cancel
each other, the state at every csn is the first one plus all deltas, for every aggregate function and type.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from telescope import Rows, states_by_deltas

from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.bags import placed_bag
from rollview.planning import parse_view
from rollview.runtime.session import Session
from rollview.views.define import SparkTypes
from servers.spark import shared_session

pytestmark = pytest.mark.slow

DOUBLES = (1e16, -1e16, 0.3, 0.1, 0.7, 7.1, 1e10, 3.3e-5, 5e-324, -0.0, 0.0, None)
STRANGE = (*DOUBLES, float("nan"), float("inf"), float("-inf"), 1e300, -1e300)
COLUMNS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "d": ("double", DOUBLES),
    "b": ("bigint", (1, 5, 2**53 + 1, -(2**53) - 1, 2**56, 12345678901, None)),
    "s": ("decimal(5,2)", (*map(Decimal, ("1.01", "333.33", "-999.99", "0.07")), None)),
    "f": ("float", (0.1, 0.3, 1e8, -1e8, 1e-40, None)),
    "i": ("int", (1, 3, 7, 10**9, -5, None)),
    "w": ("decimal(38,10)", (*map(Decimal, ("1.0000000001", "3333333333333333333.3333333333")), None)),
    "m": ("decimal(11,3)", (*map(Decimal, ("1.001", "33333333.333", "-99999999.999")), None)),
    "l": ("decimal(20,5)", (*map(Decimal, ("1.00001", "333333333333333.33333", "-0.70000")), None)),
}
SCHEMA = {"id": "bigint", "k": "string", **{name: kind for name, (kind, _) in COLUMNS.items()}}
TABLE = Table("s", "t", tuple(SCHEMA), types=tuple(SCHEMA.values()))
FUNCTIONS = (
    *("sum({})", "avg({})", "stddev({})", "stddev_pop({})", "variance({})", "var_pop({})", "skewness({})"),
    *("kurtosis({})", "covar_pop({}, i)", "covar_samp(d, {})", "regr_avgx({}, i)", "regr_avgy({}, i)"),
    *(
        "regr_sxx({}, d)",
        "regr_sxy({}, i)",
        "regr_syy({}, d)",
        "try_sum({})",
        "try_avg({})",
        "min({})",
        "max({})",
    ),
    *("median({})", "percentile({}, 0.3)", "percentile_approx({}, 0.4)", "histogram_numeric({}, 3)"),
    *("percentile_cont(0.4) WITHIN GROUP (ORDER BY {})", "sort_array(collect_list({}))", "mode({}, true)"),
    *("max_by(id, {})", "sum({}) FILTER (WHERE i > 1)", "avg({}) FILTER (WHERE b > 1)"),
)
OF_VALUES = (
    *("sum(DISTINCT {})", "avg(DISTINCT {})", "stddev(DISTINCT {})", "avg(DISTINCT {}) FILTER (WHERE i > 1)"),
    *("count(DISTINCT {})", "sum({})", "avg({})", "skewness({})", "percentile({}, 0.5)"),
)
FRAMES = ("", "ORDER BY i", "ORDER BY i ROWS BETWEEN 2 PRECEDING AND CURRENT ROW")
OVER_ROWS = ("sum({})", "avg({})", "stddev({})", "kurtosis({})", "try_avg({})", "max({})")


def _each(functions: tuple[str, ...], seed: int, each: int = 1) -> str:
    """Every function of some columns; with another seed, of other ones."""
    names = list(COLUMNS)
    chosen = [
        function.format(names[(seed * each + place + number) % len(names)])
        for number, function in enumerate(functions)
        for place in range(each)
    ]
    return ", ".join(f"{sql} AS c{number}" for number, sql in enumerate(dict.fromkeys(chosen)))


def _windows(seed: int) -> str:
    made = [_each(OVER_ROWS, seed + number).split(", ") for number in range(len(FRAMES))]
    return ", ".join(
        each.replace(" AS c", f" OVER (PARTITION BY k {frame}) AS w{number}_")
        for number, frame in enumerate(FRAMES)
        for each in made[number]
    )


SHAPES = {
    "groups": lambda seed: f"SELECT k, {_each(FUNCTIONS, seed)} FROM s.t GROUP BY k",
    "one group": lambda seed: f"SELECT {_each(FUNCTIONS[::2], seed + 1)} FROM s.t",
    "repetitions": lambda seed: f"SELECT k, {_each(OF_VALUES, seed, 2)} FROM s.t GROUP BY k",
    "query": lambda _: (
        """WITH RECURSIVE r AS (
        SELECT k, sum(d) AS a, stddev(b) AS c, avg(DISTINCT f) AS e, 0 AS n FROM s.t GROUP BY k
        UNION ALL SELECT k, a, c, e, n + 1 FROM r WHERE n < 1) SELECT k, a, c, e, n FROM r"""
    ),
    "windows": lambda seed: f"SELECT id, k, {_windows(seed)} FROM s.t",
}
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 8)))


@pytest.fixture(scope="module")
def spread() -> SparkSession:
    """As the product has it: rows in several partitions, plans that are changed while they run."""
    return shared_session({"spark.sql.shuffle.partitions": "3"})


def _row(number: int, random: Random, doubles: tuple[float | None, ...]) -> tuple[Any, ...]:
    values = {name: random.choice(values) for name, (_, values) in COLUMNS.items()}
    return (number, random.choice(("x", "y", None)), *(values | {"d": random.choice(doubles)}).values())


def _history(random: Random, doubles: tuple[float | None, ...]) -> list[Rows]:
    states = [Counter(_row(number, random, doubles) for number in range(30))]
    for csn in range(1, 4):
        after = Counter(states[-1])
        for gone in random.sample(sorted(after, key=repr), 4):
            del after[gone]
        for number in range(4):
            after[_row(100 * csn + number, random, doubles)] = random.choice((1, 2))
        states.append(after)
    return states


def _view(spark: SparkSession, sql: str) -> View:
    return parse_view(sql, (TABLE,), "v", SparkTypes(cast(Session, SimpleNamespace(spark=spark))))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_deltas_add_up_to_every_state(spread: SparkSession, shape: str, seed: int) -> None:
    doubles = DOUBLES if seed % 2 == 0 else STRANGE
    view = _view(spread, SHAPES[shape](seed))
    assert len(list(states_by_deltas(spread, SCHEMA, view, _history(Random(seed), doubles)))) == 4


@pytest.mark.parametrize("shape", ["groups", "windows"])
def test_rows_as_they_come_are_caught(
    spread: SparkSession, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mistake that this is about: sums in the order in which Spark happens to have the rows."""
    monkeypatch.setattr(placed_bag, "aggregated_in_order", lambda frame, _, outputs: (frame, outputs))
    monkeypatch.setattr(placed_bag, "sorted_rows", lambda frame, _: frame)
    view = _view(spread, SHAPES[shape](0))
    with pytest.raises(AssertionError):
        for seed in range(5):
            list(states_by_deltas(spread, SCHEMA, view, _history(Random(seed), DOUBLES)))

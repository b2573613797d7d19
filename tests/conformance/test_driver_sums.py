"""Sums at the driver against those of Spark: the same values of the same types, or left to it."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rollview.algebra.bag import COUNT, keep
from rollview.algebra.expression import Column, Literal, call
from rollview.bags import PlacedBag, arrow_ops

pytestmark = pytest.mark.slow

TYPES = {
    "k": pa.int64(),
    "word": pa.string(),
    "_csn": pa.int64(),
    "n": pa.int64(),
    "price": pa.decimal128(12, 2),
    "wide": pa.decimal128(38, 4),
}
SUMS = ("n", "price", "wide")


def _table(random: Random, rows: int) -> pa.Table:
    def row() -> tuple[Any, ...]:
        return (
            random.choice([1, 2, None]),
            random.choice(["a", "b", None]),
            random.randint(1, 4),
            random.choice([None, random.randint(-9, 9)]),
            random.choice([None, Decimal(random.randint(-999, 999)).scaleb(-2)]),
            Decimal(random.randint(-(10**30), 10**30)).scaleb(-4),
            random.choice([1, 1, -1, 2]),
        )

    columns = list(zip(*(row() for _ in range(rows)), strict=True))
    kinds = [*TYPES.values(), pa.int64()]
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], [*TYPES, COUNT]
    )


def _both(spark: SparkSession, table: pa.Table) -> tuple[PlacedBag, PlacedBag]:
    """The rows at the driver, and as a frame."""
    here = PlacedBag.of_rows(spark, table)
    assert here.place == "driver"
    there = PlacedBag(here.frame)
    assert there.place != "driver"
    return here, there


@pytest.mark.parametrize("keys", [("k",), ("k", "word"), ()])
def test_differential_with_spark(spark: SparkSession, keys: tuple[str, ...]) -> None:
    here, there = _both(spark, _table(Random(len(keys)), 60))
    is_there = call("IF", call("IS NULL", Column("word")), Literal(0), Literal(1))
    measures = (*keep(SUMS), ("rows", Literal(1)), ("words", is_there))
    results = [
        (each.running(keys, "_csn", SUMS), each.added_up(keys, SUMS), each.summarize(keys, measures))
        for each in (here, there)
    ]
    assert results[0][2].place == "driver"
    for mine, theirs in zip(*results, strict=True):
        assert mine.place == "driver" or not keys
        assert mine.collect() == theirs.collect()
        assert mine.frame.dtypes == theirs.frame.dtypes


@pytest.mark.parametrize("keys", [("k",), ()])
def test_sums_of_nothing(spark: SparkSession, keys: tuple[str, ...]) -> None:
    here, there = _both(spark, _table(Random(1), 5).slice(0, 0))
    is_there = call("IF", call("IS NULL", Column("word")), Literal(0), Literal(1))
    measures = (*keep(SUMS), ("rows", Literal(1)), ("words", is_there))
    mine, theirs = (each.summarize(keys, measures) for each in (here, there))
    assert mine.place == "driver"
    assert mine.collect() == theirs.collect()
    assert len(mine.collect()) == (0 if keys else 1)
    assert mine.frame.dtypes == theirs.frame.dtypes


def test_what_does_not_fit_is_left_to_spark(spark: SparkSession) -> None:
    columns = {"k": pa.array([1, 1], pa.int64()), "n": pa.array([2**63 - 1, 1], pa.int64())}
    table = pa.table({**columns, COUNT: pa.array([1, 1], pa.int64())})
    assert arrow_ops.added_up(table, ["k"], ["n"]) is None
    with pytest.raises(PySparkException, match="OVERFLOW"):
        PlacedBag.of_rows(spark, table).added_up(["k"], ["n"]).collect()
    floats = pa.table({"k": [1.5], "n": [1], COUNT: [1]})
    assert arrow_ops.added_up(floats, ["k"], ["n"]) is None
    assert arrow_ops.added_up(floats, ["n"], ["k"]) is None


def test_rows_that_share_keys(spark: SparkSession) -> None:
    table = _table(Random(5), 40)
    here, there = _both(spark, table)
    wanted, _ = _both(spark, table.slice(0, 3))
    for names in (("k",), ("k", "word")):
        keys = {tuple(row) for row in wanted.distinct(names).collect()}
        places = [here.columns.index(name) for name in names]
        exact = {
            row: count
            for row, count in here.collect().items()
            if tuple(row[place] for place in places) in keys
        }
        assert here.sharing(wanted, names).collect() == exact
        assert there.sharing(wanted, names).collect() == exact
    nothing, _ = _both(spark, table.slice(0, 0))
    assert not here.sharing(nothing, ("k", "word")).collect()
    assert here.sharing(wanted, ()).collect() == here.collect()


def test_rows_that_share_numbers_that_spark_takes_for_one(spark: SparkSession) -> None:
    table = pa.table({"x": [0.0, -0.0, float("nan"), 1.5, None], COUNT: [1, 2, 3, 4, 5]})
    here, there = _both(spark, table)
    wanted, _ = _both(spark, pa.table({"x": [-0.0, float("nan"), None], COUNT: [1, 1, 1]}))
    for bag in (here, there):
        # Python, too, takes both zeros for one.
        assert sorted(bag.sharing(wanted, ("x",)).collect().values()) == [3, 3, 5]

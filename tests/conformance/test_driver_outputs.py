"""What COUNT, SUM and AVG show, projected at the driver, against Spark: the same values of the same types."""

from __future__ import annotations

from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from rollview.algebra.averages import average_of
from rollview.algebra.bag import COUNT
from rollview.algebra.expression import Column, Expression, Literal, call
from rollview.bags import PlacedBag
from rollview.bags.arrow_expressions import computed

pytestmark = pytest.mark.slow

TYPES = {
    "k": pa.string(),
    "n": pa.int64(),
    "sum": pa.int64(),
    "price": pa.decimal128(22, 2),
    "d": pa.float64(),
}


def _table(rows: int) -> pa.Table:
    random = Random(rows)
    large = [2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 0, 7]
    columns = {
        "k": [random.choice(["a", "b", None]) for _ in range(rows)],
        "n": [random.choice([0, 1, 3, 7, 10**9]) for _ in range(rows)],
        "sum": [random.choice([None, random.randint(-99, 99), *large]) for _ in range(rows)],
        "price": [random.choice([None, Decimal(random.randint(-(10**9), 10**9)) / 100]) for _ in range(rows)],
        "d": [random.choice([None, 0.0, 1.5, -2.25, 1e300]) for _ in range(rows)],
        COUNT: [random.choice([1, -1, 2]) for _ in range(rows)],
    }
    kinds = {**TYPES, COUNT: pa.int64()}
    return pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})


def _shown(value: Expression) -> Expression:
    return call("IF", call("=", Column("n"), Literal(0)), Literal(None), value)


OUTPUTS = (
    ("k", Column("k")),
    ("total", _shown(Column("sum"))),
    ("mean", _shown(call("/", Column("sum"), Column("n")))),
    ("price", _shown(call(average_of(12, 2), Column("price"), Column("n")))),
    (
        "fifth",
        call("*", Literal(Decimal("0.2")), _shown(call(average_of(12, 2), Column("price"), Column("n")))),
    ),
    ("either", call("IF", call("IS NULL", Column("k")), Column("n"), Column("sum"))),
)


def test_differential_with_spark(spark: SparkSession) -> None:
    here = PlacedBag.of_rows(spark, _table(200))
    mine, theirs = here.project(OUTPUTS), PlacedBag(here.frame).project(OUTPUTS)
    assert mine.place == "driver"
    assert theirs.place != "driver"
    assert mine.frame.dtypes == theirs.frame.dtypes
    assert mine.collect() == theirs.collect()
    # Numbers without NaN and −0.0 are the same here and there.
    assert mine.net_effect().place == "driver"
    assert mine.net_effect().collect() == theirs.collect()


def test_of_no_rows_there_are_the_same_columns(spark: SparkSession) -> None:
    here = PlacedBag.of_rows(spark, _table(3).slice(0, 0))
    mine, theirs = here.project(OUTPUTS), PlacedBag(here.frame).project(OUTPUTS)
    assert mine.place == "driver"
    assert mine.frame.dtypes == theirs.frame.dtypes


@pytest.mark.parametrize("number", [float("nan"), -0.0])
def test_what_spark_takes_for_another_number_is_left_to_it(spark: SparkSession, number: float) -> None:
    table = pa.table({"d": pa.array([number, 0.0, None]), COUNT: pa.array([1, 1, 1])})
    net = PlacedBag.of_rows(spark, table).net_effect()
    assert net.place != "driver"


@pytest.mark.parametrize(
    "expression",
    [
        call("/", Column("sum"), Column("n")),
        call("/", Column("d"), Literal(2)),
        call("/", Column("price"), Literal(2)),
        call("+", Column("d"), Literal(1)),
        call("IF", call(">", Column("d"), Literal(1)), Column("n"), Column("sum")),
        call("IF", call("=", Column("n"), Literal(0)), Column("k"), Column("sum")),
        Literal(None),
        Literal(True),
    ],
)
def test_what_only_spark_can_tell(expression: Expression) -> None:
    """Divisions by zero, floating-point numbers, decimals by the plain sign, mixed types."""
    assert computed(expression, _table(50)) is None

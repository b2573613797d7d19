"""Arithmetic at the driver against Spark's: the same values of the same types, or left to it."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rollview.algebra.bag import COUNT
from rollview.algebra.expression import Column, Expression, Literal, call
from rollview.bags import PlacedBag
from rollview.bags.arrow_expressions import arithmetic, evaluate_condition, projected

pytestmark = pytest.mark.slow

KINDS = {
    "tiny": pa.int8(),
    "short": pa.int16(),
    "whole": pa.int32(),
    "long": pa.int64(),
    "price": pa.decimal128(15, 2),
    "rate": pa.decimal128(4, 4),
    "round": pa.decimal128(38, 0),
    "fine": pa.decimal128(30, 18),
}
CONSTANTS = (0, 1, 7, 2**31, Decimal("0.2"), Decimal("1.00"), Decimal("0.00"), Decimal("12.5"))


def _value(random: Random, kind: pa.DataType) -> Any:
    if random.random() < 0.1:
        return None
    if pa.types.is_integer(kind):
        most = 2 ** (kind.bit_width - 1)
        return random.choice([0, 1, -3, random.randint(-5, 5), random.randrange(-most, most)])
    digits = random.randint(1, kind.precision)
    return Decimal(random.randint(-(10**digits) + 1, 10**digits - 1)).scaleb(-kind.scale)


def _table(random: Random, rows: int, kinds: dict[str, pa.DataType]) -> pa.Table:
    columns = {
        name: pa.array([_value(random, kind) for _ in range(rows)], kind) for name, kind in kinds.items()
    }
    return pa.table({**columns, COUNT: pa.array([1] * rows, pa.int64())})


def _expression(random: Random, depth: int) -> Expression:
    if depth == 0 or random.random() < 0.2:
        return (
            Column(random.choice(list(KINDS))) if random.random() < 0.7 else Literal(random.choice(CONSTANTS))
        )
    left, right = _expression(random, depth - 1), _expression(random, depth - 1)
    return call(random.choice("+-*"), left, right)


@pytest.mark.parametrize("seed", range(6))
def test_differential_with_spark(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    table = _table(random, 3, KINDS)
    expressions = [call("*", Column("price"), call("-", Literal(1), Column("rate")))]
    expressions += [_expression(random, 3) for _ in range(150)]
    here = [each for each in expressions if not isinstance(each, Column | Literal)]
    here = [each for each in here if arithmetic(each, table) is not None]
    assert len(here) > 15
    outputs = [(f"c{number}", each) for number, each in enumerate(here)]
    mine = PlacedBag.of_rows(spark, projected(table, outputs))
    theirs = PlacedBag(PlacedBag.of_rows(spark, table).frame).project(outputs)
    assert mine.place == "driver"
    assert mine.frame.dtypes == theirs.frame.dtypes
    assert mine.collect() == theirs.collect()


@pytest.mark.parametrize("seed", range(4))
def test_comparisons(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    table = _table(random, 12, KINDS)
    pairs = [(_expression(random, 1), _expression(random, 1)) for _ in range(150)]
    tests = [call(random.choice(["=", "<>", "<", "<=", ">", ">=", "<=>"]), *pair) for pair in pairs]
    here = [each for each in tests if evaluate_condition(each, table) is not None]
    assert len(here) > 40
    outputs = [(f"c{n}", call("IF", each, Literal(1), Literal(0))) for n, each in enumerate(here)]
    mine = PlacedBag.of_rows(spark, projected(table, outputs))
    theirs = PlacedBag(PlacedBag.of_rows(spark, table).frame).project(outputs)
    assert mine.collect() == theirs.collect()


def test_measures_of_an_aggregate(spark: SparkSession) -> None:
    random = Random(1)
    here = PlacedBag.of_rows(spark, _table(random, 40, {"price": KINDS["price"], "rate": KINDS["rate"]}))
    once = call("*", Column("price"), call("-", Literal(1), Column("rate")))
    twice = call("*", once, call("+", Literal(1), Column("rate")))
    is_half = call("<", Column("rate"), Literal(Decimal("0.5000")))
    measures = [
        ("once", once),
        ("twice", twice),
        ("least", call("-", Column("rate"), Literal(2))),
        ("either", call("IF", is_half, once, Literal(0))),
        ("short", call("IF", is_half, Column("rate"), Literal(0))),
        ("flag", call("IF", is_half, Literal(1), Literal(0))),
        ("null", call("IF", is_half, Literal(None), twice)),
    ]
    there = PlacedBag(here.frame)
    for mine, theirs in (
        (here.summarize((), measures), there.summarize((), measures)),
        (here.project(measures[:5]), there.project(measures[:5])),
    ):
        assert mine.place == "driver"
        assert mine.collect() == theirs.collect()
        assert mine.frame.dtypes == theirs.frame.dtypes


@pytest.mark.parametrize(
    ("column", "value", "expression"),
    [
        ("tiny", 127, call("+", Column("tiny"), Column("tiny"))),
        ("whole", 2**31 - 1, call("*", Column("whole"), Literal(2))),
        ("long", -(2**63), call("-", Column("long"), Literal(1))),
        ("round", Decimal(10**38 - 1), call("+", Column("round"), Literal(1))),
    ],
)
def test_what_does_not_fit_is_left_to_spark(
    spark: SparkSession, column: str, value: Any, expression: Expression
) -> None:
    table = pa.table({column: pa.array([value], KINDS[column]), COUNT: pa.array([1], pa.int64())})
    assert arithmetic(expression, table) is None
    with pytest.raises(PySparkException, match=r"OVERFLOW|OUT_OF_RANGE"):
        PlacedBag.of_rows(spark, table).project([("x", expression)]).collect()


@pytest.mark.parametrize(
    "expression",
    [
        call("*", Column("fine"), Column("fine")),
        call("+", Literal(1), Literal(2)),
        call("*", Column("short"), call("*", Literal(0), Column("whole"))),
        call("+", Column("price"), Literal(-1)),
        call("+", Column("price"), Literal(1.5)),
        call("+", Column("price"), Literal(Decimal("1E+2"))),
        call("/", Column("price"), Literal(2)),
        Literal(1),
    ],
)
def test_what_only_spark_can_tell(expression: Expression) -> None:
    """Digits given up, constants alone, another order, signs, floating-point numbers, divisions."""
    assert arithmetic(expression, _table(Random(2), 3, KINDS)) is None

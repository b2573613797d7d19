"""Conditions at the driver against those of Spark: the same rows, or left to it."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from rollview.algebra.bag import COUNT
from rollview.algebra.expression import TRUE, Column, Expression, Literal, call
from rollview.bags import PlacedBag

pytestmark = pytest.mark.slow

TABLE = pa.table(
    {
        "word": pa.array(["green", "a green one", "greenish", "dark green", "Green", "gre\nen", "", None]),
        "price": pa.array(
            [Decimal(each) for each in ("0.05", "0.07", "24.00", "-3.10", "23.99", "0.00", "24.01")] + [None],
            pa.decimal128(9, 2),
        ),
        "other": pa.array([Decimal("24.00")] * 8, pa.decimal128(9, 2)),
        "wide": pa.array([Decimal("24.000")] * 8, pa.decimal128(9, 3)),
        COUNT: pa.array([1] * 8, pa.int64()),
    }
)
word, price = Column("word"), Column("price")
HERE: list[Expression] = [
    *(
        call("LIKE", word, Literal(each))
        for each in ("%green%", "green%", "%green", "green", "%e\nn", "%%n%%")
    ),
    call("NOT", call("LIKE", word, Literal("%green%"))),
    *(call(each, price, Literal(24)) for each in ("<", "<=", "=", "<>", ">", ">=")),
    call("AND", call(">=", price, Literal(Decimal("0.05"))), call("<=", price, Literal(Decimal("0.07")))),
    call("=", price, Literal(-3)),
    *(call("<", price, Column(each)) for each in ("other", "wide")),
    call("=", word, Literal("green")),
    *(call("<=>", price, each) for each in (Literal(24), Column("other"))),
    TRUE,
    call("OR", call("IS NULL", word), call(">", price, Literal(Decimal("23.99")))),
]
LEFT_TO_SPARK: list[Expression] = [
    *(call("LIKE", word, Literal(each)) for each in ("g_een", "gr%en", "%", "gr\\_een%", "%gre\\%en")),
    call("<", price, Literal(Decimal("0.055"))),
    call("<", price, Literal(10**8)),
]


@pytest.mark.parametrize("condition", [*HERE, *LEFT_TO_SPARK], ids=str)
def test_differential_with_spark(spark: SparkSession, condition: Expression) -> None:
    here = PlacedBag.of_rows(spark, TABLE)
    there = PlacedBag(PlacedBag.of_rows(spark, TABLE).frame)
    found = here.select(condition)
    assert (found.place == "driver") == (condition in HERE)
    assert found.collect() == there.select(condition).collect()

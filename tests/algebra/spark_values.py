"""Spark for the differential tests of functions: rows go in, the values of many expressions come out."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, columns: dict[str, str], values: list[tuple[Any, ...]]) -> DataFrame:
    """Rows in order; timestamps go in as text, since Python's local zone is none of Spark's."""
    texts = [
        (*(str(value) if isinstance(value, datetime) else value for value in row), number)
        for number, row in enumerate(values)
    ]
    plain = {name: "string" if kind == "timestamp" else kind for name, kind in columns.items()}
    schema = ", ".join(f"{name} {kind}" for name, kind in plain.items()) + ", _row int"
    casts = [f"CAST({name} AS {kind}) AS {name}" for name, kind in columns.items()]
    return spark.createDataFrame(texts, schema).selectExpr(*casts, "_row")


def computed(source: DataFrame, texts: list[str]) -> list[list[Any]]:
    """For each expression its values over the rows."""
    outputs = [f"{text} AS e{number}" for number, text in enumerate(texts)]
    table = source.selectExpr(*outputs, "_row").toArrow().sort_by("_row")
    return [[_plain(value) for value in table.column(number).to_pylist()] for number in range(len(texts))]


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def same(ours: Any, theirs: Any) -> bool:
    """Equal and of one kind; whole numbers and decimals are one kind, since Spark widens one to the other."""
    if ours is None or theirs is None:
        return ours is theirs
    if isinstance(ours, float) and isinstance(theirs, float) and math.isnan(ours):
        return math.isnan(theirs)
    exact = {int, Decimal}
    if type(ours) is not type(theirs) and not {type(ours), type(theirs)} <= exact:
        return False
    return bool(ours == theirs)

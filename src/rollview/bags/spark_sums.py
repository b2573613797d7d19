"""Measures times counts, added up without losing a digit.

Spark takes a bigint for a decimal of 20 digits, and a product that would need more than 38 digits loses
some behind the point without a word. Counts of deltas are small: as an int they need only 10 digits. Where
even that is too much, rows are repeated as often as they count, so that nothing is multiplied. A sum has the
type that Spark gives to SUM of the measure, whatever it was multiplied with: how many digits a quotient has
depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rollview.algebra.bag import COUNT, Output
from rollview.algebra.expression import to_sql
from rollview.imports import deferred
from rollview.spark.gate import checked_expr

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as f
else:
    f = deferred("pyspark.sql.functions")

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_SAFE_DIGITS = 38 - 11
"""A decimal of this many digits times an int has at most 38."""
MORE_DIGITS, MOST_DIGITS = 10, 38
"""A sum has ten digits more than what is added up, if there are so many."""
_SAFE_SCALE = 6
"""Digits behind the point that Spark never gives up."""


def sums_of(
    frame: DataFrame, measures: Sequence[Output], widened: bool = True
) -> tuple[DataFrame, list[SparkColumn]]:
    """A frame and, over it, the sum of each measure times its row's count.

    Sums of sums are not `widened`: they have the type of what is added up.
    """
    values = [(name, checked_expr(to_sql(expression))) for name, expression in measures]
    kinds = dict(frame.select(*(value.alias(name) for name, value in values)).dtypes)
    frame, weighted = _weighted(frame, values, kinds)
    sums = [
        f.coalesce(f.sum(value), f.lit(0)).cast(_of_sum(kinds[name], widened)).alias(name)
        for name, value in weighted
    ]
    return frame, sums


def _weighted(
    frame: DataFrame, values: list[tuple[str, SparkColumn]], kinds: Mapping[str, str]
) -> tuple[DataFrame, list[tuple[str, SparkColumn]]]:
    if any(_is_wide(kind) for kind in kinds.values()):
        copies = f.explode(checked_expr(f"sequence(1, abs(`{COUNT}`))")).alias("_copy")
        repeated = frame.select("*", copies).drop("_copy")
        positive = f.col(COUNT) > 0
        return repeated, [(name, f.when(positive, value).otherwise(-value)) for name, value in values]
    few = f.col(COUNT).cast("int")
    return frame, [
        (name, value * (few if kinds[name].startswith("decimal") else f.col(COUNT))) for name, value in values
    ]


def _of_sum(kind: str, widened: bool) -> str:
    """The type of SUM of such values."""
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is not None:
        more = MORE_DIGITS if widened else 0
        return f"decimal({min(int(decimal[1]) + more, MOST_DIGITS)},{decimal[2]})"
    return kind if kind in ("double", "float") else "bigint"


def _is_wide(kind: str) -> bool:
    decimal = _DECIMAL.fullmatch(kind)
    return decimal is not None and int(decimal[1]) > _SAFE_DIGITS and int(decimal[2]) > _SAFE_SCALE

"""Measures times counts, without losing a digit.

Spark takes a bigint for a decimal of 20 digits, and a product that would need more than 38 digits loses
some behind the point without a word. Counts of deltas are small: as an int they need only 10 digits. Where
even that is too much, rows are repeated as often as they count, so that nothing is multiplied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from rollview.algebra.bag import COUNT, Output
from rollview.algebra.expression import to_sql

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_SAFE_DIGITS = 38 - 11
"""A decimal of this many digits times an int has at most 38."""
_SAFE_SCALE = 6
"""Digits behind the point that Spark never gives up."""


def weighted_measures(
    frame: DataFrame, measures: Sequence[Output]
) -> tuple[DataFrame, list[tuple[str, SparkColumn]]]:
    """A frame and, over it, each measure times its row's count."""
    values = [(name, f.expr(to_sql(expression))) for name, expression in measures]
    kinds = dict(frame.select(*(value.alias(name) for name, value in values)).dtypes)
    if any(_is_wide(kind) for kind in kinds.values()):
        copies = f.explode(f.expr(f"sequence(1, abs(`{COUNT}`))")).alias("_copy")
        repeated = frame.select("*", copies).drop("_copy")
        positive = f.col(COUNT) > 0
        return repeated, [(name, f.when(positive, value).otherwise(-value)) for name, value in values]
    few = f.col(COUNT).cast("int")
    return frame, [
        (name, value * (few if kinds[name].startswith("decimal") else f.col(COUNT))) for name, value in values
    ]


def _is_wide(kind: str) -> bool:
    decimal = _DECIMAL.fullmatch(kind)
    return decimal is not None and int(decimal[1]) > _SAFE_DIGITS and int(decimal[2]) > _SAFE_SCALE

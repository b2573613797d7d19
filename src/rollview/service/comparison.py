"""Two contents of a view, compared row by row: rollview's, and what Spark computed from the view's text.

Sums of floating-point numbers depend on the order in which they are added up, and Spark's order is another
one each time. So rows that differ in floating-point columns alone, and there by less than a billionth, are
equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose
from typing import TYPE_CHECKING

from rollview.algebra.bag import COUNT
from rollview.algebra.expression import Column, to_sql
from rollview.deferred_import import deferred

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, Row
    from pyspark.sql import functions as f
else:
    f = deferred("pyspark.sql.functions")

SHOWN = 20
_PAIRED = 100_000
"""So many rows at most are brought together to see whether they differ by rounding alone."""
_ROUNDING = 1e-9
_CONSTRAINTS = "spark.sql.constraintPropagation.enabled"
_STORED, _EXPECTED = "_stored", "_expected"


@dataclass(frozen=True)
class Difference:
    """A row, how often it is stored, and how often it should be there."""

    row: tuple[object, ...]
    stored: int
    expected: int


def named(name: str) -> SparkColumn:
    """A column by its name, whatever characters that has."""
    return f.expr(to_sql(Column(name))).alias(name)


def counted(ours: DataFrame, theirs: DataFrame, columns: Sequence[str]) -> DataFrame:
    """For every row how often it is in either; `ours` has counts, and `theirs` any names of columns."""
    names = [named(column) for column in columns]
    expected = theirs.toDF(*columns).select(*names, f.lit(0).alias(_STORED), f.lit(1).alias(_EXPECTED))
    stored = ours.select(*names, f.col(COUNT).alias(_STORED), f.lit(0).alias(_EXPECTED))
    sums = [f.sum(each).alias(each) for each in (_STORED, _EXPECTED)]
    return stored.unionByName(expected).groupBy(*names).agg(*sums)


def stored_rows(both: DataFrame) -> int:
    """How many rows are stored."""
    return int(both.agg(f.sum(_STORED).alias("rows")).collect()[0]["rows"] or 0)


def differences(both: DataFrame, columns: Sequence[str]) -> tuple[list[Difference], int]:
    """The first rows that differ, in order, and how many there are."""
    wrong = both.where(f.col(_STORED) != f.col(_EXPECTED))
    floating = [place for place, (_, kind) in enumerate(both.dtypes) if kind in ("double", "float")]
    if floating:
        rows = _collected(wrong.orderBy(*[named(column) for column in columns]).limit(_PAIRED))
        if len(rows) < _PAIRED:
            left = _without_pairs([Difference(tuple(row)[:-2], row[-2], row[-1]) for row in rows], floating)
            return left[:SHOWN], len(left)
    found = _collected(wrong.orderBy(*[named(column) for column in columns]).limit(SHOWN))
    number = _collected(wrong.agg(f.count("*")))[0][0] if len(found) == SHOWN else len(found)
    return [Difference(tuple(row)[:-2], row[_STORED], row[_EXPECTED]) for row in found], number


def _collected(frame: DataFrame) -> list[Row]:
    """The rows. Spark fails on the constraints of some unions (`key not found`): then without them."""
    try:
        return frame.collect()
    except Exception as error:
        # What PySpark has no error of its own for comes from Spark's inside as it is.
        if not type(error).__module__.startswith("py4j"):
            raise
        conf = frame.sparkSession.conf
        before = conf.get(_CONSTRAINTS)
        conf.set(_CONSTRAINTS, "false")
        try:
            return frame.select("*").collect()
        finally:
            conf.set(_CONSTRAINTS, str(before))


def _without_pairs(found: Sequence[Difference], floating: Sequence[int]) -> list[Difference]:
    """Those that do not come in pairs, of what is stored and what is expected, that differ by rounding."""
    waiting: dict[tuple[object, ...], list[tuple[Difference, int]]] = {}
    left: list[Difference] = []
    for each in found:
        exact = tuple(value for place, value in enumerate(each.row) if place not in floating)
        others = waiting.setdefault(exact, [])
        surplus = each.stored - each.expected
        for number, (other, rest) in enumerate(others):
            if surplus * rest < 0 and _is_near(each.row, other.row, floating):
                surplus, others[number] = _settled(surplus, rest, other)
        if surplus:
            others.append((each, surplus))
    for others in waiting.values():
        left += [each for each, surplus in others if surplus]
    return left


def _settled(one: int, other: int, owner: Difference) -> tuple[int, tuple[Difference, int]]:
    """What is left of two surpluses of different sign."""
    total = one + other
    return (total, (owner, 0)) if abs(one) > abs(other) else (0, (owner, total))


def _is_near(one: Sequence[object], other: Sequence[object], floating: Sequence[int]) -> bool:
    for place in floating:
        left, right = one[place], other[place]
        if isinstance(left, float) and isinstance(right, float):
            if left != right and not isclose(left, right, rel_tol=_ROUNDING, abs_tol=_ROUNDING):
                return False
        elif left != right:
            return False
    return True

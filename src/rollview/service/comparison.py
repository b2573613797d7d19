"""Two contents of a view, compared row by row: rollview's, and what Spark computed from the view's text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from rollview.algebra.bag import COUNT
from rollview.algebra.expression import Column, to_sql

SHOWN = 20
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
    found = wrong.orderBy(*[named(column) for column in columns]).limit(SHOWN).collect()
    number = wrong.count() if len(found) == SHOWN else len(found)
    return [Difference(tuple(row)[:-2], row[_STORED], row[_EXPECTED]) for row in found], number

"""Bags on Spark: the same protocol as in memory, each operation a step of a DataFrame's plan.

A bag is a DataFrame with its columns and `_count`. Nothing runs until somebody looks: `settled`, `is_empty`
and `collect` are the only jobs. Counts need not be net in between; `net_effect` is a shuffle, so algorithms
ask for it only where they must. Laws: as in `algebra.bag`, up to net effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from rollview.algebra.bag import Output
from rollview.algebra.expression import Column, Expression, Row, call, conjunction, to_sql

COUNT = "_count"
"""The column that carries a row's multiplicity."""

_RIGHT_COUNT = "_count_right"


class SparkBag:
    """The protocol on a DataFrame."""

    __slots__ = ("columns", "frame")

    def __init__(self, frame: DataFrame) -> None:
        """`frame` has the bag's columns and, last, `_count`."""
        self.frame = frame
        self.columns = tuple(name for name in frame.columns if name != COUNT)

    @classmethod
    def of(cls, spark: SparkSession, schema: Mapping[str, str], counts: Mapping[Row, int]) -> SparkBag:
        """A bag of literal rows; `schema` gives each column's Spark SQL type."""
        names = ", ".join(f"`{name}` {kind}" for name, kind in schema.items())
        fields = f"{names}, `{COUNT}` bigint" if names else f"`{COUNT}` bigint"
        rows = [(*row, count) for row, count in counts.items()]
        return cls(spark.createDataFrame(rows, fields))

    def collect(self) -> dict[Row, int]:
        """The net effect, brought to the driver: for small results, and for tests."""
        return {tuple(row[:-1]): row[-1] for row in self.net_effect().frame.collect()}

    def plus(self, other: SparkBag) -> SparkBag:
        return SparkBag(self.frame.unionByName(other.frame))

    def negate(self) -> SparkBag:
        return self._with(*_kept(self.columns), count=-f.col(COUNT))

    def select(self, condition: Expression) -> SparkBag:
        return SparkBag(self.frame.where(f.expr(to_sql(condition))))

    def project(self, outputs: Sequence[Output]) -> SparkBag:
        return self._with(*(_computed(output) for output in outputs), count=f.col(COUNT))

    def join(
        self, other: SparkBag, on: Sequence[tuple[str, str]], condition: Expression | None = None
    ) -> SparkBag:
        pairs = tuple(call("=", Column(left), Column(right)) for left, right in on)
        whole = conjunction(pairs if condition is None else (*pairs, condition))
        right = other.frame.withColumnRenamed(COUNT, _RIGHT_COUNT)
        joined = self.frame.join(right, f.expr(to_sql(whole)), "inner")
        count = f.col(COUNT) * f.col(_RIGHT_COUNT)
        columns = _kept((*self.columns, *other.columns))
        return SparkBag(joined.select(*columns, count.alias(COUNT)))

    def distinct(self, names: Sequence[str]) -> SparkBag:
        support = self.frame.select(*_kept(names)).distinct()
        return SparkBag(support.select(*_kept(names), f.lit(1).cast("bigint").alias(COUNT)))

    def summarize(self, keys: Sequence[str], measures: Sequence[Output]) -> SparkBag:
        sums = [
            f.coalesce(f.sum(f.expr(to_sql(expression)) * f.col(COUNT)), f.lit(0)).alias(name)
            for name, expression in measures
        ]
        groups = self.frame.groupBy(*_kept(keys)).agg(*sums)
        names = (*keys, *(name for name, _ in measures))
        return SparkBag(groups.select(*_kept(names), f.lit(1).cast("bigint").alias(COUNT)))

    def net_effect(self) -> SparkBag:
        total = self.frame.groupBy(*_kept(self.columns)).agg(f.sum(COUNT).alias(COUNT))
        return SparkBag(total.where(f.col(COUNT) != 0))

    def is_empty(self) -> bool:
        return bool(self.net_effect().frame.isEmpty())

    def settled(self) -> SparkBag:
        return SparkBag(self.net_effect().frame.localCheckpoint(eager=True))

    def _with(self, *columns: SparkColumn, count: SparkColumn) -> SparkBag:
        return SparkBag(self.frame.select(*columns, count.alias(COUNT)))


def _kept(names: Sequence[str]) -> list[SparkColumn]:
    """Columns by name; quoted, because a block's columns have a dot in their names."""
    return [f.expr(to_sql(Column(name))).alias(name) for name in names]


def _computed(output: Output) -> SparkColumn:
    name, expression = output
    return f.expr(to_sql(expression)).alias(name)

"""A bag with a place: its rows are an Arrow table at the driver, or a DataFrame on Spark.

The same protocol as in memory. Where both operands are at the driver and Arrow cannot disagree with Spark
(`arrow_ops`, `arrow_expressions`), an operation is computed there and costs no job; otherwise it is a step of
a DataFrame's plan. Nothing runs until a result is needed: `materialized`, `is_empty`, `table` and `collect`
are the only jobs, one each. Collected rows stay at the driver as long as they are small. While all bags are
there, no session is asked for, and Spark need not have been started. Counts need not be net in between. Laws:
as in `algebra.bag`, up to net effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING
from typing import Literal as OneOf

import pyarrow as pa

from rollview.algebra.bag import COUNT, Output, before_it, keep
from rollview.algebra.expression import (
    Column,
    Expression,
    Literal,
    Row,
    call,
    calls_in_order,
    conjunction,
    to_sql,
)
from rollview.bags import arrow_expressions, arrow_ops
from rollview.bags.arrow_expressions import evaluate_condition
from rollview.bags.in_order import aggregated_in_order, sorted_rows
from rollview.bags.spark_sums import sums_of
from rollview.imports import deferred
from rollview.rows import Rows
from rollview.spark.gate import answered, checked_expr
from rollview.spark.scan import frame_of

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as f
    from pyspark.sql import window as spark_window
else:
    f = deferred("pyspark.sql.functions")
    spark_window = deferred("pyspark.sql.window")

DRIVER_ROWS = 1_000_000
"""Up to this many rows, a bag is kept at the driver; a larger one stays on the executors."""

_ONE_TASK_ROWS = 50_000
"""Up to this many rows, one task is faster than several with a shuffle between them."""

_RIGHT_COUNT = "_count_right"


Place = OneOf["driver", "spark"]
"""Where the rows of a bag are."""


class PlacedBag:
    """The protocol on an Arrow table at the driver, or on a DataFrame."""

    __slots__ = ("_frame", "_spark", "_table", "columns")

    def __init__(self, frame: DataFrame) -> None:
        """`frame` has the bag's columns and, last, `_count`."""
        self._spark: SparkSession | Callable[[], SparkSession] = frame.sparkSession
        self._frame: DataFrame | None = frame
        self._table: pa.Table | None = None
        self.columns = tuple(name for name in frame.columns if name != COUNT)

    @classmethod
    def of_rows(cls, spark: SparkSession | Callable[[], SparkSession], rows: Rows) -> PlacedBag:
        """A bag of rows that are at the driver, or in files; `spark` may be who has a session if need be."""
        if isinstance(rows, pa.Table):
            return cls._at_driver(spark, rows)
        return cls(frame_of(_session(spark), rows))

    @classmethod
    def of(cls, spark: SparkSession, schema: Mapping[str, str], counts: Mapping[Row, int]) -> PlacedBag:
        """A bag of literal rows; `schema` gives each column's Spark SQL type."""
        names = ", ".join(f"`{name}` {kind}" for name, kind in schema.items())
        fields = f"{names}, `{COUNT}` bigint" if names else f"`{COUNT}` bigint"
        rows = [(*row, count) for row, count in counts.items()]
        return cls(spark.createDataFrame(rows, fields))

    @classmethod
    def _at_driver(cls, spark: SparkSession | Callable[[], SparkSession], table: pa.Table) -> PlacedBag:
        bag = cls.__new__(cls)
        bag._spark, bag._frame, bag._table = spark, None, arrow_ops.normal(table)
        bag.columns = tuple(name for name in table.column_names if name != COUNT)
        return bag

    @property
    def frame(self) -> DataFrame:
        """The bag as a DataFrame."""
        if self._frame is None:
            table = self.table()
            frame = frame_of(_session(self._spark), table)
            # In one partition there is nothing to shuffle: grouping takes one job instead of two.
            self._frame = frame.coalesce(1) if table.num_rows <= _ONE_TASK_ROWS else frame
        return self._frame

    @property
    def place(self) -> Place:
        """Where the rows are; looking at those at the driver costs no job."""
        return "spark" if self._table is None else "driver"

    def table(self) -> pa.Table:
        """The rows, brought to the driver whatever their number."""
        if self._table is None:
            self._table = arrow_ops.normal(self.frame.toArrow())
            self._frame = None
        return self._table

    def rows(self) -> pa.Table | DataFrame:
        return self.frame if self._table is None else self._table

    def expanded(self) -> pa.Table | DataFrame:
        """The rows where they are, each as often as it counts, without the count."""
        if self._table is not None:
            return arrow_ops.expanded(self._table)
        copies = f.explode(checked_expr(f"sequence(1, `{COUNT}`)")).alias("_copy")
        return self.frame.select(*_kept(self.columns), copies).select(*_kept(self.columns))

    def expanded_frame(self) -> DataFrame:
        """The same as a DataFrame."""
        rows = self.expanded()
        return frame_of(_session(self._spark), rows) if isinstance(rows, pa.Table) else rows

    def collect(self) -> dict[Row, int]:
        """The net effect, brought to the driver: for small results, and for tests."""
        return {tuple(row[:-1]): row[-1] for row in self.net_effect().frame.collect()}

    def plus(self, other: PlacedBag) -> PlacedBag:
        if other._is_untyped():
            return self
        if self._is_untyped():
            return other.project(keep(self.columns))
        mine, others = self._table, other._table
        if mine is not None and others is not None and others.schema.equals(mine.schema):
            return self._at_driver(self._spark, pa.concat_tables([mine, others]))
        return PlacedBag(self.frame.unionByName(other.frame))

    def _is_untyped(self) -> bool:
        """Whether it is empty and nobody has said what of: it takes the types of what it is added to."""
        rows = self._table
        if rows is None or rows.num_rows:
            return False
        return all(pa.types.is_null(rows.schema.field(name).type) for name in self.columns)

    def negate(self) -> PlacedBag:
        if self._table is not None:
            return self._at_driver(self._spark, arrow_ops.negate(self._table))
        return PlacedBag(self.frame.select(*_kept(self.columns), (-f.col(COUNT)).alias(COUNT)))

    def select(self, condition: Expression) -> PlacedBag:
        if self._table is not None and (holds := evaluate_condition(condition, self._table)) is not None:
            return self._at_driver(self._spark, self._table.filter(holds))
        return PlacedBag(self.frame.where(checked_expr(to_sql(condition))))

    def project(self, outputs: Sequence[Output]) -> PlacedBag:
        if self._table is not None:
            projected = arrow_expressions.projected(self._table, outputs)
            if projected is not None:
                return self._at_driver(self._spark, projected)
        # First the frame: columns can be named only once there is a session.
        frame = self.frame
        return PlacedBag(frame.select(*(_computed(output) for output in outputs), f.col(COUNT)))

    def join(
        self, other: PlacedBag, on: Sequence[tuple[str, str]], condition: Expression | None = None
    ) -> PlacedBag:
        if self._table is not None and other._table is not None:
            joined = arrow_ops.join(self._table, other._table, on, condition)
            if joined is not None:
                return self._at_driver(self._spark, joined)
        pairs = tuple(call("=", Column(left), Column(right)) for left, right in on)
        whole = conjunction(pairs if condition is None else (*pairs, condition))
        right = other.frame.withColumnRenamed(COUNT, _RIGHT_COUNT)
        joined = self.frame.join(right, checked_expr(to_sql(whole)), "inner")
        count = f.col(COUNT) * f.col(_RIGHT_COUNT)
        columns = _kept((*self.columns, *other.columns))
        return PlacedBag(joined.select(*columns, count.alias(COUNT)))

    def distinct(self, names: Sequence[str]) -> PlacedBag:
        if self._table is not None and arrow_ops.can_group(self._table, names):
            return self._at_driver(self._spark, arrow_ops.distinct(self._table, names))
        support = self.frame.select(*_kept(names)).distinct()
        return PlacedBag(support.select(*_kept(names), f.lit(1).cast("bigint").alias(COUNT)))

    def sharing(self, other: PlacedBag, names: Sequence[str]) -> PlacedBag:
        if not names or self.has_no_rows:
            return self
        keys = other.distinct(names)
        if self._table is not None and keys._table is not None:
            found = arrow_ops.sharing(self._table, keys._table, names)
            if found is not None:
                return self._at_driver(self._spark, found)
        wanted = keys.project([(f"{name}'", Column(name)) for name in names]).frame.drop(COUNT)
        same = conjunction(tuple(call("<=>", Column(name), Column(f"{name}'")) for name in names))
        return PlacedBag(self.frame.join(wanted, checked_expr(to_sql(same)), "left_semi"))

    def pairs(self, other: PlacedBag, names: Sequence[str]) -> int | None:
        if self._table is None or other._table is None:
            return None
        return arrow_ops.pairs(self._table, other._table, names)

    def summarize(self, keys: Sequence[str], measures: Sequence[Output]) -> PlacedBag:
        if self._table is not None:
            here = arrow_ops.summarized(self._table, keys, measures)
            if here is not None:
                return self._at_driver(self._spark, here)
        return self._grouped(keys, measures, widened=True)

    def added_up(self, keys: Sequence[str], sums: Sequence[str]) -> PlacedBag:
        # Of nothing, too, there is a sum, if there are no keys.
        if self._table is not None and (keys or self._table.num_rows):
            here = arrow_ops.added_up(self._table, keys, sums)
            if here is not None:
                return self._at_driver(self._spark, here)
        return self._grouped(keys, keep(sums), widened=False)

    def _grouped(self, keys: Sequence[str], measures: Sequence[Output], widened: bool) -> PlacedBag:
        frame, sums = sums_of(self.frame, measures, widened)
        groups = frame.groupBy(*_kept(keys)).agg(*sums)
        names = (*keys, *(name for name, _ in measures))
        return PlacedBag(groups.select(*_kept(names), f.lit(1).cast("bigint").alias(COUNT)))

    def running(self, keys: Sequence[str], order: str, sums: Sequence[str]) -> PlacedBag:
        if self._table is not None:
            here = arrow_ops.running(self._table, keys, order, sums)
            if here is not None:
                return self._at_driver(self._spark, here)
        parts = self.added_up((*keys, order), sums).frame
        window = spark_window.Window
        upto = window.partitionBy(*_kept(keys) or [f.lit(0)]).orderBy(*_kept([order]))
        upto = upto.rowsBetween(window.unboundedPreceding, window.currentRow)
        # A sum is wider than what it adds up; all totals have the type of the parts.
        kinds = {name: kind for name, kind in parts.dtypes if name in sums}
        totals = {name: f.sum(own).over(upto) for name, own in zip(sums, _kept(sums), strict=True)}
        with_it = [total.cast(kinds[name]).alias(name) for name, total in totals.items()]
        without = [
            (totals[name] - own).cast(kinds[name]).alias(before_it(name))
            for name, own in zip(sums, _kept(sums), strict=True)
        ]
        return PlacedBag(parts.select(*_kept((*keys, order)), *with_it, *without, f.col(COUNT)))

    def group(self, keys: Sequence[str], outputs: Sequence[Output]) -> PlacedBag:
        frame, outputs = aggregated_in_order(self.expanded_frame(), keys, outputs)
        # Outputs may be called as keys are, so they get other names on the way.
        marked = [(f"{name}'", expression) for name, expression in outputs]
        grouped = frame.groupBy(*_kept(keys)).agg(*(_computed(output) for output in marked))
        named = [
            checked_expr(to_sql(Column(mark))).alias(name)
            for (mark, _), (name, _) in zip(marked, outputs, strict=True)
        ]
        return PlacedBag(grouped.select(*named, f.lit(1).cast("bigint").alias(COUNT)))

    def weighted(self, column: str) -> PlacedBag:
        kept, frame = [name for name in self.columns if name != column], self.frame
        count = (f.col(COUNT) * checked_expr(to_sql(Column(column)))).cast("bigint")
        return PlacedBag(frame.select(*_kept(kept), count.alias(COUNT)).where(f.col(COUNT) != 0))

    def over(self, outputs: Sequence[Output], keys: Sequence[str]) -> PlacedBag:
        frame = self.expanded_frame()
        if any(True for _, each in outputs for _ in calls_in_order(each)):
            frame = sorted_rows(frame, keys)
        return PlacedBag(
            frame.select(*(_computed(each) for each in outputs), f.lit(1).cast("bigint").alias(COUNT))
        )

    def generated(self, generator: Expression, names: Sequence[str]) -> PlacedBag:
        frame = self.frame
        made = checked_expr(to_sql(generator)).alias(*names)
        return PlacedBag(frame.select(*_kept(self.columns), made, f.col(COUNT)))

    def queried(
        self,
        sql: str,
        tables: Mapping[str, tuple[Expression, Sequence[Output]]],
        names: Sequence[str],
        extra: Sequence[str],
    ) -> PlacedBag:
        whole = self.computed()
        points = whole.frame.select(*_kept(extra)).distinct().collect() if extra else [()]
        answers = [
            whole._answer(sql, tables, names, dict(zip(extra, point, strict=True))) for point in points
        ]
        if not answers:
            return whole._answer(sql, tables, names, dict.fromkeys(extra)).select(Literal(False))
        return reduce(lambda left, right: left.plus(right), answers)

    def _answer(
        self,
        sql: str,
        tables: Mapping[str, tuple[Expression, Sequence[Output]]],
        names: Sequence[str],
        point: Mapping[str, int | None],
    ) -> PlacedBag:
        """The answer of a query over those rows that are of one point."""
        here = conjunction(tuple(call("<=>", Column(name), Literal(csn)) for name, csn in point.items()))
        rows = self.select(here) if point else self
        frames = {
            name: rows.select(condition).project(outputs).expanded_frame()
            for name, (condition, outputs) in tables.items()
        }
        if self.place == "driver":
            # The same rows give the same answer, whatever order they came in.
            frames = {name: sorted_rows(frame, ()) for name, frame in frames.items()}
        with answered(_session(self._spark), sql, frames) as answer:
            shown = answer.toDF(*names)
            fixed = [f.lit(value).alias(name) for name, value in point.items()]
            bag = PlacedBag(shown.select(*_kept(names), *fixed, f.lit(1).cast("bigint").alias(COUNT)))
            return bag.computed()

    def net_effect(self) -> PlacedBag:
        if self.has_no_rows:
            return self
        if self._table is not None and arrow_ops.can_net(self._table, self.columns):
            return self._at_driver(self._spark, arrow_ops.net_effect(self._table))
        total = self.frame.groupBy(*_kept(self.columns)).agg(f.sum(COUNT).alias(COUNT))
        return PlacedBag(total.where(f.col(COUNT) != 0))

    def is_empty(self) -> bool:
        self.collect_if_small()
        net = self.net_effect()
        return bool(net._table.num_rows == 0 if net._table is not None else net.frame.isEmpty())

    @property
    def has_no_rows(self) -> bool:
        return self._table is not None and self._table.num_rows == 0

    def emptied(self, schema: pa.Schema) -> PlacedBag:
        """No rows, of a schema with a count."""
        return self._at_driver(self._spark, schema.empty_table())

    def materialized(self) -> PlacedBag:
        self.collect_if_small()
        net = self.net_effect()
        return net if net.place == "driver" else net.computed()

    def computed(self) -> PlacedBag:
        """The same rows, computed once: at the driver if they are few, else on the executors."""
        self.collect_if_small()
        return self if self.place == "driver" else PlacedBag(self.frame.localCheckpoint(eager=True))

    def collect_if_small(self) -> None:
        """Brings the rows to the driver if they are few: one job the first time, none after that."""
        if self._table is None:
            table = self.frame.limit(DRIVER_ROWS + 1).toArrow()
            if table.num_rows <= DRIVER_ROWS:
                self._table = arrow_ops.normal(table)
                self._frame = None


def _session(spark: SparkSession | Callable[[], SparkSession]) -> SparkSession:
    return spark() if callable(spark) else spark


def _kept(names: Sequence[str]) -> list[SparkColumn]:
    """Columns by name; quoted, because a block's columns have a dot in their names."""
    return [checked_expr(to_sql(Column(name))).alias(name) for name in names]


def _computed(output: Output) -> SparkColumn:
    name, expression = output
    return checked_expr(to_sql(expression)).alias(name)

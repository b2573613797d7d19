"""Two contents of a view, compared row by row: rollview's, and what Spark computed from the view's text.

Sums of floating-point numbers depend on the order in which they are added up, and Spark's order is another
one each time. So rows that differ in floating-point columns alone, and there by less than a billionth, are
equal. Where terms cancel each other, the order decides about more: then Spark is asked again, with the same
rows in other orders, and a number is taken for equal that is not much further away than Spark's own answers
are from each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from math import inf, isclose, isfinite, isnan
from typing import TYPE_CHECKING

from rollview.algebra.bag import COUNT
from rollview.algebra.expression import Column, to_sql
from rollview.imports import deferred
from rollview.spark.gate import checked_expr
from rollview.views.content import view_sql

if TYPE_CHECKING:
    from pyspark import errors as spark_errors
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql import functions as f
else:
    spark_errors = deferred("pyspark.errors")
    f = deferred("pyspark.sql.functions")

SHOWN = 20
_PAIRED = 100_000
"""So many rows at most are brought together to see whether they differ by rounding alone."""
_ROUNDING = 1e-9
_JUDGED = 2_000
"""Of so many rows at most, Spark is asked again with other orders."""
_MOST_ORDERS = 6
_MARGIN = 10.0
"""For orders that were not tried."""
_FLOATING = re.compile("double|float")
_NUMBERS = ("double", "float", "decimal", "bigint", "int")
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
    return checked_expr(to_sql(Column(name))).alias(name)


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


def differences(
    both: DataFrame, columns: Sequence[str], others: OtherOrders | None = None
) -> tuple[list[Difference], int]:
    """The first rows that differ, in order, and how many there are; `others` are Spark's further answers."""
    wrong = both.where(f.col(_STORED) != f.col(_EXPECTED))
    kinds = [kind for _, kind in both.dtypes[: len(columns)]]
    floating = [place for place, kind in enumerate(kinds) if _FLOATING.search(kind)]
    numbers = [place for place, kind in enumerate(kinds) if _FLOATING.search(kind) or "decimal" in kind]
    if numbers:
        rows = _collected(wrong.orderBy(*[named(column) for column in columns]).limit(_PAIRED))
        if len(rows) < _PAIRED:
            found = [Difference(tuple(row)[:-2], row[-2], row[-1]) for row in rows]
            left = _without_pairs(found, floating, _is_rounded) if floating else found
            if left and others is not None and len(left) <= _JUDGED:
                left = _without_pairs(left, numbers, _Spread(numbers, others.answers(columns)).is_within)
            return left[:SHOWN], len(left)
    found_first = _collected(wrong.orderBy(*[named(column) for column in columns]).limit(SHOWN))
    number = _collected(wrong.agg(f.count("*")))[0][0] if len(found_first) == SHOWN else len(found_first)
    return [Difference(tuple(row)[:-2], row[_STORED], row[_EXPECTED]) for row in found_first], number


@dataclass(frozen=True)
class OtherOrders:
    """A view's text, for Spark to compute from the same rows in other orders; `seen` is what is compared."""

    spark: SparkSession
    sql: str
    relations: Mapping[str, DataFrame]
    seen: Callable[[DataFrame], DataFrame] = lambda frame: frame

    def answers(self, columns: Sequence[str]) -> Iterator[list[tuple[object, ...]]]:
        """Spark's answers: with rows mixed, and sorted by one column of numbers after the other."""
        for order in (_mixed(1), _mixed(2), *map(_sorted_by, self._numbers())):
            relations = {name: order(frame) for name, frame in self.relations.items()}
            # In another order, Spark may fail: a sum overflows, or what is divided by becomes zero.
            with suppress(spark_errors.PySparkException), view_sql(self.spark, self.sql, relations) as answer:
                shown = self.seen(answer.toDF(*columns))
                yield [tuple(row) for row in _collected(shown.limit(_PAIRED))]

    def _numbers(self) -> list[str]:
        """Columns whose sums may depend on the order."""
        kinds = {name: kind for frame in self.relations.values() for name, kind in frame.dtypes}
        return [name for name, kind in kinds.items() if kind.startswith(_NUMBERS)][:_MOST_ORDERS]


def _mixed(seed: int) -> Callable[[DataFrame], DataFrame]:
    def order(frame: DataFrame) -> DataFrame:
        return frame.repartition(seed + 1, f.rand(seed)).sortWithinPartitions(f.rand(seed))

    return order


def _sorted_by(column: str) -> Callable[[DataFrame], DataFrame]:
    def order(frame: DataFrame) -> DataFrame:
        return frame.coalesce(1).sortWithinPartitions(named(column)) if column in frame.columns else frame

    return order


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


IsNear = Callable[[str, Sequence[object], Sequence[object]], bool]
"""Whether the numbers of a stored row and of an expected one are equal as far as they can be; the rest is."""


def _without_pairs(found: Sequence[Difference], places: Sequence[int], is_near: IsNear) -> list[Difference]:
    """Those that do not come in pairs, of what is stored and what is expected, that are near in places."""
    waiting: dict[str, list[tuple[Difference, int]]] = {}
    left: list[Difference] = []
    for each in found:
        exact = _exact(each.row, places)
        others = waiting.setdefault(exact, [])
        surplus = each.stored - each.expected
        for number, (other, rest) in enumerate(others):
            stored, expected = (each, other) if surplus > 0 else (other, each)
            if surplus * rest < 0 and is_near(exact, _at(stored.row, places), _at(expected.row, places)):
                surplus, others[number] = _settled(surplus, rest, other)
        if surplus:
            others.append((each, surplus))
    for others in waiting.values():
        left += [each for each, surplus in others if surplus]
    return left


def _exact(row: Sequence[object], places: Sequence[int]) -> str:
    """The values that have to be equal; as text, because rows may hold lists."""
    return repr([value for place, value in enumerate(row) if place not in places])


def _at(row: Sequence[object], places: Sequence[int]) -> list[object]:
    return [row[place] for place in places]


def _settled(one: int, other: int, owner: Difference) -> tuple[int, tuple[Difference, int]]:
    """The rest of two surpluses of different sign."""
    total = one + other
    return (total, (owner, 0)) if abs(one) > abs(other) else (0, (owner, total))


def _is_rounded(_: str, one: Sequence[object], other: Sequence[object]) -> bool:
    return all(map(_differs_by_rounding, one, other))


def _differs_by_rounding(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return _distance(one, other) == 0 or isclose(one, other, rel_tol=_ROUNDING, abs_tol=_ROUNDING)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return all(map(_differs_by_rounding, one, other))
    return one == other


class _Spread:
    """How far Spark's answers to the same rows in different orders are apart."""

    def __init__(self, places: Sequence[int], answers: Iterable[Sequence[tuple[object, ...]]]) -> None:
        self._answers: list[dict[str, list[list[object]]]] = []
        for answer in answers:
            rows: dict[str, list[list[object]]] = {}
            for row in answer:
                rows.setdefault(_exact(row, places), []).append(_at(row, places))
            self._answers.append(rows)

    def is_within(self, exact: str, stored: Sequence[object], expected: Sequence[object]) -> bool:
        """Whether what is stored is not much further from one answer than others of Spark are."""
        for place, (mine, theirs) in enumerate(zip(stored, expected, strict=True)):
            if _differs_by_rounding(mine, theirs):
                continue
            nearest = [
                min((_distance(row[place], theirs) for row in answer.get(exact, [])), default=0.0)
                for answer in self._answers
            ]
            if _distance(mine, theirs) > _MARGIN * max(nearest, default=0.0):
                return False
        return True


def _distance(one: object, other: object) -> float:
    """How far two values are apart; infinitely, if they are no numbers, or only one is finite."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return max(map(_distance, one, other), default=0.0)
    if not isinstance(one, float | Decimal) or not isinstance(other, float | Decimal):
        return 0.0 if one == other else inf
    left, right = float(one), float(other)
    if left == right or (isnan(left) and isnan(right)):
        return 0.0
    return abs(left - right) if isfinite(left) and isfinite(right) else inf

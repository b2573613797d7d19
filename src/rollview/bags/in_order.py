"""Aggregates whose value depends on the order of rows, over rows in an order of their own.

Sums of floating-point numbers differ in their last digits, and where terms cancel in all of them, with the
order in which they are added. Spark's GROUP BY adds up in the order in which rows happen to arrive: by task,
by partition, by the hash tables that DISTINCT and other functions of the same query need. So the same group
would have one value in a view's table and another one in its deltas.

Here such an aggregate is a window over its group, with the group's rows sorted by its arguments: Spark takes
the rows one after the other, in that order, and never puts parts of a group together. So its value follows
from the values of its arguments alone, whatever is computed beside it. Rows that FILTER leaves out, and
repetitions that DISTINCT leaves out, are a partition of their own, in which nothing is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rollview.algebra.bag import Output
from rollview.algebra.expression import (
    TRUE,
    Call,
    Column,
    Expression,
    Literal,
    call,
    calls_in_order,
    columns_of,
    in_spark,
    place_of,
    replaced,
    to_sql,
)
from rollview.spark.gate import checked_expr

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ALL_ROWS = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
_WITHOUT_ORDER = ("map<", "variant", "void")
"""Parts of types whose values Spark cannot sort."""


def sorted_rows(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows with the same keys together, in an order of their own."""
    spread = frame.repartition(*map(checked_expr, map(_quoted, keys))) if keys else frame.coalesce(1)
    return spread.sortWithinPartitions(*map(checked_expr, _order(frame, frame.columns)))


def aggregated_in_order(
    frame: DataFrame, keys: Sequence[str], outputs: Sequence[Output]
) -> tuple[DataFrame, Sequence[Output]]:
    """Rows and outputs whose aggregates do not depend on an order, and give what the given ones do."""
    calls = list(dict.fromkeys(each for _, output in outputs for each in calls_in_order(output)))
    if not calls:
        return frame, outputs
    frame, kept = _with_kept_rows(frame, keys, calls)
    values: dict[str, str] = {}
    firsts: dict[Call, Expression] = {}
    for number, each in enumerate(calls):
        value, name = each.arguments[1], f"_in_order_{number}"
        order = _order(frame, _arguments(value))
        by: list[str] = list(keys)
        shown: Expression = Column(name)
        if (rows := kept.get(each)) is not None:
            by.append(rows)
            value, shown = _of_kept(value, Column(rows)), call("IF", Column(rows), shown, Literal(None))
        partition = ", ".join(map(_quoted, by)) or "0"
        values[name] = (
            f"{to_sql(value)} OVER (PARTITION BY {partition} ORDER BY {', '.join(order)} {_ALL_ROWS})"
        )
        firsts[each] = in_spark(f"FIRST({place_of(0)}, TRUE)", shown)
    frame = frame.select("*", *(checked_expr(sql).alias(name) for name, sql in values.items()))
    return frame, [(name, replaced(output, firsts)) for name, output in outputs]


def _with_kept_rows(
    frame: DataFrame, keys: Sequence[str], calls: Sequence[Call]
) -> tuple[DataFrame, dict[Call, str]]:
    """For each aggregate that leaves rows out, a column that says which rows it takes."""
    found: dict[tuple[Expression, ...], str] = {}
    for each in calls:
        _, _, condition, *distinct = each.arguments
        for rows in ((condition,), (condition, *distinct)):
            if rows != (TRUE,):
                found.setdefault(rows, f"_kept_{len(found)}")
    conditions, repetitions = {}, {}
    for (condition, *distinct), name in found.items():
        if not distinct:
            conditions[name] = f"COALESCE({to_sql(condition)}, FALSE)"
            continue
        before = found.get((condition,))
        equal = [*map(_quoted, [*keys, *([before] if before else [])]), *map(to_sql, distinct)]
        first = f"ROW_NUMBER() OVER (PARTITION BY {', '.join(equal)} ORDER BY 0) = 1"
        repetitions[name] = f"{_quoted(before)} AND {first}" if before else first
    for level in (conditions, repetitions):
        frame = frame.select("*", *(checked_expr(sql).alias(name) for name, sql in level.items()))
    kept = {each: found.get(each.arguments[2:]) for each in calls}
    return frame, {each: name for each, name in kept.items() if name is not None}


def _arguments(value: Expression) -> list[str]:
    """The columns that a function is applied to; those of its FILTER are not among them."""
    assert isinstance(value, Call)
    given = [each for place, each in enumerate(value.arguments) if place_of(place) in value.function]
    return [name for each in given for name in columns_of(each)]


def _of_kept(bare: Expression, is_kept: Column) -> Expression:
    """The function over rows that count; of the others it sees no value, so that none can be an error."""
    assert isinstance(bare, Call)
    seen = tuple(call("IF", is_kept, each, Literal(None)) for each in bare.arguments)
    return Call(bare.function, seen)


def _order(frame: DataFrame, names: Sequence[str]) -> list[str]:
    """Columns to sort by, as far as they have an order."""
    kinds = dict(frame.dtypes)
    return [_quoted(name) for name in names if not any(each in kinds[name] for each in _WITHOUT_ORDER)] or [
        "0"
    ]


def _quoted(name: str) -> str:
    return to_sql(Column(name))

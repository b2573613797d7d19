"""Whether rollview understands a view as Spark does: the same rows, from rollview's normal form and by Spark
from the view's own text, over the same tables.

It is tried twice. When a view is new or changed, over invented tables, before anything else is done. And when
it is loaded, over the rows that the sources gave; of large tables a sample by the values of a join column, so
that what is left still joins.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from rollview.algebra.bag import COUNT
from rollview.algebra.view import View, is_stage, owner
from rollview.deferred_import import deferred
from rollview.errors import Misunderstood
from rollview.planning import render
from rollview.service.comparison import counted, differences, named
from rollview.service.content import block_contents, with_stages
from rollview.service.define import Defined
from rollview.service.definitions import digest
from rollview.service.invented import constants_of, invented
from rollview.service.layout import Layout
from rollview.service.mistakes import Mistakes
from rollview.service.session import Session
from rollview.service.view_sql import view_sql
from rollview.spark import SparkBag

if TYPE_CHECKING:
    from pyspark import errors as spark_errors
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as f
else:
    spark_errors = deferred("pyspark.errors")
    f = deferred("pyspark.sql.functions")

_proved: set[str] = set()

_REPORT = "write the expression differently, for example with parentheses; and please report it"
_ORDER = "if a window takes rows for equal, order it by a key, or write ROWS BETWEEN; else please report it"

_FEW_PARTS = 4
"""So many parts of a view are computed as one query."""

SAMPLED_ROWS = 100_000
"""About how many rows of all tables together are tried at a load."""


def check_meaning(spark: SparkSession, view: View, layout: Layout, tables: Mapping[str, SparkBag]) -> None:
    """Refuses a view that Spark understands differently, as these tables show it."""
    # Spark takes long to plan what is many queries in one.
    has_many = len(view.parts) > _FEW_PARTS
    known = with_stages(view, tables, SparkBag.computed) if has_many else with_stages(view, tables)
    ours = view.root.rows_of(block_contents(view.root, known))
    columns = [name for name, _ in layout.columns]
    typed = ours.frame.select(*[named(name).cast(kind).alias(name) for name, kind in layout.columns], COUNT)
    relations = {table.qualified: tables[table.qualified].expanded_frame() for table in view.named_tables}
    with view_sql(spark, view.exact_sql, relations) as theirs:
        found, number = differences(counted(typed, theirs.toDF(*columns), columns), columns)
        if found:
            raise _misunderstood(view, columns, found[0], number, theirs)


def check_meaning_by_invention(spark: SparkSession, view: View, layout: Layout) -> None:
    """The same over invented tables; where Spark fails on them (a division by zero), they show nothing."""
    constants = list(constants_of(view.sql))
    tables = {
        table.qualified: SparkBag.of_rows(spark, invented(table, constants)) for table in view.named_tables
    }
    try:
        check_meaning(spark, view, layout, tables)
    except spark_errors.PySparkException:
        if _is_computable(spark, view, tables):
            raise


def _is_computable(spark: SparkSession, view: View, tables: Mapping[str, SparkBag]) -> bool:
    relations = {name: bag.expanded_frame() for name, bag in tables.items()}
    with view_sql(spark, view.exact_sql, relations) as theirs:
        try:
            theirs.collect()
        except spark_errors.PySparkException:
            return False
    return True


def check_all_by_invention(session: Session, views: Iterable[Defined], mistakes: Mistakes) -> None:
    """Notes which of these views Spark understands differently.

    What this process has proved once is not proved again: the same text over the same columns is the same.
    """
    for each in views:
        proved = digest(each.view)
        if mistakes.concern(table.qualified for table in each.view.named_tables):
            mistakes.skip(each.view.name)
        elif not is_stage(each.view.name) and proved not in _proved:
            with mistakes.noted(each.view.name, path=each.path):
                check_meaning_by_invention(session.spark, each.view, each.layout)
                _proved.add(proved)


def sample(view: View, tables: Mapping[str, SparkBag]) -> dict[str, SparkBag]:
    """The tables, large ones reduced to the rows of some values of a column, if possible a join column."""
    sizes = {name: _size(bag) for name, bag in tables.items()}
    if sum(sizes.values()) <= SAMPLED_ROWS:
        return dict(tables)
    reduced = dict(tables)
    joined = _joined_columns(view)
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        one_in = sum(sizes.values()) // SAMPLED_ROWS + 1
        if one_in < 2 or sizes[name] <= SAMPLED_ROWS // 10 or reduced[name] is not tables[name]:
            continue
        column = next(iter(joined.get(name, {})), tables[name].columns[0])
        for other, own in {name: column, **joined.get(name, {}).get(column, {})}.items():
            # A stage is not read, but computed from what is.
            if other in tables and reduced[other] is tables[other]:
                reduced[other] = _some(tables[other], own, one_in)
                sizes[other] //= one_in
    return reduced


def _some(bag: SparkBag, column: str, one_in: int) -> SparkBag:
    chosen = f.pmod(f.xxhash64(named(column).cast("string")), f.lit(one_in)) == 0
    return SparkBag(bag.frame.where(chosen))


def _size(bag: SparkBag) -> int:
    return bag.table().num_rows if bag.is_at_driver else bag.frame.count()


def _joined_columns(view: View) -> dict[str, dict[str, dict[str, str]]]:
    """For each table its join columns, for each of these the tables on the other side with their column."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for block in (block for part in view.parts for block in part.blocks):
        for edge in block.edges:
            left, right = block.relations[edge.left], block.relations[edge.right]
            one = left.table.columns[left.columns.index(edge.left_column)]
            other = right.table.columns[right.columns.index(edge.right_column)]
            for mine, own, theirs, their in ((left, one, right, other), (right, other, left, one)):
                others = found.setdefault(mine.table.qualified, {}).setdefault(own, {})
                others[theirs.table.qualified] = their
    return found


def _misunderstood(
    view: View, columns: Sequence[str], first: Any, number: int, theirs: DataFrame
) -> Misunderstood:
    """Says what differs, with both plans."""
    row = ", ".join(f"{name} = {value!r}" for name, value in zip(columns, first.row, strict=True))
    plan = io.StringIO()
    with redirect_stdout(plan):
        theirs.explain()
    return Misunderstood(
        f"view {owner(view.name)} is understood differently from Spark: {number} rows differ, for example"
        f" ({row}), which rollview finds {first.stored} times and Spark {first.expected} times\n"
        f"rollview's normal form:\n{render(view)}Spark's plan:\n{plan.getvalue().strip()}",
        subject=view.name,
        hint=_ORDER if "OVER" in view.sql.upper() else _REPORT,
    )

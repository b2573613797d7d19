"""Whether rollview understands a view as Spark does: the same rows, from rollview's normal form and by Spark
from the view's own text, over the same tables.

It is tried twice. When a view is new or changed, over random tables, before anything else is done. And when
it is loaded, over the rows that the sources gave; of large tables a sample by the values of a join column, so
that what is left still joins.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from rollview.algebra.bag import COUNT
from rollview.algebra.relation import Table
from rollview.algebra.view import View, is_stage, owner
from rollview.ascii_text import whole_number
from rollview.bags import PlacedBag
from rollview.errors import Misunderstood, RollviewError
from rollview.imports import deferred
from rollview.planning import render
from rollview.retryable import is_spark_error
from rollview.rows import arrow_schema, type_sql
from rollview.runtime.session import Session
from rollview.sql.statement import query_of
from rollview.views.comparison import Difference, OtherOrders, counted, differences, named
from rollview.views.content import block_contents, view_sql, with_stages
from rollview.views.define import Defined
from rollview.views.layout import Layout
from rollview.views.mistakes import Mistakes
from rollview.views.properties import digest
from rollview.views.uncomputable import naming

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as f
else:
    f = deferred("pyspark.sql.functions")

# Invented rows of a table: values that are small, often equal and often NULL, with the constants of a
# view's text among them, so that its conditions and joins find something to turn on.


INVENTED_ROWS = 24
"""Of each table."""


def constants_of(sql: str) -> Iterator[str]:
    """The constants of a view's text."""
    for literal in query_of(sql).find_all(exp.Literal):
        yield literal.name


def random_rows(table: Table, constants: Sequence[str]) -> pa.Table:
    """The rows, always the same ones."""
    chance = random.Random(table.qualified)
    types = list(zip(table.columns, table.types, strict=True))
    schema = arrow_schema([*types, (COUNT, "bigint")])
    columns: list[list[Any]] = []
    for name, kind in types:
        values = list(_values(kind, constants))
        column = [chance.choice(values) if values else None for _ in range(INVENTED_ROWS)]
        if name not in table.key:
            # Not left to chance: every column has values that are missing.
            for place in chance.sample(range(INVENTED_ROWS), INVENTED_ROWS // 6):
                column[place] = None
        columns.append(column)
    counts = [1 if table.key else chance.choice((1, 1, 2)) for _ in range(INVENTED_ROWS)]
    rows = _with_one_per_key(table, list(zip(*columns, counts, strict=True)))
    arrays = [pa.array(each, field.type) for each, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _with_one_per_key(table: Table, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """A declared key is unique in these rows: plans rely on it."""
    places = [table.columns.index(name) for name in table.key]
    by_key = {tuple(row[place] for place in places): row for row in rows}
    return list(by_key.values()) if table.key else rows


def _values(kind: str, constants: Sequence[str]) -> Iterator[Any]:
    """A few values of a type, and the constants that have it."""
    word = kind.lower().partition("(")[0]
    if word == "boolean":
        yield from (True, False)
    elif word in ("tinyint", "smallint", "int", "bigint"):
        yield from range(8)
        yield from (each for each in map(whole_number, constants) if each is not None and each < 100)
    elif word in ("float", "double"):
        yield from (0.0, 1.0, 2.5)
        yield from (float(each) for each in constants if _is_number(each))
    elif word == "decimal":
        yield from _decimals(kind)
    elif word == "date":
        yield from (date(2024, 1, 31) + timedelta(days=each) for each in (0, 1, 30, 366))
        yield from (each for each in map(_date, constants) if each)
    elif word in ("timestamp", "timestamp_ntz"):
        zone = UTC if word == "timestamp" else None
        first = datetime(2024, 1, 31, 10, tzinfo=zone)
        yield from (first + timedelta(hours=each) for each in (0, 1, 30, 9000))
        days = [each for each in map(_date, constants) if each]
        yield from (datetime(each.year, each.month, each.day, tzinfo=zone) for each in days)
    elif word == "string":
        yield from ("", "a", "b", "A b")
        yield from constants
    elif word == "binary":
        yield from (b"", b"a")


def _decimals(kind: str) -> Iterator[Decimal]:
    """Small ones, and one with as many digits as there may be."""
    precision, scale = map(int, kind[kind.index("(") + 1 : -1].split(","))
    yield from (Decimal(each).scaleb(-scale) for each in (0, 1, 3))
    yield Decimal(2 if precision > scale else 0)
    yield Decimal("7" * min(precision, 30)).scaleb(-scale)


def _is_number(text: str) -> bool:
    try:
        return abs(float(text)) < 1e6
    except ValueError:
        return False


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


_proved: set[str] = set()

_REPORT = "write the expression differently, for example with parentheses; and please report it"
_ORDER = "if a window takes rows for equal, order it by a key, or write ROWS BETWEEN; else please report it"

_SHOWN_ROWS, _LONGEST_VALUE = 5, 40
"""Of the difference."""

_FEW_PARTS = 4
"""So many parts of a view are computed as one query."""

SAMPLED_ROWS = 100_000
"""About how many rows of all tables together are tried at a load."""


def check_meaning(spark: SparkSession, view: View, layout: Layout, tables: Mapping[str, PlacedBag]) -> None:
    """Refuses a view that Spark understands differently, as these tables show it."""
    # Spark takes long to plan what is many queries in one.
    has_many = len(view.parts) > _FEW_PARTS
    known = with_stages(view, tables, PlacedBag.computed) if has_many else with_stages(view, tables)
    ours = view.root.rows_of(block_contents(view.root, known))
    columns = [name for name, _ in layout.columns]
    typed = ours.frame.select(
        *[named(name).cast(type_sql(kind)).alias(name) for name, kind in layout.columns], COUNT
    )
    relations = {table.qualified: tables[table.qualified].expanded_frame() for table in view.named_tables}
    with view_sql(spark, view.exact_sql, relations) as theirs:
        others = OtherOrders(spark, view.exact_sql, relations)
        found, number = differences(counted(typed, theirs.toDF(*columns), columns), columns, others)
        if found:
            raise _misunderstood(view, columns, found, number, theirs)


def check_meaning_by_invention(spark: SparkSession, view: View, layout: Layout) -> None:
    """The same over random tables; where Spark fails on them (a division by zero), they show nothing."""
    constants = list(constants_of(view.sql))
    tables = {
        table.qualified: PlacedBag.of_rows(spark, random_rows(table, constants))
        for table in view.named_tables
    }
    try:
        check_meaning(spark, view, layout, tables)
    except Exception as error:
        if not is_spark_error(error) or _is_computable(spark, view, tables):
            raise


def _is_computable(spark: SparkSession, view: View, tables: Mapping[str, PlacedBag]) -> bool:
    relations = {name: bag.expanded_frame() for name, bag in tables.items()}
    with view_sql(spark, view.exact_sql, relations) as theirs:
        try:
            theirs.collect()
        except Exception as error:
            if is_spark_error(error):
                return False
            raise
    return True


def check_all_by_invention(session: Session, views: Iterable[Defined], mistakes: Mistakes) -> None:
    """Notes which of these views Spark understands differently, or our normal form cannot compute.

    A text that this process has checked over the same columns is not checked again.
    """
    for each in views:
        proved, name = digest(each.view), owner(each.view.name)
        if mistakes.concern(table.qualified for table in each.view.named_tables):
            mistakes.skip(each.view.name)
        elif not is_stage(each.view.name) and proved not in _proved:
            with mistakes.noted(name, path=each.path, kind=RollviewError), naming(each.view):
                check_meaning_by_invention(session.spark, each.view, each.layout)
                _proved.add(proved)


def sample(view: View, tables: Mapping[str, PlacedBag]) -> dict[str, PlacedBag]:
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


def _some(bag: PlacedBag, column: str, one_in: int) -> PlacedBag:
    chosen = f.pmod(f.xxhash64(named(column).cast("string")), f.lit(one_in)) == 0
    return PlacedBag(bag.frame.where(chosen))


def _size(bag: PlacedBag) -> int:
    return bag.table().num_rows if bag.place == "driver" else bag.frame.count()


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
    view: View, columns: Sequence[str], found: Sequence[Difference], number: int, theirs: DataFrame
) -> Misunderstood:
    """Says what differs as a table; both plans are for those who want to know why."""
    plan = io.StringIO()
    with redirect_stdout(plan):
        theirs.explain()
    name = owner(view.name)
    plans = f"rollview's normal form:\n{render(view)}Spark's plan:\n{plan.getvalue().strip()}"
    rows = "1 row differs" if number == 1 else f"{number} rows differ"
    differs = Misunderstood(
        f"view {name} is understood differently from Spark, so that its rows could be wrong."
        f" {rows} between rollview's plan and Spark's, computed over the same tables:\n"
        f"{_difference_table(columns, found, number)}",
        subject=view.name,
        hint=_ORDER if "OVER" in view.sql.upper() else _REPORT,
    )
    differs.details = f"view {name}, {plans}"
    return differs


def _difference_table(columns: Sequence[str], found: Sequence[Difference], number: int) -> str:
    """The first rows that differ, and how often rollview and Spark have each."""
    head = ["rollview", "Spark", *columns]
    lines = [[str(each.stored), str(each.expected), *map(_shown, each.row)] for each in found[:_SHOWN_ROWS]]
    widths = [max(len(line[place]) for line in (head, *lines)) for place in range(len(head))]
    shown = [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in (head, *lines)
    ]
    more = [f"and {number - _SHOWN_ROWS} more"] if number > _SHOWN_ROWS else []
    return "\n".join(f"  {line}" for line in (*shown, *more))


def _shown(value: object) -> str:
    """A value on one line, and not too long."""
    text = "NULL" if value is None else " ".join(str(value).split())
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"

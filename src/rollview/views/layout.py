"""How a view is stored: its rows for everybody, and a state for rollview where it does not follow from the
rows.

The table of the rows has exactly the columns that the view's SQL returns, with the types that Spark itself
gives them: it is what a recomputation would have written. The table of the state has what the operator must
remember; a view whose state can be read off its rows has none, nor has one that is recomputed as a whole. A
stage has a state alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from rollview.algebra.bag import COUNT, keep
from rollview.algebra.expression import Column
from rollview.algebra.history import CSN
from rollview.algebra.node import Node
from rollview.algebra.relation import Table
from rollview.algebra.view import View, is_stage, owner
from rollview.bags import PlacedBag
from rollview.catalog import ViewRecord
from rollview.errors import RollviewError, UnsupportedError, ViewError
from rollview.imports import deferred
from rollview.rows import arrow_schema, type_sql
from rollview.spark.gate import checked_expr
from rollview.views.comparison import named
from rollview.views.content import block_contents, view_sql
from rollview.views.properties import is_full

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as f
else:
    f = deferred("pyspark.sql.functions")

Columns = tuple[tuple[str, str], ...]

_SORTED = 3
"""A table is sorted by so many columns at most; the first one prunes files."""

_UNTYPED = "void"
"""The type of NULL that has none. A stage may have such a column, as nobody reads it."""


@dataclass(frozen=True)
class Stored:
    """Two bags that are stored together, or two changes of them; None where a view has no such table."""

    rows: PlacedBag | None
    state: PlacedBag | None


@dataclass(frozen=True)
class Layout:
    """`columns` is what a reader sees, `state` what the algebra computes with, both with Spark SQL types."""

    view: View
    columns: Columns
    state: Columns

    @classmethod
    def of_record(cls, view: View, record: ViewRecord) -> Layout:
        """The layout of a view that has been loaded."""
        return cls(view, record.columns, record.stored)

    @property
    def root(self) -> Node:
        return self.view.root

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the reader's columns."""
        return tuple(kind for _, kind in self.columns)

    @cached_property
    def shown_as(self) -> dict[str, str]:
        """For each column of the state that a reader sees unchanged, the reader's column."""
        types = dict(self.columns)
        return {
            expression.name: name
            for name, expression in self.root.shown or ()
            if isinstance(expression, Column) and (expression.name, types[name]) in self.state
        }

    @property
    def has_rows(self) -> bool:
        """Whether there is a table for readers."""
        return not is_stage(self.view.name)

    @cached_property
    def has_state(self) -> bool:
        """Whether there is a table for the state; a view that is recomputed needs none to continue."""
        return not self.has_rows or not (self.is_in_rows or is_full(self.view))

    @property
    def is_in_rows(self) -> bool:
        """Whether the rows that readers see have all columns of the state."""
        return self.shown_as.keys() >= dict(self.state).keys()

    @property
    def has_delta(self) -> bool:
        return not is_full(self.view)

    @cached_property
    def state_table(self) -> Columns:
        """The columns of the state's table."""
        return (*self.state, (COUNT, "bigint"))

    @cached_property
    def delta_table(self) -> Columns:
        """The columns of the delta's table."""
        return (*self.state, (COUNT, "bigint"), (CSN, "bigint"))

    @cached_property
    def state_order(self) -> tuple[str, ...]:
        """The columns that the state's table is sorted by."""
        return _sortable(self.root.key, self.state)

    @cached_property
    def rows_order(self) -> tuple[str, ...]:
        """The columns that the table of the rows is sorted by: the operator's key, where it is shown."""
        shown = [self.shown_as[name] for name in self.root.key if name in self.shown_as]
        return _sortable(shown or [name for name, _ in self.columns], self.columns)

    def contents(self, state: PlacedBag) -> Stored:
        """The stored rows and state for a state; computed once."""
        if self.root.is_linear:
            both = self.typed(state).computed()
            return self._kept(both, both)
        if not self.has_rows:
            return Stored(None, self.typed(state).computed())
        if self.root.shown is None:
            both = self.typed(state).computed()
            return self._kept(self.typed_rows(self.root.present(both)), both)
        return self._taken_apart(state)

    def changes(self, before: PlacedBag, after: PlacedBag, shown: PlacedBag | None = None) -> Stored:
        """The net change of the stored rows and state when a part of the state becomes another one.

        `shown` are the rows that are stored for that part, where they are known: these go, whatever would be
        computed of the part now.
        """
        changed = after.plus(before.negate()).net_effect()
        if self.root.is_linear or self.root.shown is not None or not self.has_rows:
            # Each row of the state is shown as one row, so a change of these is a change of those; or none.
            return self.contents(changed)
        gone = self.typed_rows(self.root.present(before)) if shown is None else shown
        rows = self.typed_rows(self.root.present(after)).plus(gone.negate()).net_effect()
        return self._kept(rows.computed(), self.typed(changed).computed())

    def _taken_apart(self, state: PlacedBag) -> Stored:
        """The state and the reader's columns of each of its rows, in one pass."""
        own = [name for name, _ in self.state]
        outputs = (*keep(own), *((_shown(name), output) for name, output in self.root.shown or ()))
        columns = (*self.state, *((_shown(name), kind) for name, kind in self.columns))
        both = _cast(self.typed(state).project(outputs), columns).computed()
        rows = both.project([(name, Column(_shown(name))) for name, _ in self.columns])
        return self._kept(rows, both.project(keep(own)))

    def _kept(self, rows: PlacedBag, state: PlacedBag) -> Stored:
        return Stored(rows if self.has_rows else None, state if self.has_state else None)

    def state_of_rows(self, rows: PlacedBag) -> PlacedBag:
        """The state that follows from the reader's rows."""
        return rows.project([(name, Column(self.shown_as[name])) for name, _ in self.state])

    def typed(self, bag: PlacedBag, *extra: str) -> PlacedBag:
        """A state, or a delta with its csn, with exactly the types it is stored with."""
        return _cast(bag, (*self.state, *((name, "bigint") for name in extra)))

    def typed_rows(self, bag: PlacedBag, *extra: str) -> PlacedBag:
        """The reader's rows, or a delta of them with its csn, with exactly the types that a reader sees."""
        return _cast(bag, (*self.columns, *((name, "bigint") for name in extra)))

    def presented(self, state: PlacedBag) -> PlacedBag:
        """The reader's rows of a state."""
        return self.typed_rows(self.root.present(self.typed(state)))


def _cast(bag: PlacedBag, columns: Columns) -> PlacedBag:
    """A bag with exactly these columns and types."""
    if bag.place == "driver" and all(kind != _UNTYPED for _, kind in columns):
        schema = arrow_schema((*columns, (COUNT, "bigint")))
        if bag.table().schema.equals(schema):
            return bag
        if bag.has_no_rows:
            return bag.emptied(schema)
        if bag.table().select(schema.names).schema.equals(schema):
            return bag.project(keep([name for name, _ in columns]))
    # First the frame: columns can be named only once there is a session.
    frame = bag.frame
    own = [
        (f.lit(None) if kind == _UNTYPED else named(name).cast(type_sql(kind))).alias(name)
        for name, kind in columns
    ]
    return PlacedBag(frame.select(*own, f.col(COUNT).cast("bigint").alias(COUNT)))


def _shown(name: str) -> str:
    return f"{name}'"


def _sortable(names: Sequence[str], columns: Columns) -> tuple[str, ...]:
    """The first columns that have an order and bounds; of floating-point numbers no bounds are kept."""
    types = dict(columns)
    unfit = ("double", "float", "binary", "boolean")
    return tuple(name for name in names if types[name] not in unfit and "<" not in types[name])[:_SORTED]


def layout_of(spark: SparkSession, view: View) -> Layout:
    """The layout that Spark's own analysis of the view gives; no job runs."""
    columns = columns_of(spark, view)
    if view.root.is_linear:
        return Layout(view, columns, tuple((name, _storable(kind)) for name, kind in columns))
    # The inputs of stages do not matter: their types are known.
    read = (relation.table for block in view.blocks for relation in block.relations)
    contents = block_contents(view.root, _empty_tables(spark, read))
    inputs = [each.rows_of(contents) for each in view.root.inputs]
    state = view.root.state_from(inputs)
    types = dict(state.frame.dtypes)
    if exact := [checked_expr(sql).alias(name) for name, sql in view.root.state_types.items()]:
        types |= dict(inputs[0].frame.agg(*exact).dtypes)
    reason, hint = view.root.refusal(types)
    if reason:
        raise UnsupportedError(reason, subject=owner(view.name), hint=hint)
    return Layout(view, columns, tuple((name, _storable(types[name])) for name in view.root.state_columns))


def _storable(kind: str) -> str:
    """The type that a value is stored with: NULL without a type has any."""
    return "boolean" if kind == _UNTYPED else kind


def columns_of(spark: SparkSession, view: View) -> Columns:
    """The columns that a reader sees, as Spark's analysis of the view's own text has them."""
    with view_sql(spark, view.exact_sql, empty_frames(spark, view.named_tables)) as shown:
        return _columns(view, shown)


def empty_frames(spark: SparkSession, tables: Iterable[Table]) -> dict[str, DataFrame]:
    """Each table, or view that is read as one, without rows."""
    return {name: bag.frame.drop(COUNT) for name, bag in _empty_tables(spark, tables).items()}


def _columns(view: View, shown: DataFrame) -> Columns:
    """The reader's columns with the types that Spark gives them; refuses what no table can hold."""
    names = view.root.output_columns
    if len(names) != len(shown.columns):
        message = f"Spark finds {len(shown.columns)} columns where rollview finds {len(names)}"
        raise ViewError(message, hint="write names that are also keywords, such as `all`, in backticks")
    for name, (_, kind) in zip(names, shown.dtypes, strict=True):
        if kind == _UNTYPED and is_stage(view.name):
            continue
        if _UNTYPED in kind:
            raise ViewError(f"the column `{name}` has no type", subject=name, hint="cast it to a type")
        try:
            arrow_schema([(name, kind)])
        except RollviewError as error:
            message = f"the column `{name}` has the type {kind}, which cannot be stored"
            is_map = kind.startswith("map<")
            hint = "write map_entries around it" if is_map else "cast it to another type"
            raise UnsupportedError(message, subject=name, hint=hint) from error
    return tuple((name, kind) for name, (_, kind) in zip(names, shown.dtypes, strict=True))


def _empty_tables(spark: SparkSession, tables: Iterable[Table]) -> dict[str, PlacedBag]:
    return {
        table.qualified: _empty_table(spark, table.columns, table.types) for table in dict.fromkeys(tables)
    }


@lru_cache(maxsize=1024)
def _empty_table(spark: SparkSession, names: tuple[str, ...], types: tuple[str, ...]) -> PlacedBag:
    """A table without rows. Each view asks for its tables several times, and each takes a while to make."""
    columns = [*zip(names, map(_storable, types), strict=True), (COUNT, "bigint")]
    return PlacedBag.of_rows(spark, arrow_schema(columns).empty_table())

"""How a view is stored: the reader's columns, `_count`, and what its operator must remember besides.

Where each row of the operator's state is shown as one row, the table has the reader's columns; columns of the
state that a reader sees anyway are stored once, all others as extra columns whose names begin with `_`. Where
that is not so, the table has the columns of the state, and readers get what the operator shows of it. The
types are those that Spark itself gives the view's SQL, so that a stored view is what a recomputation would
have written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from rollview.algebra.bag import COUNT
from rollview.algebra.expression import Column, to_sql
from rollview.algebra.history import CSN
from rollview.algebra.node import Node
from rollview.algebra.view import View, owner
from rollview.catalog import ViewRecord
from rollview.errors import RollviewError, UnsupportedError, ViewError
from rollview.rows import Rows, arrow_schema
from rollview.service.comparison import expanded, named
from rollview.service.content import block_contents, with_stages
from rollview.service.view_sql import view_sql
from rollview.spark import SparkBag

Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Layout:
    """`columns` is what a reader sees, `state` what the algebra computes with, both with Spark SQL types."""

    root: Node
    columns: Columns
    state: Columns

    @classmethod
    def of_record(cls, view: View, record: ViewRecord) -> Layout:
        """The layout of a view that has been loaded."""
        return cls(view.root, record.columns, record.stored)

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the reader's columns."""
        return tuple(kind for _, kind in self.columns)

    @property
    def shows_rows(self) -> bool:
        """Whether the table has the reader's columns."""
        return self.root.shown is not None

    @cached_property
    def stored_name(self) -> dict[str, str]:
        """For each column of the state the column of the stored table that holds it."""
        types = dict(self.columns)
        shown = {
            expression.name: name
            for name, expression in self.root.shown or ()
            if isinstance(expression, Column) and (expression.name, types[name]) in self.state
        }
        if not self.shows_rows:
            return {name: name for name, _ in self.state}
        return {name: shown.get(name, f"_{name.lstrip('_')}") for name, _ in self.state}

    @cached_property
    def stored(self) -> Columns:
        """The columns of the view's table."""
        shown = self.columns if self.shows_rows else self.state
        names = {name for name, _ in shown}
        hidden = [(self.stored_name[name], kind) for name, kind in self.state]
        return (*shown, (COUNT, "bigint"), *((name, kind) for name, kind in hidden if name not in names))

    @cached_property
    def delta(self) -> Columns:
        """The columns of the view's delta table: the state's, with the csn."""
        return (*self.state, (COUNT, "bigint"), (CSN, "bigint"))

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The state's columns that the stored table is sorted by; the first one prunes files."""
        return self.root.key[:3]

    def to_stored(self, state: SparkBag) -> DataFrame:
        """The table's rows for a state."""
        typed = self.typed(state).frame
        if self.root.is_linear or not self.shows_rows:
            return typed.select(*[named(name) for name, _ in self.stored])
        outputs = dict(self.root.shown or ())
        columns: list[SparkColumn] = [
            f.expr(to_sql(outputs[name])).cast(kind).alias(name) for name, kind in self.columns
        ]
        shown = {name for name, _ in self.columns}
        hidden = [named(name).alias(s) for name, s in self.stored_name.items() if s not in shown]
        return typed.select(*columns, f.col(COUNT), *hidden)

    def to_state(self, rows: SparkBag) -> SparkBag:
        """The state that a table's rows hold."""
        return rows.project([(name, Column(stored)) for name, stored in self.stored_name.items()])

    def typed(self, bag: SparkBag, *extra: str) -> SparkBag:
        """A state, or a delta with its csn, with exactly the types it is stored with."""
        if bag.is_at_driver:
            types = (*self.state, (COUNT, "bigint"), *((name, "bigint") for name in extra))
            schema = arrow_schema(types)
            table = bag.table().select(schema.names)
            if table.schema.equals(schema):
                return bag
        columns = [named(name).cast(kind).alias(name) for name, kind in self.state]
        return SparkBag(bag.frame.select(*columns, *map(named, extra), f.col(COUNT).cast("bigint")))

    def present(self, rows: DataFrame) -> DataFrame:
        """What a reader sees of the table's rows: each as often as it counts."""
        return expanded(SparkBag(rows.select(*[named(name) for name, _ in self.columns], COUNT)))


def layout_of(spark: SparkSession, view: View) -> Layout:
    """The layout that Spark's own analysis of the view gives; no job runs."""
    empty = {table.qualified: _empty(spark, table.columns, table.types) for table in view.named_tables}
    names = view.root.output_columns
    frames = {name: bag.frame.drop(COUNT) for name, bag in empty.items()}
    with view_sql(spark, view.sql, frames) as shown:
        columns = _columns(names, shown)
    if view.root.is_linear:
        return Layout(view.root, columns, columns)
    contents = block_contents(view.root, with_stages(view, empty))
    inputs = [each.rows_of(contents) for each in view.root.inputs]
    state = view.root.state_from(inputs)
    types = dict(state.frame.dtypes)
    if exact := [f.expr(sql).alias(name) for name, sql in view.root.state_types.items()]:
        types |= dict(inputs[0].frame.agg(*exact).dtypes)
    reason, hint = view.root.refusal(types)
    if reason:
        raise UnsupportedError(reason, subject=owner(view.name), hint=hint)
    return Layout(view.root, columns, tuple((name, types[name]) for name in view.root.state_columns))


def _columns(names: Sequence[str], shown: DataFrame) -> Columns:
    """The reader's columns with the types that Spark gives them; refuses what no table can hold."""
    if len(names) != len(shown.columns):
        message = f"Spark finds {len(shown.columns)} columns where rollview finds {len(names)}"
        raise ViewError(message, hint="write names that are also keywords, such as `all`, in backticks")
    for name, (_, kind) in zip(names, shown.dtypes, strict=True):
        if "void" in kind:
            raise ViewError(f"the column `{name}` has no type", subject=name, hint="cast it to a type")
        try:
            arrow_schema([(name, kind)])
        except RollviewError as error:
            message = f"the column `{name}` has the type {kind}, which cannot be stored"
            raise UnsupportedError(message, subject=name, hint="cast it to another type") from error
    return tuple((name, kind) for name, (_, kind) in zip(names, shown.dtypes, strict=True))


def _empty(spark: SparkSession, names: Sequence[str], types: Sequence[str]) -> SparkBag:
    schema = arrow_schema([*zip(names, types, strict=True), (COUNT, "bigint")])
    rows: Rows = schema.empty_table()
    return SparkBag.of_rows(spark, rows)

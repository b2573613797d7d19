"""define: the views as the files have them now, over the tables as the sources have them now, with types.

Nothing is changed by it, so that bad input is found before anything is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rollview.algebra.expression import Column, Expression, to_sql
from rollview.algebra.relation import Table
from rollview.algebra.view import View, is_stage
from rollview.catalog import Catalog, ViewRecord
from rollview.config.project_file import ProjectFile
from rollview.errors import InputError, JavaMissing, RollviewError, UnsupportedError, ViewError
from rollview.imports import deferred
from rollview.planning import UNTYPED, starred_names
from rollview.runtime.session import Session, check_declared
from rollview.runtime.sites import Sites
from rollview.sources.source import Source
from rollview.spark.gate import type_of
from rollview.sql.statement import declared
from rollview.sql.text.declaration import ListedColumn, at
from rollview.views.content import view_sql
from rollview.views.layout import Layout, columns_of, empty_frames, layout_of
from rollview.views.lookup import as_set_up, used_tables
from rollview.views.mistakes import Mistakes
from rollview.views.properties import as_table, is_full, parse_text
from rollview.views.view_files import (
    ViewText,
    in_file,
    in_order,
    read_one_file,
    read_project_views,
)

if TYPE_CHECKING:
    from pyspark import errors as spark_errors
    from pyspark.sql import SparkSession
else:
    spark_errors = deferred("pyspark.errors")


@dataclass(frozen=True)
class Defined:
    """A view as its file has it, and how it will be stored."""

    view: View
    layout: Layout
    path: Path


def define(
    project: ProjectFile, sites: Sites, session: Session, records: Mapping[str, ViewRecord]
) -> dict[str, Defined]:
    """All views of the project's files with their stages, dependencies first; all mistakes are reported.

    `records` are the views as they were set up, if they were.
    """
    mistakes = Mistakes(project.folder)
    views = define_correct(project, sites, session, records, mistakes)
    mistakes.check()
    return views


def define_one(project: ProjectFile, sites: Sites, session: Session, path: Path) -> Defined:
    """The view of one file that need not be the project's; others that it reads are the project's own."""
    mistakes = Mistakes(project.folder)
    found = read_one_file(project, path, mistakes)
    mistakes.check()
    if len(found) != 1:
        names = ", ".join(found) or "none"
        message = f"{path.name} has to create one view that is stored, and these are: {names}"
        raise InputError(message, subject=path.name, hint="give each a file of its own")
    (only,) = found.values()
    texts = read_project_views(project, Mistakes(project.folder))
    needed, waiting = {only.name: only}, list(only.reads)
    while waiting:
        name = waiting.pop()
        if name in texts and name not in needed:
            needed[name] = texts[name]
            waiting += texts[name].reads
    views = _define_texts(in_order(needed), sites, session, {}, mistakes)
    mistakes.check()
    return views[only.name]


def define_correct(
    project: ProjectFile,
    sites: Sites,
    session: Session,
    records: Mapping[str, ViewRecord],
    mistakes: Mistakes,
) -> dict[str, Defined]:
    """The views in which there is no mistake, and which read none that has one; mistakes are noted."""
    return _define_texts(read_project_views(project, mistakes), sites, session, records, mistakes)


def _define_texts(
    texts: Mapping[str, ViewText],
    sites: Sites,
    session: Session,
    records: Mapping[str, ViewRecord],
    mistakes: Mistakes,
) -> dict[str, Defined]:
    tables = _source_tables(sites, mistakes)
    views: dict[str, Defined] = {}
    no_java: JavaMissing | None = None
    for text in texts.values():
        if mistakes.concern(text.reads):
            mistakes.skip(text.name)
            continue
        try:
            with mistakes.noted(text.name), in_file(text.path):
                before = as_set_up(records.get(text.name), text.sql, tables)
                parts, as_read = _define_view(text, tables | before, views, session)
                views |= parts
                tables[as_read.name] = as_read
        except JavaMissing as error:
            no_java = error
            mistakes.skip(text.name)
    if no_java is not None:
        # Mistakes that are found without Spark are reported without it.
        mistakes.check()
        raise no_java
    return views


def _source_tables(sites: Sites, mistakes: Mistakes) -> dict[str, Table]:
    """The tables of all sources that can be asked."""
    sources: Mapping[str, Source] | None = None
    with mistakes.noted():
        sources = sites.sources
    if sources is None:
        # A source that cannot even be opened: nothing more can be said about the views.
        mistakes.check()
    tables: dict[str, Table] = {}
    for name, source in (sources or {}).items():
        with mistakes.noted(f"{name}.", kind=RollviewError):
            tables |= {table.qualified: table for table in source.tables()}
    return tables


def _define_view(
    text: ViewText, tables: Mapping[str, Table], views: Mapping[str, Defined], session: Session
) -> tuple[dict[str, Defined], Table]:
    """A view with its stages, over the columns that it uses; and as a table that others can read."""
    view = parse_text(text, tables, UNTYPED)
    check_declared(session.spark, text.sql, session.functions)
    used = used_tables(view, tables.values())
    if any(used[table.qualified] != table for table in view.named_tables if table.source):
        # First over all columns: what Spark does not accept there is said better.
        columns_of(session.spark, view)
    analysis = SparkTypes(session)
    view = parse_text(text, {**tables, **used}, analysis)
    as_read = as_table(view, analysis.of_stage(view))
    _check_listed(session.spark, view, as_read.types)
    parts: dict[str, Defined] = {}
    for part in view.stored_parts:
        inputs = [table.name for table in part.tables if not table.source]
        _check_inputs(part, {name: (parts.get(name) or views[name]).view for name in inputs})
        parts[part.name] = Defined(part, analysis.layouts[part.name], text.path)
    return parts, as_read


def _check_listed(spark: SparkSession, view: View, types: tuple[str, ...]) -> None:
    """Refuses a column list with types unless it says what the query gives."""
    declaration = declared(view.sql)
    if declaration is None or not declaration.has_types:
        return
    with view_sql(spark, view.exact_sql, empty_frames(spark, view.named_tables)) as shown:
        given = shown.columns
    listed = declaration.columns
    if [each.name.lower() for each in listed] != [each.lower() for each in given]:
        message = f"the columns are {', '.join(each.name for each in listed)} in the list, and in the query"
        hint = "list the columns of the query in its order; a list without types gives them other names"
        raise at(view.sql, listed[0].start, ViewError(f"{message} {', '.join(given)}", hint=hint))
    for column, kind in zip(listed, types, strict=True):
        wanted = _type_of(spark, view.sql, column)
        if wanted != kind:
            message = f"the column `{column.name}` is {wanted} in the list, and {kind} in the query"
            hint = f"list it as {kind.upper()}, or cast it in the query"
            raise at(view.sql, column.start, ViewError(message, subject=column.name, hint=hint))


def _type_of(spark: SparkSession, sql: str, column: ListedColumn) -> str:
    """The type of a column of the list, as Spark names it."""
    try:
        return type_of(spark, f"CAST(NULL AS {column.kind})", {})
    except (spark_errors.ParseException, spark_errors.AnalysisException):
        message = f"the column `{column.name}` has the type {column.kind}, which Spark does not know"
        raise at(sql, column.start, ViewError(message, subject=column.name)) from None


class SparkTypes:
    """Asks Spark's analyzer; keeps the layouts that it was asked for. No job runs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.layouts: dict[str, Layout] = {}

    def of_stage(self, stage: View) -> tuple[str, ...]:
        """The types of a stage's columns, or of a whole view's."""
        self.layouts[stage.name] = layout_of(self._session.spark, stage)
        return self.layouts[stage.name].types

    def of_expression(self, part: str, expression: Expression, columns: Mapping[str, str]) -> str:  # noqa: ARG002
        """The type; empty where Spark does not accept the expression, which it will say of the whole view."""
        named = {to_sql(Column(name)): kind for name, kind in columns.items()}
        try:
            return type_of(self._session.spark, to_sql(expression), named)
        except spark_errors.AnalysisException:
            return ""


def _check_inputs(view: View, inputs: Mapping[str, View]) -> None:
    """A view that has no delta cannot feed one that lives on deltas."""
    for name, read in inputs.items():
        if is_full(read) and not is_full(view):
            message = f"view {view.name} is maintained by deltas, but {name}, which it reads, has none"
            hint = "give both the policy deferred, or both snapshot"
            raise UnsupportedError(message, subject=name, hint=hint)


# Columns that came to a table after `setup`, and that a view with `SELECT *` does therefore not show.
#
# `run` asks the sources of such views for their tables, with the other chores that it has once a minute. The
# catalog keeps what they said, so that `status` asks nobody.


@dataclass(frozen=True)
class ColumnWatch:
    """Notes which columns the tables have at their sources."""

    catalog: Catalog
    sites: Sites

    def poll(self) -> None:
        """Asks the sources of views that say `SELECT *`, and no others."""
        records = [record for name, record in self.catalog.views.all().items() if not is_stage(name)]
        sources = {table.source for record in records for table in _starred(record)}
        found: dict[str, tuple[str, ...]] = {}
        for name in sorted(sources & self.sites.sources.keys()):
            # Capture reports a source that does not answer.
            with suppress(RollviewError):
                found |= {table.qualified: table.columns for table in self.sites.sources[name].tables()}
        known = self.catalog.captured.present_columns()
        new = {name: found[name] for name in known.keys() & found.keys() if known[name] != found[name]}
        if new:
            self.catalog.captured.note_columns(new)


def new_columns(record: ViewRecord, present: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The columns that the view would show if it were set up today, as `source.table.column`."""
    return tuple(
        f"{table.qualified}.{column}"
        for table in _starred(record)
        for column in present.get(table.qualified, ())
        if column not in table.columns
    )


def _starred(record: ViewRecord) -> Iterator[Table]:
    """The base tables of which a view shows all columns."""
    names = {name.lower() for name in starred_names(record.sql)}
    return (table for table in record.tables if table.qualified.lower() in names)

"""What a view is made of, by names that are known outside: datasets as OpenLineage names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.catalog import ViewRecord
from rollview.errors import RollviewError
from rollview.planning import ColumnLineage, column_lineage
from rollview.service.definitions import policy_of
from rollview.service.lake_tables import LakeTables
from rollview.service.sites import Sites
from rollview.sources.source import NamesDatasets

LAKE = "file"
"""The namespace of tables in a folder of this machine."""


@dataclass(frozen=True)
class Dataset:
    """A table: where it is, what it is called there, and its columns with their Spark SQL types."""

    namespace: str
    name: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ViewLineage:
    """A view: what it reads, by the names that its text has for it; its own table; which column is made of
    which. `columns` is None where the text cannot be resolved.
    """

    view: str
    sql: str
    policy: str
    inputs: Mapping[str, Dataset]
    output: Dataset
    columns: ColumnLineage | None


def lineage_of(view: View, record: ViewRecord, tables: LakeTables, sites: Sites) -> ViewLineage:
    """The lineage of a view as it is set up."""
    return ViewLineage(
        view.name,
        view.sql,
        policy_of(view),
        {table.qualified: _input(table, tables, sites) for table in view.named_tables},
        Dataset(LAKE, _place(view.name, tables), record.columns),
        column_lineage(view.exact_sql, view.named_tables, view.root.output_columns),
    )


def _input(table: Table, tables: LakeTables, sites: Sites) -> Dataset:
    columns = tuple(zip(table.columns, table.types or ("",) * len(table.columns), strict=True))
    if not table.source:
        return Dataset(LAKE, _place(table.name, tables), columns)
    try:
        source = sites.source_at(table.source)
        kind = source.kind
        if isinstance(source, NamesDatasets):
            return Dataset(*source.dataset(table.name), columns)
    except RollviewError:
        # A source that cannot be opened now, or that the project file has no more.
        kind = "rollview"
    return Dataset(f"{kind}://{table.source}", table.name, columns)


def _place(view: str, tables: LakeTables) -> str:
    return str(tables.of_view(view, 1).rows.folder.absolute())

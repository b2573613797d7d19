"""The graph of sources, relations, views and views over views, and how far each edge has come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rollview.algebra.relation import Table
from rollview.algebra.view import View, is_stage
from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import Standing, ViewRecord
from rollview.errors import RollviewError
from rollview.planning import ColumnLineage, column_lineage
from rollview.runtime.sites import Sites
from rollview.sources.source import NamesDatasets
from rollview.storage.lake_tables import LakeTables
from rollview.views.properties import policy_of

Kind = Literal["source", "relation", "view"]


@dataclass(frozen=True)
class LineageNode:
    """A source, a relation or a view; `layer` counts from the sources, so that every edge goes up."""

    kind: Kind
    name: str
    layer: int
    csn: int


@dataclass(frozen=True)
class LineageEdge:
    """The target is computed from the origin, up to a csn."""

    origin: tuple[Kind, str]
    target: tuple[Kind, str]
    csn: int


@dataclass(frozen=True)
class Lineage:
    """The graph of a project, layer by layer."""

    last_csn: int
    nodes: tuple[LineageNode, ...]
    edges: tuple[LineageEdge, ...]


def lineage(moment: Standing, views: Mapping[str, View]) -> Lineage:
    """The whole project."""
    last, known = moment.last_csn, {name: v for name, v in views.items() if name in moment.views()}
    nodes: dict[tuple[Kind, str], LineageNode] = {}
    edges: dict[tuple[tuple[Kind, str], tuple[Kind, str]], int] = {}
    for table, site in moment.site_of.items():
        source = site.partition(".")[0]
        nodes["source", source] = LineageNode("source", source, 0, last)
        nodes["relation", table] = LineageNode("relation", table, 1, last)
        edges[("source", source), ("relation", table)] = last
    for name, view in known.items():
        if is_stage(name):
            continue
        target: tuple[Kind, str] = ("view", name)
        for origin, csn in _read(view, moment):
            edges[origin, target] = min(csn, edges.get((origin, target), csn))
        below = [nodes[origin].layer for origin, to in edges if to == target and origin in nodes]
        nodes[target] = LineageNode(
            "view", name, max(below, default=1) + 1, moment.views()[name].materialized_csn
        )
    return Lineage(
        last,
        tuple(nodes.values()),
        tuple(LineageEdge(origin, target, csn) for (origin, target), csn in edges.items() if origin in nodes),
    )


def _read(view: View, moment: Standing) -> Iterator[tuple[tuple[Kind, str], int]]:
    """The inputs of a view, those of its stages included, and how far their changes have been propagated."""
    shown = moment.views()[view.name].materialized_csn
    for part in view.stored_parts:
        positions = moment.positions(part.name)
        for number, block in enumerate(part.blocks):
            for place, relation in enumerate(block.relations):
                table = relation.table
                if not table.source and is_stage(table.name):
                    continue
                whole = positions.get(ForwardQuery(part.name, number, None), shown)
                csn = positions.get(ForwardQuery(part.name, number, place), whole)
                yield ("relation" if table.source else "view", table.qualified), csn
    if not view.stores_stages:
        for table in view.named_tables:
            yield ("relation" if table.source else "view", table.qualified), shown


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
    """A view: its inputs, by the names in its text; its own table; which columns each column is computed
    from. `columns` is None where the text cannot be resolved.
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
        # A source that cannot be opened now, or is no longer in the project file.
        kind = "rollview"
    return Dataset(f"{kind}://{table.source}", table.name, columns)


def _place(view: str, tables: LakeTables) -> str:
    return tables.of_view(view, 1).rows.address

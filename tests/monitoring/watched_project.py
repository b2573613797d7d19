"""A project whose catalog says that views are set up and transactions captured; no Spark has seen it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from rollview.algebra.relation import Table
from rollview.catalog import (
    CaptureStep,
    Catalog,
    LoadStep,
    Part,
    Refresh,
    Refreshed,
    Sequenced,
    Unit,
    ViewAdded,
    ViewRecord,
)
from rollview.planning import UNTYPED
from rollview.project.project import Project
from rollview.views.properties import algorithm_of, as_table, digest, is_full, parse_definition
from rollview.views.resumable import histories_of

TABLES = {
    "crm.customer": Table(
        "crm", "customer", ("cust_id", "state", "segment"), ("cust_id",), types=("bigint", "string", "string")
    ),
    "shop.sales": Table(
        "shop", "sales", ("sale_id", "cust_id", "amount"), ("sale_id",), types=("bigint", "bigint", "bigint")
    ),
}
SECRET = "hunter2-of-the-shop"
ORIGINS = {"crm": ("crm", "0"), "shop": ("shop", "0")}
SOLD = (
    "CREATE MATERIALIZED VIEW {name} {properties} AS SELECT s.sale_id, c.state, s.amount"
    " FROM shop.sales s JOIN crm.customer c ON s.cust_id = c.cust_id"
)


def view_text(name: str, properties: str = "") -> str:
    """A join of both sources."""
    return SOLD.format(name=name, properties=f"TBLPROPERTIES ({properties})" if properties else "")


def write_project(folder: Path, **settings: str) -> Path:
    """A project file over two SQLite files, which are there."""
    folder.mkdir(parents=True)
    for name, table in (("crm", "customer"), ("shop", "sales")):
        with sqlite3.connect(folder / f"{name}.db") as connection:
            connection.execute(f"CREATE TABLE {table} (a INTEGER)")
        connection.close()
    lines = ["name: watched", "sources:"]
    lines += [f"  {name}: {{type: sqlite, path: ./{name}.db}}" for name in ORIGINS]
    lines += [f"{key}: {value}" for key, value in settings.items()]
    (folder / "rollview.yml").write_text("\n".join(lines) + "\n")
    return folder


def catalog_of(project: Project) -> Catalog:
    """The catalog that the project uses."""
    return project._warehouse.catalog


def add_views(catalog: Catalog, texts: Mapping[str, str]) -> None:
    """Says of views that they are loaded at csn 0, dependencies first."""
    known = dict(TABLES)
    catalog.captured.register(list(TABLES.values()), ORIGINS)
    for name, sql in texts.items():
        view = parse_definition(sql, known, name, UNTYPED)
        known[name] = as_table(view)
        for part in view.stored_parts:
            columns = tuple((column, "string") for column in part.root.output_columns)
            base = tuple(table for table in part.tables if table.source)
            record = ViewRecord(
                part.name, part.sql, digest(part), columns, columns, 0, 0, 0, 0, 0, "deferred", tables=base
            )
            histories = histories_of(part, catalog.now)
            positions = () if is_full(part) else algorithm_of(part).positions(part)
            with catalog.lease(f"propagate:{part.name}") as lease:
                step = catalog.steps.begin(lease, part.name, LoadStep())
                record = ViewRecord(**{**vars(record), "histories": histories})
                done = Refreshed(Refresh(part.name, "full", 0, 0, 0, 0.1, "new", 1.0))
                catalog.steps.finish(lease, step, ViewAdded(record, dict.fromkeys(positions, 0)), done)


def commit(catalog: Catalog, times: Sequence[float], table: str = "shop.sales") -> None:
    """Transactions that change one row of a table each, captured as one step."""
    site = table.partition(".")[0]
    last, version = catalog.history.last_csn(), catalog.captured.sites()[site].version
    units = tuple(
        Unit(last + n, when, (Part(site, version + n, version + n),), {table: 1})
        for n, when in enumerate(times, 1)
    )
    with catalog.lease("capture") as lease:
        step = catalog.steps.begin(lease, "", CaptureStep(sites={}, units=(), versions={}))
        catalog.steps.finish(lease, step, Sequenced(units, {site: f"after {version + len(times)}"}))

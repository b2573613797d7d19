"""A small world for the catalog's tests: two sites with three tables, and units of work made of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from sqlalchemy import text

from rollview.algebra.history import Change, Transaction, UnitOfWork
from rollview.algebra.relation import Table
from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import CaptureStep, Catalog, Part, Sequenced, Unit, ViewRecord
from rollview.catalog.database import Database
from rollview.lab.memory.history import History
from servers.postgres import shared_server

TABLES = (
    Table("x", "r", ("a", "b"), key=("a",), types=("int", "string")),
    Table("x", "s", ("c",), types=("bigint",)),
    Table("y", "t", ("d",), types=("decimal(9,2)",), own_log=True),
)
DEAR_ON_POSTGRES = ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)]
"""Parameters of `url` and `template`, for a test of many questions."""

_NUMBERS = itertools.count()
NAMES = tuple(table.qualified for table in TABLES)
SITES = ("x", "y.t")
SITE_OF = {table.qualified: table.site for table in TABLES}
ORIGINS = {"x": ("x", "x0"), "y.t": ("y", "y0")}
NO_CAPTURE = CaptureStep(sites={}, units=(), versions={})
"""For tests that care only about what a capture leaves behind."""


@dataclass(frozen=True)
class Plan:
    """A unit of work before it has numbers: source txids by site, rows by table, time since the last one."""

    source_txids: dict[str, int]
    rows: dict[str, int]
    later: float = 1.0


@dataclass
class Both:
    """The same units as the catalog wants them and as the algebra has them, and the plain facts."""

    units: list[Unit] = field(default_factory=list)
    history: History = field(default_factory=lambda: History(dict.fromkeys(NAMES, ("a",)), SITES))

    def add(self, plan: Plan) -> None:
        """Numbers a plan and adds it to both."""
        csn = len(self.units) + 1
        time = (self.units[-1].commit_time if self.units else 100.0) + plan.later
        rows = {table: count for table, count in plan.rows.items() if SITE_OF[table] in plan.source_txids}
        parts, transactions = [], []
        for site, source_txid in plan.source_txids.items():
            version = self.history.version_at(site, csn) + 1
            parts.append(Part(site, version, source_txid, f"tx{source_txid}"))
            changes = [
                Change(table, (n,), 1)
                for table, count in rows.items()
                if SITE_OF[table] == site
                for n in range(count)
            ]
            transactions.append(Transaction(site, version, tuple(changes)))
        self.units.append(Unit(csn, time, tuple(parts), rows))
        self.history.append(UnitOfWork(csn, time, tuple(transactions)))


def capture(catalog: Catalog, units: Sequence[Unit]) -> None:
    """Hands units over as one finished step of capture."""
    log_positions = {part.site: f"after {part.source_txid}" for unit in units for part in unit.parts}
    with catalog.lease("capture") as lease:
        step = catalog.steps.begin(lease, "", NO_CAPTURE)
        catalog.steps.finish(lease, step, Sequenced(tuple(units), log_positions))


def by_hand(url: str, *statements: str, **values: Any) -> list[dict[str, Any]]:
    """Statements that no catalog makes, in one transaction; the rows of the last one."""
    database = Database(url)
    try:
        with database.writing() as connection:
            for statement in statements:
                done = connection.execute(text(statement), values)
            return [dict(row) for row in done.mappings()] if done.returns_rows else []
    finally:
        database.close()


@contextmanager
def postgres_database(template: str = "template0") -> Iterator[str]:
    """The address of a database of its own, which sorts text as people do unless it is a copy of another."""
    name, server = f"Catalog-{next(_NUMBERS)}", shared_server()
    sorts = "" if template != "template0" else "LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C'"
    server.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" {sorts}')
    yield server.dsn(name)
    server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


class Template:
    """An empty catalog with the tables registered, copied for each of many examples."""

    def __init__(self, url: str) -> None:
        self._url = url
        catalog = Catalog.open(url)
        catalog.captured.register(TABLES, ORIGINS)
        catalog.close()

    @contextmanager
    def copy(self) -> Iterator[Catalog]:
        """A catalog of its own."""
        with self._copy() as url:
            catalog = Catalog.open(url)
            try:
                yield catalog
            finally:
                catalog.close()

    @contextmanager
    def _copy(self) -> Iterator[str]:
        if not self._url.startswith("sqlite"):
            with postgres_database(self._url.rpartition("/")[2]) as url:
                yield url
            return
        with TemporaryDirectory() as folder:
            copyfile(self._url.removeprefix("sqlite:///"), f"{folder}/catalog.db")
            yield f"sqlite:///{folder}/catalog.db"


def view_record(name: str = "v", loaded: int = 0) -> ViewRecord:
    """A view that was loaded at a csn."""
    return ViewRecord(
        name=name,
        sql=f"SELECT a, count(*) AS n FROM x.r AS {name} GROUP BY a",
        digest="d1",
        columns=(("a", "int"), ("n", "bigint")),
        stored=(("a", "int"), ("_rows", "bigint")),
        loaded_csn=loaded,
        oldest_csn=loaded,
        materialized_csn=loaded,
        lake_version=1,
        state_version=1,
        policy="dpda",
    )


def queries(view: str = "v") -> dict[ForwardQuery, int]:
    """Two forward queries of relations and one of a whole block, all at csn 0."""
    return {ForwardQuery(view, 0, 0): 0, ForwardQuery(view, 0, 1): 0, ForwardQuery(view, 1): 0}

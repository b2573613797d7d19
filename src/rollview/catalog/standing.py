"""The standing of the project, read at one moment by a few statements, however many views there are.

Status, page and metrics read it again and again. A `Standing` returns what the catalog's own methods
of the same names return, each of which is a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection, func, select

from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import captured, faults, global_transactions, history, schema, views
from rollview.catalog.consumers import read_consumers
from rollview.catalog.database import Database
from rollview.catalog.records import Consumer, Fault, Site, TableHistory, ViewRecord, Waiting

SCOPES = ("site", "table", "view")


@dataclass(frozen=True)
class Holder:
    """The process that holds a lease, and since when."""

    host: str
    pid: int
    since: float
    expires_at: float


@dataclass(frozen=True)
class Standing:
    """The catalog at one moment."""

    last_csn: int
    last_commit_time: float | None
    first_csn: int
    """The first one that is kept."""
    site_of: Mapping[str, str]
    """The site of each captured table."""
    run: Holder | None
    """The holder of the lease of `run`."""
    waiting: tuple[Waiting, ...]
    consumers: tuple[Consumer, ...]
    _sites: dict[str, Site] = field(repr=False)
    _views: dict[str, ViewRecord] = field(repr=False)
    _positions: Mapping[str, dict[ForwardQuery, int]] = field(repr=False)
    _histories: dict[str, TableHistory] = field(repr=False)
    _faults: Mapping[str, dict[str, Fault]] = field(repr=False)

    def sites(self) -> dict[str, Site]:
        return self._sites

    def views(self) -> dict[str, ViewRecord]:
        """The views by name, stages included."""
        return self._views

    def positions(self, view: str) -> dict[ForwardQuery, int]:
        """How far each forward query of a view has come."""
        return self._positions.get(view, {})

    def high_water(self, view: str) -> int:
        """The csn up to which a view's delta is complete."""
        return min(self.positions(view).values(), default=self._views[view].materialized_csn)

    def histories(self) -> dict[str, TableHistory]:
        return self._histories

    def faults(self, scope: str) -> dict[str, Fault]:
        """The faults of sites, tables or views, by name."""
        return self._faults[scope]


@dataclass(frozen=True)
class Now:
    """The catalog as it is now, asked as a `Standing` is."""

    database: Database

    def views(self) -> dict[str, ViewRecord]:
        with self.database.reading() as connection:
            return views.read_views(connection)

    def positions(self, view: str) -> dict[ForwardQuery, int]:
        with self.database.reading() as connection:
            return views.read_positions(connection, view)

    def histories(self) -> dict[str, TableHistory]:
        with self.database.reading() as connection:
            return captured.read_histories(connection)

    def faults(self, scope: str) -> dict[str, Fault]:
        with self.database.reading() as connection:
            return faults.read_faults(connection, scope)


def read_standing(connection: Connection) -> Standing:
    """All of it, as one transaction sees it."""
    last, tables = history.last_csn(connection), schema.captured_table.c
    return Standing(
        last_csn=last,
        last_commit_time=history.commit_time(connection, last),
        first_csn=connection.scalar(select(func.min(schema.unit_of_work.c.csn))) or 0,
        site_of={row.name: row.site for row in connection.execute(select(tables.name, tables.site))},
        run=holder_of_run(connection),
        waiting=tuple(global_transactions.read_waiting(connection)),
        consumers=tuple(read_consumers(connection)),
        _sites=captured.read_sites(connection),
        _views=views.read_views(connection),
        _positions=views.read_all_positions(connection),
        _histories=captured.read_histories(connection),
        _faults={scope: faults.read_faults(connection, scope) for scope in SCOPES},
    )


def holder_of_run(connection: Connection) -> Holder | None:
    """Reads the holder of the lease of `run`."""
    row = connection.execute(select(schema.lease).where(schema.lease.c.name == "run")).first()
    if row is None or row.pid is None:
        return None
    return Holder(row.host, row.pid, row.acquired_at, row.expires_at)

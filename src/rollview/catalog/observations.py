"""What somebody who watches wants to know, in few questions that never read the whole history.

A page asks for all views at once, and again every second. So everything that is small is read in one
transaction; what is large is found by an index, a row or a page of rows at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, column, func, select, values

from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import captured, faults, history, schema, views
from rollview.catalog.database import Database
from rollview.catalog.records import (
    Fault,
    Part,
    PropagatedInterval,
    Refresh,
    Site,
    TableHistory,
    Unit,
    ViewRecord,
)

_unit, _part, _touch = schema.unit_of_work.c, schema.part.c, schema.touch.c
_refresh, _interval, _lease = schema.refresh.c, schema.interval.c, schema.lease.c

_AT_ONCE = 500
"""Numbers in one IN list; databases limit the parameters of a statement."""


@dataclass(frozen=True)
class Holder:
    """The process that holds a lease, and since when."""

    host: str
    pid: int
    since: float
    expires_at: float


@dataclass(frozen=True)
class Moment:
    """The small control tables as they were at one moment."""

    last_csn: int
    last_commit_time: float | None
    first_csn: int
    """The first one that is kept."""
    sites: Mapping[str, Site]
    site_of: Mapping[str, str]
    """The site of each captured table."""
    table_histories: Mapping[str, TableHistory]
    records: Mapping[str, ViewRecord]
    forward: Mapping[str, Mapping[ForwardQuery, int]]
    known_faults: Mapping[str, Mapping[str, Fault]]
    run: Holder | None

    def views(self) -> Mapping[str, ViewRecord]:
        """The loaded views by name."""
        return self.records

    def histories(self) -> Mapping[str, TableHistory]:
        """The history that each captured table has now."""
        return self.table_histories

    def positions(self, view: str) -> Mapping[ForwardQuery, int]:
        """How far each forward query of a view has come."""
        return self.forward.get(view, {})

    def faults(self, scope: str) -> Mapping[str, Fault]:
        """What keeps sites, tables or views from going on, by name."""
        return self.known_faults[scope]

    def high_water(self, view: str) -> int:
        """The csn up to which a view's delta is complete; without positions, what is materialized."""
        return min(self.positions(view).values(), default=self.records[view].materialized_csn)


@dataclass(frozen=True)
class RefreshedMinute:
    """What the refreshes of a view did in one stretch of time: its number, and the first and last of them."""

    number: int
    first_at: float
    from_csn: int
    to_csn: int


@dataclass(frozen=True)
class RefreshEntry:
    """A refresh, and the step that it was a part of; steps grow with time."""

    step: int
    refresh: Refresh


@dataclass(frozen=True)
class Observations:
    """Questions of those who watch."""

    database: Database

    def fingerprint(self) -> tuple[Any, ...]:
        """Something that changes whenever what `moment` tells has changed, apart from times."""
        catalog, step, fault = schema.catalog.c, schema.step.c, schema.fault.c
        waiting, site = schema.waiting.c, schema.site.c
        with self.database.reading() as connection:
            return (
                history.last_csn(connection),
                *connection.execute(select(catalog.last_step, catalog.home)).one(),
                *connection.execute(select(func.count(), func.max(step.id)).select_from(schema.step)).one(),
                *connection.execute(select(func.count(), func.max(fault.since))).one(),
                *connection.execute(select(func.count(), func.max(waiting.since))).one(),
                *connection.execute(select(func.count(), func.max(site.captured_at))).one(),
                _holder(connection) is not None,
            )

    def moment(self) -> Moment:
        """The small control tables, all as of one moment."""
        with self.database.reading() as connection:
            last = history.last_csn(connection)
            tables = schema.captured_table.c
            forward: dict[str, dict[ForwardQuery, int]] = {}
            for query, csn in views.all_positions(connection):
                forward.setdefault(query.view, {})[query] = csn
            return Moment(
                last_csn=last,
                last_commit_time=history.commit_time(connection, last),
                first_csn=connection.scalar(select(func.min(_unit.csn))) or 0,
                sites=captured.read_sites(connection),
                site_of={row.name: row.site for row in connection.execute(select(tables.name, tables.site))},
                table_histories=captured.read_histories(connection),
                records=views.read_views(connection),
                forward=forward,
                known_faults={
                    scope: faults.read_faults(connection, scope) for scope in ("site", "table", "view")
                },
                run=_holder(connection),
            )

    def next_touches(self, wanted: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """For each table and csn the first csn after it at which the table changed, if it has."""
        found: dict[tuple[str, int], int] = {}
        by_table: dict[str, set[int]] = {}
        for table, csn in wanted:
            by_table.setdefault(table, set()).add(csn)
        with self.database.reading() as connection:
            for table, csns in by_table.items():
                ordered = sorted(csns)
                for first in range(0, len(ordered), _AT_ONCE):
                    for csn, later in connection.execute(_later(table, ordered[first : first + _AT_ONCE])):
                        if later is not None:
                            found[table, csn] = later
        return found

    def since(self, site: str, tables: Sequence[str], csn: int) -> tuple[int, int]:
        """How many transactions of a site were captured after a csn, and how many rows of tables changed."""
        versions = select(_part.version).where(_part.site == site)
        with self.database.reading() as connection:
            newest = connection.scalar(versions.order_by(_part.csn.desc()).limit(1)) or 0
            reached = versions.where(_part.csn <= csn).order_by(_part.csn.desc()).limit(1)
            rows = 0
            for table in tables:
                total = select(_touch.total).where(_touch.table_name == table)
                last = connection.scalar(total.order_by(_touch.csn.desc()).limit(1)) or 0
                upto = total.where(_touch.csn <= csn).order_by(_touch.csn.desc()).limit(1)
                rows += last - (connection.scalar(upto) or 0)
            return newest - (connection.scalar(reached) or 0), rows

    def commit_times(self, csns: Iterable[int]) -> dict[int, float]:
        """When units of work were committed, of those that are kept."""
        ordered, found = sorted(set(csns)), {}
        with self.database.reading() as connection:
            for first in range(0, len(ordered), _AT_ONCE):
                among = _unit.csn.in_(ordered[first : first + _AT_ONCE])
                for row in connection.execute(select(_unit.csn, _unit.commit_time).where(among)):
                    found[row.csn] = row.commit_time
        return found

    def last_refreshes(self, names: Collection[str]) -> dict[str, Refresh]:
        """The last refresh of each of these views."""
        with self.database.reading() as connection:
            found = {name: views.read_refreshes(connection, name, 1, ()) for name in names}
        return {name: newest[0] for name, newest in found.items() if newest}

    def refreshes(self, view: str, before: int, limit: int) -> list[RefreshEntry]:
        """The refreshes of a view in steps before one (0: all), the newest first."""
        own = select(schema.refresh).where(_refresh.view_name == view)
        if before:
            own = own.where(_refresh.step < before)
        newest = own.order_by(_refresh.step.desc(), _refresh.ordinal.desc()).limit(limit)
        with self.database.reading() as connection:
            return [RefreshEntry(row.step, views.refresh_of(row)) for row in connection.execute(newest)]

    def refreshed_at(self, view: str, csn: int) -> float | None:
        """When a view first showed a csn, as far as that is remembered."""
        own = select(func.min(_refresh.finished_at)).where(_refresh.view_name == view, _refresh.to_csn >= csn)
        with self.database.reading() as connection:
            known: float | None = connection.scalar(own.where(_refresh.from_csn < csn))
            return known

    def refreshed_minutes(self, view: str, since: float, seconds: float) -> list[RefreshedMinute]:
        """The refreshes of a view since a time, those of each so many seconds together, and one before."""
        number = func.floor(_refresh.finished_at / seconds)
        if self.database.engine.dialect.name == "sqlite":
            # It may have been built without `floor`.
            number = func.round(_refresh.finished_at / seconds - 0.5)
        grouped = (
            select(
                number.label("number"),
                func.min(_refresh.finished_at).label("first_at"),
                func.min(_refresh.from_csn).label("from_csn"),
                func.max(_refresh.to_csn).label("to_csn"),
            )
            .where(_refresh.view_name == view, _refresh.finished_at >= since)
            .group_by("number")
            .order_by("number")
        )
        before = select(_refresh.finished_at, _refresh.to_csn).where(
            _refresh.view_name == view, _refresh.finished_at < since
        )
        with self.database.reading() as connection:
            first = connection.execute(before.order_by(_refresh.finished_at.desc()).limit(1)).first()
            found = [
                RefreshedMinute(int(row.number), row.first_at, row.from_csn, row.to_csn)
                for row in connection.execute(grouped)
            ]
        if first is not None:
            known = RefreshedMinute(
                int(first.finished_at // seconds), first.finished_at, first.to_csn, first.to_csn
            )
            found.insert(0, known)
        return found

    def intervals(self, names: Collection[str]) -> list[PropagatedInterval]:
        """The last intervals of the forward queries of views, in order."""
        own = select(schema.interval).where(_interval.view_name.in_(names))
        with self.database.reading() as connection:
            return [
                PropagatedInterval(
                    row.view_name, row.block, row.relation, row.after_csn, row.upto_csn, row.finished_at
                )
                for row in connection.execute(own.order_by(_interval.upto_csn))
            ]

    def units(self, before: int, limit: int, table: str = "") -> list[Unit]:
        """The units of work with a csn below one (0: the newest), the newest first; of one table or all."""
        own = select(_unit.csn, _unit.commit_time)
        if table:
            own = own.join(schema.touch, (_touch.csn == _unit.csn) & (_touch.table_name == table))
        key = _touch.csn if table else _unit.csn
        if before:
            own = own.where(key < before)
        with self.database.reading() as connection:
            rows = connection.execute(own.order_by(key.desc()).limit(limit)).all()
            return _units(connection, rows)

    def unit(self, csn: int) -> Unit | None:
        """One unit of work; None if it is not known, or not any more."""
        with self.database.reading() as connection:
            rows = connection.execute(select(_unit.csn, _unit.commit_time).where(_unit.csn == csn)).all()
            return next(iter(_units(connection, rows)), None)


def _later(table: str, csns: Sequence[int]) -> Select[Any]:
    """For each csn the first one after it at which a table changed: one look at an index for each."""
    given = values(column("csn", BigInteger)).data([(csn,) for csn in csns]).cte("given")
    own = select(_touch.csn).where(_touch.table_name == table, _touch.csn > given.c.csn)
    return select(given.c.csn, own.order_by(_touch.csn).limit(1).correlate(given).scalar_subquery())


def _units(connection: Connection, rows: Sequence[Any]) -> list[Unit]:
    """Units with their parts and the tables that they changed."""
    if not rows:
        return []
    csns = [row.csn for row in rows]
    parts: dict[int, list[Part]] = {}
    touched: dict[int, dict[str, int]] = {}
    for site in captured.read_sites(connection):
        own = select(schema.part).where(_part.site == site, _part.csn.in_(csns))
        for row in connection.execute(own):
            part = Part(
                row.site,
                row.version,
                row.source_txid,
                row.transaction_id,
                row.global_id,
                row.is_merged,
                row.place,
            )
            parts.setdefault(row.csn, []).append(part)
    for table in connection.scalars(select(schema.captured_table.c.name)).all():
        changed = select(_touch.csn, _touch.changed).where(_touch.table_name == table)
        for row in connection.execute(changed.where(_touch.csn.in_(csns))):
            touched.setdefault(row.csn, {})[table] = row.changed
    return [
        Unit(row.csn, row.commit_time, tuple(parts.get(row.csn, ())), touched.get(row.csn, {}))
        for row in rows
    ]


def _holder(connection: Connection) -> Holder | None:
    """Who holds the lease of `run`."""
    row = connection.execute(select(schema.lease).where(_lease.name == "run")).first()
    if row is None or row.pid is None:
        return None
    return Holder(row.host, row.pid, row.acquired_at, row.expires_at)

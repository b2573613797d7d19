"""Queries for status and the page: few statements that never read the whole history.

A page asks for all views at once, and again every second. Small tables are read at one moment
(`catalog/standing.py`); what is large is found here, by an index, a row or a page of rows at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, column, delete, func, insert, select, values

from rollview.catalog import captured, history, schema, views
from rollview.catalog.database import Database
from rollview.catalog.records import (
    Part,
    PropagatedInterval,
    Refresh,
    Unit,
    VerifyRecord,
)
from rollview.catalog.standing import holder_of_run

_unit, _part, _touch = schema.unit_of_work.c, schema.part.c, schema.touch.c
_refresh, _interval = schema.refresh.c, schema.interval.c

_AT_ONCE = 500
"""Numbers in one IN list; databases limit the parameters of a statement."""


@dataclass(frozen=True)
class RefreshedMinute:
    """The refreshes of a view in one stretch of time: its number, and the first and last of them."""

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
        """A value that changes whenever the result of `Catalog.standing` changes, apart from times."""
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
                holder_of_run(connection) is not None,
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
        own = _refresh.view_name == schema.view.c.name
        last = select(func.max(_refresh.step)).where(own).correlate(schema.view)
        found = select(schema.refresh).join(schema.view, own)
        found = found.where(_refresh.step == last.scalar_subquery())
        with self.database.reading() as connection:
            rows = connection.execute(found.order_by(_refresh.ordinal))
            return {row.view_name: views.refresh_of(row) for row in rows if row.view_name in names}

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


# Results of verify for each view: a record for readers, of which the newest are kept.


_own = schema.verification.c

KEPT = 200
"""Of each view."""


@dataclass(frozen=True)
class Verifications:
    """The verifications of all views."""

    database: Database
    clock: Callable[[], float]

    def note(self, found: VerifyRecord) -> None:
        """Writes a result down; its time is now."""
        row = {
            "view_name": found.view,
            "finished_at": self.clock(),
            "csn": found.csn,
            "compared": found.compared,
            "different": found.different,
            "part": found.part,
            "differences": json.dumps(found.differences),
            "seconds": found.seconds,
        }
        with self.database.writing() as connection:
            # Two at the same moment of a coarse clock: the later one counts.
            same = (_own.view_name == found.view, _own.finished_at == row["finished_at"])
            connection.execute(delete(schema.verification).where(*same))
            connection.execute(insert(schema.verification).values(**row))
            of_view = select(_own.finished_at).where(_own.view_name == found.view)
            newest = of_view.order_by(_own.finished_at.desc())
            oldest = connection.scalar(newest.offset(KEPT).limit(1))
            if oldest is not None:
                old = (_own.view_name == found.view, _own.finished_at <= oldest)
                connection.execute(delete(schema.verification).where(*old))

    def of(self, views: Sequence[str], limit: int) -> list[VerifyRecord]:
        """The last verifications of some views, the newest first."""
        found = []
        with self.database.reading() as connection:
            for view in views:
                own = select(schema.verification).where(_own.view_name == view)
                newest = own.order_by(_own.finished_at.desc()).limit(limit)
                found += [
                    VerifyRecord(
                        view=row.view_name,
                        finished_at=row.finished_at,
                        csn=row.csn,
                        compared=row.compared,
                        different=row.different,
                        part=row.part,
                        differences=tuple(json.loads(row.differences)),
                        seconds=row.seconds,
                    )
                    for row in connection.execute(newest)
                ]
        return sorted(found, key=lambda each: each.finished_at, reverse=True)[:limit]

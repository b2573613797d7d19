"""New units of work become history, if they follow on what is known without a gap or a repetition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, select, update

from rollview.catalog import history, schema
from rollview.catalog.captured import read_site, require_tables
from rollview.catalog.effects import Sequenced
from rollview.catalog.errors import CatalogError
from rollview.catalog.records import Part, Unit


@dataclass(slots=True)
class _Progress:
    """How far a site has come, while its new parts are taken in."""

    version: int
    bookmark: str
    mark: int | None
    marks_grow: bool


def keep_units(connection: Connection, effect: Sequenced, now: float) -> None:
    """Writes the units, their parts and what they touched, and moves the sites' bookmarks."""
    _require_order(connection, effect.units)
    sites = {part.site for unit in effect.units for part in unit.parts} | effect.bookmarks.keys()
    progress = {site: _progress_of(connection, site) for site in sites}
    for unit in effect.units:
        for part in unit.parts:
            _advance(progress[part.site], part)
    for site, bookmark in effect.bookmarks.items():
        progress[site].bookmark = bookmark
    _insert(connection, effect.units)
    for name, reached in progress.items():
        connection.execute(
            update(schema.site)
            .where(schema.site.c.name == name)
            .values(
                version=reached.version,
                bookmark=reached.bookmark,
                captured_at=now,
                marks_grow=reached.marks_grow,
            )
        )


def _require_order(connection: Connection, units: tuple[Unit, ...]) -> None:
    last = history.last_csn(connection)
    time = history.commit_time(connection, last)
    latest = -math.inf if time is None else time
    for unit in units:
        if unit.csn != last + 1:
            raise CatalogError(f"csn {unit.csn} cannot follow csn {last}", thing=f"csn {unit.csn}")
        if not unit.commit_time >= latest:
            raise CatalogError(
                f"csn {unit.csn} was committed at {unit.commit_time}, before the csn it follows ({latest})",
                thing=f"csn {unit.csn}",
                hint="commit times come from one clock that never runs backwards",
            )
        last, latest = unit.csn, unit.commit_time


def _progress_of(connection: Connection, name: str) -> _Progress:
    site, part = read_site(connection, name), schema.part.c
    newest = select(part.mark).where(part.site == name).order_by(part.version.desc()).limit(1)
    grows = select(schema.site.c.marks_grow).where(schema.site.c.name == name)
    return _Progress(site.version, site.bookmark, connection.scalar(newest), bool(connection.scalar(grows)))


def _advance(site: _Progress, part: Part) -> None:
    if part.version != site.version + 1:
        raise CatalogError(
            f"version {part.version} of site {part.site} cannot follow version {site.version}",
            thing=part.site,
            hint="a batch was sequenced twice, or one before it is missing",
        )
    site.marks_grow = site.marks_grow and (site.mark is None or part.mark > site.mark)
    site.version, site.mark = part.version, part.mark


def _insert(connection: Connection, units: tuple[Unit, ...]) -> None:
    if not units:
        return
    _require_new_marks(connection, units)
    totals = _totals(connection, units)
    parts: list[dict[str, Any]] = []
    touches: list[dict[str, Any]] = []
    for unit in units:
        for part in unit.parts:
            parts.append(
                {
                    "site": part.site,
                    "version": part.version,
                    "csn": unit.csn,
                    "mark": part.mark,
                    "transaction_id": part.transaction_id,
                    "global_id": part.global_id,
                }
            )
        for table, changed in unit.rows.items():
            if changed:
                totals[table] += changed
                touches.append(
                    {"table_name": table, "csn": unit.csn, "changed": changed, "total": totals[table]}
                )
    times = [{"csn": unit.csn, "commit_time": unit.commit_time} for unit in units]
    connection.execute(insert(schema.unit_of_work), times)
    if parts:
        connection.execute(insert(schema.part), parts)
    if touches:
        connection.execute(insert(schema.touch), touches)


def _totals(connection: Connection, units: tuple[Unit, ...]) -> dict[str, int]:
    """The running total of every table that the units touch, as it is before them."""
    tables = sorted({table for unit in units for table in unit.rows})
    require_tables(connection, tables)
    touch = schema.touch.c
    totals = {}
    for table in tables:
        newest = select(touch.total).where(touch.table_name == table).order_by(touch.csn.desc()).limit(1)
        totals[table] = connection.scalar(newest) or 0
    return totals


def _require_new_marks(connection: Connection, units: tuple[Unit, ...]) -> None:
    """Refuses a mark that a site has had: it would be the same transaction for the second time."""
    marks: dict[str, list[int]] = {}
    for unit in units:
        for part in unit.parts:
            marks.setdefault(part.site, []).append(part.mark)
    for site, new in marks.items():
        known = history.versions_of(connection, site, new)
        if known or len(set(new)) < len(new):
            repeated = min(known, default=max(new, key=new.count))
            raise CatalogError(
                f"site {site} has committed the transaction with mark {repeated} already",
                thing=site,
                hint="a source must give every transaction a mark of its own, and report it once",
            )

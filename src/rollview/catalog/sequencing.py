"""New units of work become history, if they follow on what is known without a gap or a repetition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, select, update

from rollview.catalog import history, schema
from rollview.catalog.captured import read_site, require_tables
from rollview.catalog.faults import note_losses
from rollview.catalog.history import note_truncations
from rollview.catalog.records import Part, Unit
from rollview.catalog.step_bounds import Sequenced
from rollview.errors import CatalogError


@dataclass(slots=True)
class _Progress:
    """How far a site has come, while its new parts are taken in."""

    version: int
    log_position: str
    source_txid: int | None
    source_txids_grow: bool
    merged: int


def keep_units(connection: Connection, effect: Sequenced, now: float) -> None:
    """Writes the units, their parts and what they touched, and moves the sites' log positions."""
    _require_order(connection, effect.units)
    sites = {part.site for unit in effect.units for part in unit.parts} | effect.log_positions.keys()
    progress = {site: _progress_of(connection, site) for site in sites}
    for unit in effect.units:
        for part in unit.parts:
            _advance(progress[part.site], part)
    for site, log_position in effect.log_positions.items():
        progress[site].log_position = log_position
    _insert(connection, effect.units)
    note_losses(connection, effect.losses, now)
    note_truncations(connection, effect.truncations)
    for table, version in effect.lake_versions.items():
        of_table = update(schema.captured_table).where(schema.captured_table.c.name == table)
        connection.execute(of_table.values(lake_version=version))
    for name, reached in progress.items():
        connection.execute(
            update(schema.site)
            .where(schema.site.c.name == name)
            .values(
                version=reached.version,
                log_position=reached.log_position,
                captured_at=now,
                source_txids_grow=reached.source_txids_grow,
                merged=reached.merged,
            )
        )


def _require_order(connection: Connection, units: tuple[Unit, ...]) -> None:
    last = history.last_csn(connection)
    time = history.commit_time(connection, last)
    latest = -math.inf if time is None else time
    for unit in units:
        if unit.csn != last + 1:
            raise CatalogError(f"csn {unit.csn} cannot follow csn {last}", subject=f"csn {unit.csn}")
        if not unit.commit_time >= latest:
            raise CatalogError(
                f"csn {unit.csn} was committed at {unit.commit_time}, before the csn it follows ({latest})",
                subject=f"csn {unit.csn}",
                hint="commit times come from one clock that never runs backwards",
            )
        last, latest = unit.csn, unit.commit_time


def _progress_of(connection: Connection, name: str) -> _Progress:
    site, part = read_site(connection, name), schema.part.c
    newest = select(part.source_txid).where(part.site == name).order_by(part.version.desc()).limit(1)
    grows = select(schema.site.c.source_txids_grow).where(schema.site.c.name == name)
    return _Progress(
        site.version,
        site.log_position,
        connection.scalar(newest),
        bool(connection.scalar(grows)),
        site.merged,
    )


def _advance(site: _Progress, part: Part) -> None:
    if part.version != site.version + 1:
        raise CatalogError(
            f"version {part.version} of site {part.site} cannot follow version {site.version}",
            subject=part.site,
            hint="a batch was sequenced twice, or one before it is missing",
        )
    site.source_txids_grow = site.source_txids_grow and (
        site.source_txid is None or part.source_txid > site.source_txid
    )
    site.version, site.source_txid = part.version, part.source_txid
    site.merged += part.is_merged


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
                    "source_txid": part.source_txid,
                    "transaction_id": part.transaction_id,
                    "global_id": part.global_id,
                    "is_merged": part.is_merged,
                    "place": part.place,
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
    """Refuses a source txid that a site has had: it would be the same transaction for the second time."""
    source_txids: dict[str, list[int]] = {}
    for unit in units:
        for part in unit.parts:
            source_txids.setdefault(part.site, []).append(part.source_txid)
    for site, new in source_txids.items():
        known = history.versions_of(connection, site, new)
        if known or len(set(new)) < len(new):
            repeated = min(known, default=max(new, key=new.count))
            raise CatalogError(
                f"site {site} has committed the transaction with source txid {repeated} already",
                subject=site,
                hint="a source must give every transaction a unique source txid, and report it once",
            )

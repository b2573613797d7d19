"""Where everything stands, for somebody who looks every second: from the catalog alone, in few questions.

`status` says more, and takes longer: it asks the sources, reads the view files, and looks into view deltas
for the valid time of what is shown.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from rollview.algebra.view import View, is_stage
from rollview.catalog import Catalog, Fault, Refresh, Standing, ViewRecord
from rollview.catalog.standing import Holder
from rollview.service.definitions import is_full, policy_of
from rollview.service.faults import stopped_views
from rollview.service.points_in_time import iso
from rollview.service.schedules import schedule_of
from rollview.service.status import HaltStatus, UnfinishedStatus, WaitingStatus, unfinished_steps

HOUR_SECONDS = 3600.0


@dataclass(frozen=True)
class SourceLine:
    """A site: how far it is captured, and what it did in the last hour. `looked_at` has been asked last."""

    site: str
    tables: tuple[str, ...]
    version: int
    merged: int
    captured_at: float | None
    looked_at: float
    hour_transactions: int
    hour_rows: int
    halted: HaltStatus | None


@dataclass(frozen=True)
class ViewLine:
    """A view: what it shows, how far that is behind, and why it stands if it does.

    `lag_seconds` says how long ago the first change was committed that it does not show; None if nobody can
    tell. `end_csn` is that change.
    """

    name: str
    policy: str
    state: str
    halted: HaltStatus | None
    materialized: int
    shown_time: float | None
    high_water: int
    oldest: int
    behind_csn: int
    lag_seconds: float | None
    is_full: bool
    generation: int
    """Each load makes a new one."""
    schedule: str
    next_due: float
    last_refresh: Refresh | None
    tables: tuple[str, ...]
    """The base tables that it is made of, through other views as well."""
    reads: tuple[str, ...]
    """What its text names: base tables and views."""


@dataclass(frozen=True)
class Overview:
    """The project at one moment. `run` is the process that maintains it, if any does."""

    at: float
    last_csn: int
    last_commit_time: float | None
    sources: tuple[SourceLine, ...]
    views: tuple[ViewLine, ...]
    waiting: tuple[WaitingStatus, ...]
    unfinished: tuple[UnfinishedStatus, ...]
    run: Holder | None


def overview(catalog: Catalog, views: Mapping[str, View]) -> Overview:
    """Reads the catalog; asks nobody else."""
    now, moment = time.time(), catalog.standing()
    known = {name: view for name, view in views.items() if name in moment.views()}
    return Overview(
        at=now,
        last_csn=moment.last_csn,
        last_commit_time=moment.last_commit_time,
        sources=_sources(catalog, moment, now),
        views=_views(catalog, moment, known, now),
        waiting=tuple(
            WaitingStatus(each.global_id, each.present, each.missing, iso(each.since))
            for each in catalog.global_transactions.waiting()
        ),
        unfinished=tuple(each for each in unfinished_steps(catalog) if each.problem),
        run=moment.run if moment.run is not None and moment.run.expires_at > now else None,
    )


def base_tables(views: Mapping[str, View]) -> dict[str, tuple[str, ...]]:
    """The base tables that each view is made of, through stages and other views as well."""
    found: dict[str, set[str]] = {}
    # Dependencies come first.
    for name, view in views.items():
        own = found[name] = set()
        for table in view.named_tables:
            own.update([table.qualified] if table.source else found.get(table.name, ()))
    return {name: tuple(sorted(tables)) for name, tables in found.items()}


def _sources(catalog: Catalog, moment: Standing, now: float) -> tuple[SourceLine, ...]:
    # Where the history was pruned within the hour, only what is left can be counted.
    before = catalog.csn_at(now - HOUR_SECONDS) or (moment.first_csn if moment.first_csn > 1 else 0)
    lines = []
    for name, site in moment.sites().items():
        tables = tuple(table for table, its in moment.site_of.items() if its == name)
        parts, rows = catalog.observations.since(name, tables, before)
        fault = moment.faults("site").get(name)
        lines.append(
            SourceLine(
                site=name,
                tables=tables,
                version=site.version,
                merged=site.merged,
                captured_at=site.captured_at,
                looked_at=site.looked_at,
                hour_transactions=parts,
                hour_rows=rows,
                halted=None if fault is None else _halt(fault),
            )
        )
    return tuple(lines)


def _views(catalog: Catalog, moment: Standing, views: Mapping[str, View], now: float) -> tuple[ViewLine, ...]:
    stopped, tables = stopped_views(moment, views), base_tables(views)
    named = [name for name in views if not is_stage(name)]
    shown = {name: moment.views()[name].materialized_csn for name in named}
    ends = _ends(catalog, moment, {name: tables[name] for name in named}, shown)
    times = catalog.observations.commit_times([*shown.values(), *ends.values()])
    refreshes = catalog.observations.last_refreshes(named)
    lines = []
    for name in named:
        view, record = views[name], moment.views()[name]
        keeps = [stopped[part.name] for part in view.stored_parts if part.name in stopped]
        end = times.get(ends.get(name, 0))
        lines.append(
            _line(
                view,
                record,
                moment,
                _Found(
                    halted=_halt(keeps[0]) if keeps else None,
                    tables=tables[name],
                    end=end,
                    due_csn=_due_csn(catalog, view, now),
                    shown_time=times.get(shown[name]),
                    last_refresh=refreshes.get(name),
                    now=now,
                ),
            )
        )
    return tuple(lines)


@dataclass(frozen=True)
class _Found:
    """What was looked up for the line of a view."""

    halted: HaltStatus | None
    tables: tuple[str, ...]
    end: float | None
    due_csn: int | None
    shown_time: float | None
    last_refresh: Refresh | None
    now: float


def _line(view: View, record: ViewRecord, moment: Standing, found: _Found) -> ViewLine:
    shown, schedule = record.materialized_csn, schedule_of(view)
    is_due = found.due_csn is None or found.due_csn > shown
    state = "catching up" if found.end is not None and is_due else "running"
    is_detached = found.halted is not None and found.halted.kind == "HistoryBroken"
    lag = max(0.0, found.now - found.end) if found.end is not None else 0.0
    return ViewLine(
        name=view.name,
        policy=policy_of(view),
        state="stopped" if found.halted else state,
        halted=found.halted,
        materialized=shown,
        shown_time=found.shown_time,
        high_water=moment.high_water(view.name),
        oldest=record.oldest_csn,
        behind_csn=moment.last_csn - shown,
        lag_seconds=None if is_detached else lag,
        is_full=is_full(view),
        generation=record.generation,
        schedule="" if schedule is None else schedule.text,
        next_due=0.0 if schedule is None else schedule.next(found.now),
        last_refresh=found.last_refresh,
        tables=found.tables,
        reads=tuple(table.qualified for table in view.named_tables),
    )


def _ends(
    catalog: Catalog, moment: Standing, tables: Mapping[str, tuple[str, ...]], shown: Mapping[str, int]
) -> dict[str, int]:
    """For each view the first change of its base tables that it does not show, if there is one."""
    wanted = {(table, shown[name]) for name, own in tables.items() for table in own}
    later = catalog.observations.next_touches(wanted)
    lost = moment.faults("table")
    found = {}
    for name, own in tables.items():
        ends = [later[table, shown[name]] for table in own if (table, shown[name]) in later]
        ends += [lost[table].csn for table in own if table in lost and lost[table].csn > shown[name]]
        if ends:
            found[name] = min(ends)
    return found


def _due_csn(catalog: Catalog, view: View, now: float) -> int | None:
    schedule = schedule_of(view)
    return None if schedule is None else catalog.csn_at(schedule.last(now))


def _halt(fault: Fault) -> HaltStatus:
    return HaltStatus(fault.message, fault.kind, fault.hint, fault.csn, iso(fault.since))

"""The state of a project: each fact computed once, from one reading of the catalog.

`status`, the live table of `run`, pages, metrics, probes and notebooks show these facts, and compute none of
them. No source, lake or Spark is queried; all statements use an index.

A view **lags** while it does not show a captured change of its tables: its lag is the age of the oldest such
change, whatever the reason. It is **late** if it should show that change by now: one with a schedule should
show what was committed up to its last due time, one with a bound on its staleness what is older than that,
all others everything. So a view whose schedule is not due may lag by hours and is not late. Its state, the
first line of the page and the alerts depend on what is late.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

from rollview.algebra.view import View, is_stage
from rollview.catalog import (
    ApplyStep,
    CaptureStep,
    Catalog,
    Fault,
    LoadStep,
    PropagateStep,
    Refresh,
    Standing,
    UnreadableStep,
    Waiting,
)
from rollview.catalog.standing import Holder
from rollview.config.schedules import schedule_of
from rollview.errors import AccessDenied, HistoryBroken, SourceMissing, SourceUnavailable
from rollview.maintain.batches import staleness_bounds
from rollview.maintain.faults import stopped_views
from rollview.storage.points_in_time import iso
from rollview.views.properties import algorithm_of, is_chosen_by_cost, is_full, policy_of

HOUR_SECONDS = 3600.0
_NOT_REACHED = (SourceUnavailable.__name__, SourceMissing.__name__, AccessDenied.__name__)
"""The faults of a site that did not answer, or refused us."""


@dataclass(frozen=True)
class HaltStatus:
    """Why something cannot continue, since when, from which csn on (0 if not known), and the way out."""

    reason: str
    kind: str
    hint: str
    csn: int
    since: str


@dataclass(frozen=True)
class WaitingStatus:
    """A global transaction that holds up the sites that are present, until the missing ones report."""

    global_id: str
    present: tuple[str, ...]
    missing: tuple[str, ...]
    since: str


@dataclass(frozen=True)
class UnfinishedStatus:
    """A step that was begun and not finished: the next run finishes it, unless there is a problem."""

    step: str
    problem: str = ""
    hint: str = ""


@dataclass(frozen=True)
class SourceState:
    """A site. All that it had committed at `looked_at` is captured; 0 before it was first read.

    `version` counts its transactions so far; `merged` of these may stand for several. `halted_tables` counts
    tables that have lost changes.
    """

    site: str
    tables: tuple[str, ...]
    version: int
    merged: int
    captured_at: float | None
    looked_at: float
    hour_transactions: int
    hour_rows: int
    halted: HaltStatus | None
    is_reachable: bool = True
    halted_tables: int = 0


@dataclass(frozen=True)
class ViewState:
    """A view: what it shows, how far that is behind, and why it is stopped if it is.

    `state` is `running`, `catching up`, `stopped`, or `waiting for` and the sources whose part of a global
    transaction has not come. `lag_seconds` is the age of the oldest captured change of its tables that it
    does not show; None if its history does not go back so far. `is_late` says whether it should show that
    change by now. `stale_seconds` is the age of the last moment at which it is known to have shown
    everything; None while a source of it was never read.
    """

    name: str
    policy: str
    algorithm: str
    state: str
    halted: HaltStatus | None
    waits_for: tuple[str, ...]
    materialized: int
    shown_time: float | None
    high_water: int
    oldest: int
    behind_csn: int
    lag_seconds: float | None
    is_late: bool
    stale_seconds: float | None
    is_full: bool
    generation: int
    """Each load makes a new one."""
    schedule: str
    next_due: float
    max_staleness_seconds: float
    """How old a change may be when it is shown; 0: it is shown as soon as possible."""
    last_refresh: Refresh | None
    tables: tuple[str, ...]
    """The base tables that it is made of, through other views as well."""
    reads: tuple[str, ...]
    """Base tables and views that its text names."""


@dataclass(frozen=True)
class ConsumerState:
    """A consumer of a view's delta: what it has acknowledged, and how far that is behind the delta."""

    view: str
    name: str
    csn: int
    lag_csn: int
    acknowledged_at: float


@dataclass(frozen=True)
class ProjectState:
    """The project at one moment. `run` is the process that maintains it, if any does."""

    at: float
    last_csn: int
    last_commit_time: float | None
    sources: tuple[SourceState, ...]
    views: tuple[ViewState, ...]
    waiting: tuple[WaitingStatus, ...]
    waiting_seconds: float
    """How long the oldest waiting global transaction has waited."""
    consumers: tuple[ConsumerState, ...]
    unfinished: tuple[UnfinishedStatus, ...]
    run: Holder | None


@dataclass(frozen=True)
class Behind:
    """The views that do not show what they should: how many, and how far the last of them is behind."""

    views: int
    last: ViewState
    seconds: float
    transactions: int


def behind(found: ProjectState) -> Behind | None:
    """How far running views are behind; None if they show all that they should."""
    late = [view for view in found.views if view.state == "catching up" and view.lag_seconds is not None]
    if not late:
        return None
    last = max(late, key=lambda view: view.lag_seconds or 0.0)
    return Behind(len(late), last, last.lag_seconds or 0.0, max(view.behind_csn for view in late))


def project_state(catalog: Catalog, views: Mapping[str, View]) -> ProjectState:
    """Reads the catalog; `views` are those that are set up, with their stages, dependencies first."""
    now, moment = time.time(), catalog.standing()
    known = {name: view for name, view in views.items() if name in moment.views()}
    since = [each.since for each in moment.waiting]
    return ProjectState(
        at=now,
        last_csn=moment.last_csn,
        last_commit_time=moment.last_commit_time,
        sources=tuple(_sources(catalog, moment, now)),
        views=tuple(_Views(catalog, moment, known, now).all()),
        waiting=tuple(
            WaitingStatus(each.global_id, each.present, each.missing, iso(each.since))
            for each in moment.waiting
        ),
        waiting_seconds=max(0.0, now - min(since, default=now)),
        consumers=tuple(_consumers(moment)),
        unfinished=tuple(_unfinished_steps(catalog)),
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


def _sources(catalog: Catalog, moment: Standing, now: float) -> Iterator[SourceState]:
    # If the history was pruned within the hour, only the rest can be counted.
    before = catalog.history.csn_at(now - HOUR_SECONDS) or (moment.first_csn if moment.first_csn > 1 else 0)
    for name, site in moment.sites().items():
        tables = tuple(table for table, its in moment.site_of.items() if its == name)
        parts, rows = catalog.observations.since(name, tables, before)
        fault = moment.faults("site").get(name)
        yield SourceState(
            site=name,
            tables=tables,
            version=site.version,
            merged=site.merged,
            captured_at=site.captured_at,
            looked_at=site.looked_at,
            hour_transactions=parts,
            hour_rows=rows,
            halted=None if fault is None else _halt(fault),
            is_reachable=fault is None or fault.kind not in _NOT_REACHED,
            halted_tables=sum(table in moment.faults("table") for table in tables),
        )


def _consumers(moment: Standing) -> Iterator[ConsumerState]:
    for each in moment.consumers:
        if each.view in moment.views():
            lag = max(0, moment.high_water(each.view) - each.csn)
            yield ConsumerState(each.view, each.name, each.csn, lag, each.acknowledged_at)


class _Views:
    """Every view's facts, each read from the catalog once for all views."""

    def __init__(self, catalog: Catalog, moment: Standing, views: Mapping[str, View], now: float) -> None:
        self._moment, self._now = moment, now
        self._named = {name: view for name, view in views.items() if not is_stage(name)}
        self._stopped, self._tables = stopped_views(moment, views), base_tables(views)
        self._bounds = staleness_bounds(views)
        self._shown = {name: moment.views()[name].materialized_csn for name in self._named}
        self._missing = self._oldest_missing(catalog)
        self._choices = catalog.works.choices()
        self._times = catalog.observations.commit_times([*self._shown.values(), *self._missing.values()])
        self._refreshes = catalog.observations.last_refreshes(list(self._named))

    def all(self) -> Iterator[ViewState]:
        for name, view in self._named.items():
            yield self._state(name, view)

    def _oldest_missing(self, catalog: Catalog) -> dict[str, int]:
        """For each view the first change of its base tables that it does not show, if there is one."""
        wanted = {
            (table, shown)
            for name, shown in self._shown.items()
            if shown < self._moment.last_csn
            for table in self._tables[name]
        }
        later = catalog.observations.next_touches(wanted)
        lost = self._moment.faults("table")
        found = {}
        for name, shown in self._shown.items():
            own = self._tables[name]
            missing = [later[table, shown] for table in own if (table, shown) in later]
            missing += [lost[table].csn for table in own if table in lost and lost[table].csn > shown]
            if missing:
                found[name] = min(missing)
        return found

    def _state(self, name: str, view: View) -> ViewState:
        moment, now, tables = self._moment, self._now, self._tables[name]
        record, schedule, shown = moment.views()[name], schedule_of(view), self._shown[name]
        faults = [self._stopped[part.name] for part in view.stored_parts if part.name in self._stopped]
        sites = {moment.site_of[table] for table in tables if table in moment.site_of}
        waits = _waits_for(moment.waiting, sites)
        changed_at = self._times.get(self._missing.get(name, 0))
        bound = self._bounds.get(name, 0.0)
        due = inf if schedule is None else schedule.last(now)
        due = now - bound if bound else due
        is_late = changed_at is not None and changed_at <= due
        lag = 0.0 if changed_at is None else max(0.0, now - changed_at)
        return ViewState(
            name=view.name,
            policy=policy_of(view),
            algorithm=self._algorithm(view),
            state=_word(bool(faults), waits, is_late),
            halted=_halt(faults[0]) if faults else None,
            waits_for=waits,
            materialized=shown,
            shown_time=self._times.get(shown),
            high_water=moment.high_water(name),
            oldest=record.oldest_csn,
            behind_csn=max(0, moment.last_csn - shown),
            lag_seconds=None if self._is_broken(name) else lag,
            is_late=is_late,
            stale_seconds=self._stale_seconds(sites, changed_at),
            is_full=is_full(view),
            generation=record.generation,
            schedule="" if schedule is None else schedule.text,
            next_due=0.0 if schedule is None else schedule.next(now),
            max_staleness_seconds=bound,
            last_refresh=self._refreshes.get(name),
            tables=tables,
            reads=tuple(table.qualified for table in view.named_tables),
        )

    def _algorithm(self, view: View) -> str:
        if is_full(view):
            return "full"
        choice = self._choices.get(view.name) if is_chosen_by_cost(view) else None
        return algorithm_of(view).name if choice is None else choice.algorithm

    def _is_broken(self, name: str) -> bool:
        """Whether the history of what a view reads does not reach back to what it shows."""
        return name in self._stopped and self._stopped[name].kind == HistoryBroken.__name__

    def _stale_seconds(self, sites: Iterable[str], changed_at: float | None) -> float | None:
        known = self._moment.sites()
        looked = [known[site].looked_at for site in sites if site in known]
        if not all(looked):
            return None
        since = [*looked, *([] if changed_at is None else [changed_at])]
        return max(0.0, self._now - min(since, default=self._now))


def _word(is_stopped: bool, waits: tuple[str, ...], is_late: bool) -> str:
    if is_stopped:
        return "stopped"
    if waits:
        return f"waiting for {', '.join(waits)}"
    return "catching up" if is_late else "running"


def _waits_for(waiting: Iterable[Waiting], sites: set[str]) -> tuple[str, ...]:
    """The sites whose parts of global transactions hold up any of these sites, and all that reads them."""
    held = [each for each in waiting if not sites.isdisjoint(each.present)]
    return tuple(sorted({site for each in held for site in each.missing}))


def _unfinished_steps(catalog: Catalog) -> Iterator[UnfinishedStatus]:
    for step in catalog.steps.unfinished():
        name = f"{step.kind} {step.subject}".strip()
        if isinstance(step, UnreadableStep):
            yield UnfinishedStatus(name, step.refusal.message, step.refusal.hint)
        elif isinstance(step.bounds, CaptureStep | LoadStep | PropagateStep | ApplyStep):
            yield UnfinishedStatus(name)


def _halt(fault: Fault) -> HaltStatus:
    return HaltStatus(fault.message, fault.kind, fault.hint, fault.csn, iso(fault.since))

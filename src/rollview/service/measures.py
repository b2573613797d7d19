"""Where sources and views stand, as numbers, for those who ask again and again.

`status` tells a reader all that can be known, and asks the sources for it. Here is only what the catalog has:
a few statements, however many views and transactions there are; no source, no lake and no Spark is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rollview.algebra.view import View, is_stage
from rollview.catalog import Catalog, Fault, Site, Standing, Waiting
from rollview.errors import AccessDenied, SourceMissing, SourceUnavailable
from rollview.service.definitions import algorithm_of, is_full, policy_of
from rollview.service.faults import stopped_views
from rollview.service.overview import base_tables
from rollview.service.schedules import Schedule, schedule_of

_NOT_REACHED = (SourceUnavailable.__name__, SourceMissing.__name__, AccessDenied.__name__)
"""The faults of a site that did not answer, or not to us."""


@dataclass(frozen=True)
class SourceMeasures:
    """A site. All that it had committed at `looked_at` is captured; None before the first look.

    `version` counts its transactions so far. `halted_tables` have lost changes.
    """

    name: str
    version: int
    merged: int
    captured_at: float | None
    looked_at: float | None
    reachable: bool
    halted: bool
    halted_tables: int


@dataclass(frozen=True)
class ViewMeasures:
    """A view. `lag_seconds` is how long ago the oldest change was committed that it should show and does not.

    A view with a schedule should show what was committed up to the last due time. `stale_seconds` is how long
    ago what it shows was surely all that there was; None while a source of it was never looked at.
    """

    name: str
    policy: str
    algorithm: str
    schedule: str
    csn: int
    high_water: int
    oldest: int
    lag_csn: int
    lag_seconds: float
    stale_seconds: float | None
    halted: bool


@dataclass(frozen=True)
class ConsumerMeasures:
    """A consumer of a view's delta: what it has acknowledged, and how far that is behind the delta."""

    view: str
    name: str
    csn: int
    lag_csn: int
    acknowledged_at: float


@dataclass(frozen=True)
class Measures:
    """The whole project at one moment."""

    last_csn: int
    last_commit_time: float | None
    sources: tuple[SourceMeasures, ...]
    views: tuple[ViewMeasures, ...]
    consumers: tuple[ConsumerMeasures, ...]
    waiting: tuple[Waiting, ...]


def measure(catalog: Catalog, views: Mapping[str, View], now: float) -> Measures:
    """Reads the catalog; `views` are those that are set up, with their stages, dependencies first."""
    at = catalog.standing()
    known = {name: view for name, view in views.items() if name in at.views()}
    return Measures(
        last_csn=at.last_csn,
        last_commit_time=at.last_commit_time,
        sources=tuple(_source(site, at) for site in at.sites().values()),
        views=tuple(_ViewReading(catalog, at, known, now).all()),
        consumers=tuple(
            ConsumerMeasures(
                each.view,
                each.name,
                each.csn,
                max(0, at.high_water(each.view) - each.csn),
                each.acknowledged_at,
            )
            for each in at.consumers
            if each.view in at.views()
        ),
        waiting=at.waiting,
    )


def _source(site: Site, at: Standing) -> SourceMeasures:
    fault = at.faults("site").get(site.name)
    own = [name for name in at.faults("table") if name == site.name or name.startswith(f"{site.name}.")]
    return SourceMeasures(
        name=site.name,
        version=site.version,
        merged=site.merged,
        captured_at=site.captured_at,
        looked_at=site.looked_at or None,
        reachable=fault is None or fault.kind not in _NOT_REACHED,
        halted=fault is not None,
        halted_tables=len(own),
    )


class _ViewReading:
    """Every view's numbers, with each question to the catalog asked once for all of them."""

    def __init__(self, catalog: Catalog, at: Standing, views: Mapping[str, View], now: float) -> None:
        self._at, self._views, self._now = at, views, now
        self._stopped: dict[str, Fault] = stopped_views(at, views)
        self._tables = base_tables(views)
        self._named = {name: view for name, view in views.items() if not is_stage(name)}
        self._schedules = {name: schedule_of(view) for name, view in self._named.items()}
        self._due = {
            each: catalog.csn_at(each.last(now)) for each in self._schedules.values() if each is not None
        }
        records = at.views()
        asked = {
            (table, records[name].materialized_csn)
            for name in self._named
            for table in self._tables[name]
            if records[name].materialized_csn < at.last_csn
        }
        later = catalog.observations.next_touches(asked)
        times = catalog.observations.commit_times(later.values())
        self._changes = {each: (csn, times.get(csn, 0.0)) for each, csn in later.items()}

    def all(self) -> list[ViewMeasures]:
        """The views that users named."""
        return [self._measured(name, view, self._schedules[name]) for name, view in self._named.items()]

    def _measured(self, name: str, view: View, schedule: Schedule | None) -> ViewMeasures:
        record = self._at.views()[name]
        shown = record.materialized_csn
        missing = [change for table in self._tables[name] if (change := self._changes.get((table, shown)))]
        first = min(missing, default=None)
        is_due = first is not None and (schedule is None or first[0] <= self._due[schedule])
        return ViewMeasures(
            name=name,
            policy=policy_of(view),
            algorithm="full" if is_full(view) else algorithm_of(view).name,
            schedule="" if schedule is None else schedule.text,
            csn=shown,
            high_water=self._at.high_water(name),
            oldest=record.oldest_csn,
            lag_csn=max(0, self._at.last_csn - shown),
            lag_seconds=max(0.0, self._now - first[1]) if first is not None and is_due else 0.0,
            stale_seconds=self._stale_seconds(name, None if first is None else first[1]),
            halted=any(part.name in self._stopped for part in view.stored_parts),
        )

    def _stale_seconds(self, name: str, changed_at: float | None) -> float | None:
        sites = self._at.sites()
        looked = [sites[site].looked_at for site in self._sites_of(name) if site in sites]
        if not all(looked):
            return None
        since = [*looked, *([] if changed_at is None else [changed_at])]
        return max(0.0, self._now - min(since, default=self._now))

    def _sites_of(self, name: str) -> set[str]:
        """A table is a site, or belongs to the one of its source."""
        sites = self._at.sites()
        tables = self._tables[name]
        return {table if table in sites else table.partition(".")[0] for table in tables}

"""Where everything stands, from the catalog alone: cheap enough to be asked for every second.

`status` also asks the sources how they are and looks into the lake; this does not. The lag is that of the
first change of a base table that a view does not show yet, whether or not it affects the view.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from rollview.catalog import Catalog, Fault
from rollview.service.definitions import policy_of
from rollview.service.faults import Faults
from rollview.service.views import Views


@dataclass(frozen=True)
class SourceOverview:
    """A site: its transactions, the time up to which all of them are captured, and why it stands still."""

    site: str
    transactions: int
    captured_until: float
    problem: str = ""


@dataclass(frozen=True)
class ViewOverview:
    """A view: what it shows, how far its delta reaches, how late it is, and why it stands still."""

    name: str
    policy: str
    shown: int
    high_water: int
    lag_seconds: float
    problem: str = ""


@dataclass(frozen=True)
class Overview:
    """The whole project at a moment."""

    name: str
    last_csn: int
    sources: tuple[SourceOverview, ...]
    views: tuple[ViewOverview, ...]


def overview(name: str, faults: Faults) -> Overview:
    """Reads the catalog."""
    catalog, views = faults.catalog, faults.views
    last, stopped, now = catalog.last_csn(), faults.stopped(), time.time()
    at_sites = catalog.faults("site")
    sources = tuple(
        SourceOverview(site.name, site.version, site.looked_at, _message(at_sites, site.name))
        for site in catalog.sites().values()
    )
    each = tuple(_view(catalog, views, view, stopped, (last, now)) for view in views.names)
    return Overview(name, last, sources, each)


def _view(
    catalog: Catalog, views: Views, name: str, stopped: Mapping[str, Fault], now: tuple[int, float]
) -> ViewOverview:
    record, view = views.record(name), views.named(name)
    shown, (last, moment) = record.materialized_csn, now
    tables = views.base_tables(name)
    lag = 0.0
    if any(catalog.touched(table, shown, last) for table in tables):
        missed = catalog.commit_time(catalog.next_csn_touching(tables, shown, 1))
        lag = max(0.0, moment - missed) if missed else 0.0
    problem = next((_message(stopped, part.name) for part in view.stored_parts if part.name in stopped), "")
    return ViewOverview(name, policy_of(view), shown, catalog.high_water(name), lag, problem)


def _message(faults: Mapping[str, Fault], name: str) -> str:
    return faults[name].message if name in faults else ""

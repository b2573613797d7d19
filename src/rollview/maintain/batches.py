"""How many transactions a view waits for, under a bound on how stale it may be: `rollview.max_staleness`.

**Source:** zhuge1996 §7, improvement 2: the batch size is a trade of messages against staleness.

A step of a view takes a fixed part and a part for every changed row; both are measured (`CostLine`).
Transactions that are propagated together share the fixed part, so the cheapest step is the one with the most
of them, and the bound says how many these may be: a step begins at the last moment at which it is done in
time. It begins earlier where the fixed part is a small share of the step: then waiting saves nothing.

What a view shows is the same at every csn, however long its steps are.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rollview.algebra.view import View, is_stage, owner
from rollview.catalog import Catalog, CostLine
from rollview.config.schedules import schedule_of, staleness_of
from rollview.maintain.retry import POLL_SECONDS
from rollview.views.properties import is_full

if TYPE_CHECKING:
    from rollview.views.views import Views

BATCH = "batch"
"""The kind of work that is measured: propagating and applying what a view waited for."""
NEGLIGIBLE = 0.05
"""Once the fixed part is a smaller share of a step than this, waiting does not pay."""
UNMEASURED = 0.25
"""The share of the bound that a step is taken to need before one was measured."""
_ROUNDS = 20


@dataclass(frozen=True)
class BatchPlan:
    """How long the steps of a view are: the bound, what a step costs, and how many rows one has had."""

    max_staleness_seconds: float
    fixed_seconds: float
    row_seconds: float
    mean_rows: float
    is_measured: bool

    @property
    def sentence(self) -> str:
        bound = f"changes are shown at most {self.max_staleness_seconds:g} s after their commit"
        if not self.is_measured:
            return f"{bound}; no step has been measured yet"
        cost = f"a step takes {self.fixed_seconds:.2g} s and {1000 * self.row_seconds:.2g} ms per changed row"
        share = self.fixed_seconds / max(1.0, self.mean_rows)
        usual = f"of late it had {self.mean_rows:,.0f} changed rows, so that the fixed part costs each"
        return f"{bound}; {cost}; {usual} {1000 * share:.2g} ms"


def staleness_bounds(views: Mapping[str, View]) -> dict[str, float]:
    """How many seconds old a change may be when a view shows it, for views that wait at all.

    `views` come with their stages, dependencies first. A view that reads others and says nothing waits with
    them, unless it has a schedule or is recomputed; a view that others read does not wait longer than these
    may.
    """
    found: dict[str, float] = {}
    named = {name: view for name, view in views.items() if not is_stage(name)}
    for name, view in named.items():
        inputs = [table.name for table in view.named_tables if not table.source]
        bound = staleness_of(view) or max((found.get(each, 0.0) for each in inputs), default=0.0)
        if bound and schedule_of(view) is None and not is_full(view):
            found[name] = bound
    for name in reversed(named):
        for table in named[name].named_tables:
            if not table.source and table.name in found and name in found:
                found[table.name] = min(found[table.name], found[name])
    return found


def begin_by(changed_at: float, bound: float, cost: CostLine, rows: int, reserve_seconds: float) -> float:
    """When a step with so many changed rows has to begin; at once where waiting does not pay."""
    if not cost.samples:
        return changed_at + (1.0 - UNMEASURED) * bound - reserve_seconds
    needed = cost.of(rows)
    if cost.fixed_seconds < NEGLIGIBLE * needed:
        return changed_at
    return changed_at + bound - needed - 2.0 * cost.deviation_seconds - reserve_seconds


class Batches:
    """Which views wait for more transactions; learns from every batch what one costs."""

    def __init__(self, catalog: Catalog, views: Views, clock: Callable[[], float] = time.time) -> None:
        self._catalog = catalog
        self._views = views
        self._clock = clock
        self._others: deque[float] = deque(maxlen=_ROUNDS)
        self._seen: dict[str, tuple[int, float]] = {}

    def bounds(self) -> dict[str, float]:
        """The bound of each view and stage that waits."""
        bounds = staleness_bounds(self._views.all())
        return {name: bounds[owner(name)] for name in self._views.all() if owner(name) in bounds}

    def waiting(self, names: Collection[str], halted: Iterable[str]) -> frozenset[str]:
        """Which of these views and stages wait; `halted` are those that could not continue: they try again.

        What a view reads does not wait when that view begins.
        """
        stopped = {owner(name) for name in halted}
        bounds = {
            name: bound
            for name, bound in self.bounds().items()
            if name in names and owner(name) not in stopped
        }
        if not bounds:
            return frozenset()
        views = self._views.all()
        begun, left = set[str](), list(self._due(bounds))
        while left:
            if (name := left.pop()) not in begun:
                begun.add(name)
                left += [table.name for table in views[name].tables if not table.source]
        return frozenset(bounds.keys() - begun)

    def _due(self, bounds: Mapping[str, float]) -> Iterator[str]:
        """The views whose next step has to begin now, or need not wait."""
        catalog = self._catalog
        shown = {name: catalog.views.get(name).materialized_csn for name in bounds if not is_stage(name)}
        tables = {name: self._views.base_tables(name) for name in shown}
        later = catalog.observations.next_touches(
            {(table, csn) for name, csn in shown.items() for table in tables[name]}
        )
        first = {
            name: min(later[table, csn] for table in tables[name] if (table, csn) in later)
            for name, csn in shown.items()
            if any((table, csn) in later for table in tables[name])
        }
        times = catalog.observations.commit_times(first.values())
        now, last = self._clock(), catalog.history.last_csn()
        reserve = POLL_SECONDS + max(self._others, default=0.0)
        for name, csn in first.items():
            cost = catalog.works.costs(name).get(BATCH, CostLine())
            rows = self.changes(name, shown[name], last)
            changed_at = min(times.get(csn, now), self._seen_at(name, csn, now))
            if csn not in times or now >= begin_by(changed_at, bounds[name], cost, rows, reserve):
                yield name

    def _seen_at(self, name: str, csn: int, now: float) -> float:
        """Since when a view is known to lack a csn; clocks of sources may be ahead."""
        known, since = self._seen.get(name, (csn, now))
        self._seen[name] = csn, min(since, now) if known == csn else now
        return self._seen[name][1]

    def changes(self, name: str, after: int, upto: int) -> int:
        """By how many rows the base tables of a view changed in after < csn ≤ upto."""
        history = self._catalog.history
        return sum(history.touched(table, after, upto) for table in self._views.base_tables(name))

    def took(self, seconds: float, batches: Mapping[str, tuple[int, float]]) -> None:
        """Learns from a round: its seconds, and the rows and seconds of each view that moved."""
        self._others.append(max(0.0, seconds - max((own for _, own in batches.values()), default=0.0)))
        for name, (rows, own) in batches.items():
            self._catalog.works.note_cost(name, BATCH, rows, own)


def batch_plan(catalog: Catalog, name: str, bound: float) -> BatchPlan:
    """How long the steps of a view with this bound are, by what was measured."""
    cost = catalog.works.costs(name).get(BATCH, CostLine())
    return BatchPlan(bound, cost.fixed_seconds, cost.row_seconds, cost.mean_rows, cost.samples > 0)

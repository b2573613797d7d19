"""apply: rolls stored views along their deltas, several to one csn in one logical step.

Only the files that may hold a changed row are rewritten. The catalog says for all views of the step at once
that they show the new csn, and readers go by the catalog; a step that was begun is finished first.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rollview import events
from rollview.catalog import ApplyStep, Catalog, CsnRange, Lease, Materialized, Refresh, Refreshed, Step
from rollview.errors import LeaseHeld
from rollview.events import Events
from rollview.service.interrupted_load import is_interrupted, take_back
from rollview.service.lake_tables import LakeTables
from rollview.service.session import Session
from rollview.service.step_timer import StepTimer, timed_step
from rollview.service.stored_view import StoredViews

LEASE = "apply"

Versions = tuple[int, int]
"""Of the table of a view's rows, and of that of its state."""


@dataclass(frozen=True)
class ApplyDriver:
    """Rolls stored views; one at a time in the whole project."""

    catalog: Catalog
    tables: LakeTables
    stored: StoredViews
    session: Session
    events: Events

    def run(self, targets: Mapping[str, int], reason: str, wait_seconds: float = 0.0) -> dict[str, int]:
        """Rolls views to the given csn, which their deltas cover; returns the changed rows of each."""
        catalog = self.catalog
        for name in targets:
            self._take_back(name)
        with catalog.lease(LEASE, wait_seconds) as lease:
            self.recover(lease)
            records = catalog.views()
            moving = {name: csn for name, csn in targets.items() if csn > records[name].materialized_csn}
            if not moving:
                return {}
            ranges = {name: CsnRange(records[name].materialized_csn, csn) for name, csn in moving.items()}
            step = catalog.begin(lease, ",".join(moving), ApplyStep(ranges, reason))
            return self._run(lease, step)

    def _take_back(self, name: str) -> None:
        """Takes a load back that died; one that is still at work holds the lease."""
        if is_interrupted(self.catalog, name):
            with suppress(LeaseHeld), self.catalog.lease(f"propagate:{name}") as lease:
                take_back(self.catalog, self.tables, lease, name)

    def recover(self, lease: Lease) -> None:
        """Finishes a step that was begun."""
        for step in self.catalog.pending(ApplyStep):
            self._run(lease, step)

    def _run(self, lease: Lease, step: Step[ApplyStep]) -> dict[str, int]:
        with timed_step(self.events, "apply", ", ".join(step.bounds.views), step.id) as timer:
            return self._roll_all(lease, step, timer)

    def _roll_all(self, lease: Lease, step: Step[ApplyStep], timer: StepTimer) -> dict[str, int]:
        """Rolls every view of the step, then makes all of them known."""

        def one(name: str) -> tuple[Versions, int]:
            after, upto = step.bounds.views[name]
            return self._roll(name, step.id, after, upto, timer)

        # A view that was reloaded after the step had begun, or dropped, is no longer the step's business.
        records = self.catalog.views()
        standing = {name: record.materialized_csn for name, record in records.items()}
        names = [name for name, (after, _) in step.bounds.views.items() if standing.get(name) == after]
        rolled = dict(zip(names, self.session.work_pool.map(one, names), strict=True))
        effects: list[Materialized | Refreshed] = []
        refreshes: list[Refresh] = []
        for name, (versions, rows) in rolled.items():
            after, upto = step.bounds.views[name]
            reason = step.bounds.reason
            refresh = Refresh(name, "incremental", after, upto, rows, timer.seconds, reason, time.time())
            effects += [Materialized(name, upto, *versions), Refreshed(refresh)]
            refreshes.append(refresh)
        with timer.phase("commit"):
            self.catalog.finish(lease, step, *effects)
        self._report(refreshes)
        changed = {name: rows for name, (_, rows) in rolled.items()}
        timer.rows = None if -1 in changed.values() else sum(changed.values())
        return changed

    def _report(self, refreshes: Sequence[Refresh]) -> None:
        """Which views show a new csn now, and what was done to each."""
        for csn in sorted({each.to_csn for each in refreshes}):
            views = tuple(each.view for each in refreshes if each.to_csn == csn)
            self.events.emit(events.Applied(views, csn))
        for each in refreshes:
            rows = None if each.rows < 0 else each.rows
            self.events.emit(
                events.Refreshed(each.view, each.kind, each.to_csn, rows, each.seconds, each.reason)
            )

    def _roll(self, name: str, step: int, after: int, upto: int, timer: StepTimer) -> tuple[Versions, int]:
        """Rolls what is stored of one view; returns the new versions and the number of changed rows."""
        stored = self.stored.open(name)
        rows, state = stored.rows_bag, stored.state_bag
        with timer.phase("read_changes"):
            delta = stored.delta(after, upto)
            if delta.is_empty():
                return (stored.record.lake_version, stored.record.state_version), 0
        commit = self.tables.signed("apply", step, upto, "apply", continues=after)
        with timer.phase("compute"):
            changed = stored.changes(delta)
        # The rows first: until the state is written, it is what all of this can be computed from again.
        with timer.phase("write"):
            versions = tuple(
                0 if bag is None or change is None else bag.change(change, commit)
                for bag, change in ((rows, changed.rows), (state, changed.state))
            )
        return (versions[0], versions[1]), delta.table().num_rows if delta.is_at_driver else -1

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
from rollview.catalog import (
    ApplyStep,
    Catalog,
    CsnRange,
    Lease,
    LoadStep,
    Materialized,
    Refresh,
    Refreshed,
    Step,
)
from rollview.errors import LakeDamaged, LakeError, LeaseHeld
from rollview.events import Events
from rollview.lake import LakeTable
from rollview.maintain.faults import concerns_all, is_lasting
from rollview.runtime.progress import StepTimer, timed_step
from rollview.runtime.session import Session
from rollview.runtime.sites import side_by_side
from rollview.storage.lake_tables import LakeTables
from rollview.storage.stored_view import StoredViews
from rollview.views.uncomputable import naming

# A load that died is taken back: the view shows what the catalog says, for every reader.


def take_back(catalog: Catalog, tables: LakeTables, lease: Lease, name: str) -> None:
    """Ends a load of a view that was begun by a process that is gone; `lease` is that of the view.

    If it had replaced the rows already, they are those of before again. The tables that it made for state and
    delta nobody knows; the next load, or maintenance, removes them.
    """
    for step in catalog.steps.pending(LoadStep, name):
        record = catalog.views.all().get(name)
        if record is not None:
            rows = tables.of_view(name, record.generation).rows
            if (
                rows.exists()
                and not is_damaged(rows)
                and rows.last_step(tables.writer(f"load:{name}")) == step.id
            ):
                shown, reason = record.materialized_csn, "take back a load that died"
                before = rows.same_rows(record.lake_version)
                rows.restore(before, tables.signed(f"take back:{name}", step.id, shown, reason))
        catalog.steps.abandon(lease, step)


def is_damaged(table: LakeTable) -> bool:
    """Whether a table is there and cannot be read at all."""
    try:
        return table.exists() and table.version() < 0
    except LakeDamaged:
        return True


def is_interrupted(catalog: Catalog, name: str) -> bool:
    """Whether a load of the view was begun and not finished; it may still be at work."""
    return any(step.kind == LoadStep.kind and step.subject == name for step in catalog.steps.unfinished())


LEASE = "apply"

Versions = tuple[int, int]
"""Of the table of a view's rows, and of that of its state."""


@dataclass(frozen=True)
class Rolled:
    """The number of changed rows of each view, −1 if they were too many to count; and which views failed."""

    changed: dict[str, int]
    failed: dict[str, Exception]


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
        rolled = self.run_all(targets, reason, wait_seconds)
        for error in rolled.failed.values():
            raise error
        return rolled.changed

    def run_all(self, targets: Mapping[str, int], reason: str, wait_seconds: float = 0.0) -> Rolled:
        """The same, where a view that fails keeps the others from nothing."""
        catalog = self.catalog
        for name in targets:
            self._take_back(name)
        with catalog.lease(LEASE, wait_seconds) as lease:
            self.recover(lease)
            records = catalog.views.all()
            moving = {name: csn for name, csn in targets.items() if csn > records[name].materialized_csn}
            if not moving:
                return Rolled({}, {})
            ranges = {name: CsnRange(records[name].materialized_csn, csn) for name, csn in moving.items()}
            step = catalog.steps.begin(lease, ",".join(moving), ApplyStep(ranges, reason))
            return self._run(lease, step)

    def _take_back(self, name: str) -> None:
        """Takes a load back that died; one that is still at work holds the lease."""
        if is_interrupted(self.catalog, name):
            with suppress(LeaseHeld), self.catalog.lease(f"propagate:{name}") as lease:
                take_back(self.catalog, self.tables, lease, name)

    def recover(self, lease: Lease) -> None:
        """Finishes a step that was begun."""
        for step in self.catalog.steps.pending(ApplyStep):
            self._run(lease, step)

    def _run(self, lease: Lease, step: Step[ApplyStep]) -> Rolled:
        with timed_step(self.events, "apply", ", ".join(step.bounds.views), step.id) as timer:
            return self._roll_all(lease, step, timer)

    def _roll_all(self, lease: Lease, step: Step[ApplyStep], timer: StepTimer) -> Rolled:
        """Rolls every view of the step, then makes all of them known that could be rolled."""
        failed: dict[str, Exception] = {}

        def one(name: str) -> tuple[Versions, int] | None:
            after, upto = step.bounds.views[name]
            try:
                with naming(self.stored.views.named(name), upto):
                    return self._roll(name, step.id, after, upto, timer)
            except Exception as error:
                # After a passing error the step is retried as it is, with what was written.
                if concerns_all(error) or not is_lasting(error):
                    raise
                failed[name] = error
                self._undo(name, step)
                return None

        # A view that was reloaded after the step had begun, or dropped, is no longer the step's business.
        records = self.catalog.views.all()
        standing = {name: record.materialized_csn for name, record in records.items()}
        names = [name for name, (after, _) in step.bounds.views.items() if standing.get(name) == after]
        done = zip(names, side_by_side(self.session.work_pool, one, names), strict=True)
        rolled = {name: each for name, each in done if each is not None}
        effects: list[Materialized | Refreshed] = []
        refreshes: list[Refresh] = []
        for name, (versions, rows) in rolled.items():
            after, upto = step.bounds.views[name]
            reason = step.bounds.reason
            refresh = Refresh(name, "incremental", after, upto, rows, timer.seconds, reason, time.time())
            effects += [Materialized(name, upto, *versions), Refreshed(refresh)]
            refreshes.append(refresh)
        with timer.phase("commit"):
            self.catalog.steps.finish(lease, step, *effects)
        self._report(refreshes)
        changed = {name: rows for name, (_, rows) in rolled.items()}
        timer.rows = None if -1 in changed.values() else sum(changed.values())
        return Rolled(changed, failed)

    def _undo(self, name: str, step: Step[ApplyStep]) -> None:
        """A view that fails half way shows what it showed, as far as its tables let that happen."""
        record = self.catalog.views.get(name)
        tables, csn = self.tables.of_view(name, record.generation), record.materialized_csn
        for table, version in ((tables.rows, record.lake_version), (tables.state, record.state_version)):
            with suppress(LakeError):
                if version and table.last_step(self.tables.writer("apply")) == step.id:
                    why = "take back what could not be applied"
                    before = table.same_rows(version)
                    table.restore(before, self.tables.signed(f"undo:{name}", step.id, csn, why))

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
        return (versions[0], versions[1]), delta.table().num_rows if delta.place == "driver" else -1

"""load: a view's first content, or a new one from scratch, while the sources keep changing.

Its relations are read as they are, aligned to one csn, and the content that follows replaces whatever the
view's table held. A load that was interrupted is simply done again: until the catalog knows of the new
content, the old one and its delta stay as they were, or the view is not there at all.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rollview import events
from rollview.algebra.derivation import derive
from rollview.algebra.view import View, is_stage
from rollview.algorithms.effects import ForwardQuery
from rollview.bags import PlacedBag
from rollview.catalog import (
    Catalog,
    Lease,
    LoadStep,
    PropagateStep,
    Refresh,
    Refreshed,
    SpanEnded,
    Step,
    ViewAdded,
    ViewDropped,
    ViewRecord,
)
from rollview.errors import EvaluationError, LakeDamaged
from rollview.events import Events
from rollview.lake import Commit
from rollview.maintain.apply import LEASE as APPLY
from rollview.maintain.apply import is_damaged, take_back
from rollview.maintain.snapshot import Reading, SnapshotReader
from rollview.maintain.truncations import newest_side, reach_of
from rollview.runtime.progress import ROWS, ProgressMeter, StepTimer, timed_step
from rollview.runtime.session import Session
from rollview.storage.lake_tables import LakeTables
from rollview.storage.stored_bag import rows_bag, state_bag
from rollview.storage.stored_view import StoredViews
from rollview.views.equivalence_check import check_meaning, sample
from rollview.views.layout import Layout, Stored
from rollview.views.properties import algorithm_of, digest, is_full, policy_of
from rollview.views.resumable import begun_again, detached, histories_of
from rollview.views.uncomputable import naming
from rollview.views.views import Views

PATIENCE_SECONDS = 120.0
_MOST_CANDIDATES = 16
"""How many csn are tried, one by one, until a view can be computed; after that the newest is taken."""


@dataclass(frozen=True)
class _Loading:
    """A load that has begun."""

    view: View
    layout: Layout
    reason: str
    lease: Lease
    step: Step[LoadStep]
    histories: dict[str, str]
    timer: StepTimer


@dataclass(frozen=True)
class LoadDriver:
    """Loads views."""

    catalog: Catalog
    tables: LakeTables
    views: Views
    snapshots: SnapshotReader
    session: Session
    events: Events

    def refresh(self, name: str, csn: int, wait_seconds: float) -> None:
        """Recomputes a view that has been set up, at a csn."""
        view = self.views.named(name)
        self.run(view, self.views.layout(name), "full refresh", wait_seconds, at=csn)

    def give_up_interrupted(self, name: str, wait_seconds: float) -> None:
        """Ends a load that died, of a view that keeps what it shows: nobody has seen what it wrote."""
        if self.catalog.steps.pending(LoadStep, name):
            with self.catalog.lease(f"propagate:{name}", wait_seconds) as lease:
                take_back(self.catalog, self.tables, lease, name)

    def run(
        self,
        view: View,
        layout: Layout,
        reason: str,
        wait_seconds: float = 0.0,
        at: int | None = None,
        since: int | None = None,
    ) -> ViewRecord:
        """Loads a view at a csn, by default at the newest one that all its relations reach.

        `since` is a csn at which it could not be computed: it is loaded at the first one behind it at which
        it can be.
        """
        with self._loading(view, layout, reason, wait_seconds) as loading, self.snapshots.scratch() as folder:
            timer = loading.timer
            with timer.phase("lookups"), self._watched(view, folder):
                readings = self.snapshots.read(view.tables, folder)
            if at is None and since is None:
                with timer.phase("check"), naming(view, self.catalog.history.last_csn()):
                    self._check_meaning(view, layout, readings, folder)
            csn = self._common_csn(view, readings.values()) if at is None else at
            with timer.phase("compute"):
                csn, state = self._computed(view, readings, csn, since)
                contents = layout.contents(state)
            return self._replace(loading, csn, contents)

    def _watched(self, view: View, folder: Path) -> AbstractContextManager[None]:
        meter = ProgressMeter(self.events, "load", view.name, ROWS)
        return self.snapshots.watched(meter, view.tables, folder)

    def derive(self, view: View, layout: Layout, reason: str, stored: str, wait_seconds: float) -> bool:
        """Computes a view from what a former part of it has stored; whether that can still be done."""
        catalog, old = self.catalog, self.views.named(stored)
        derivation = derive(view.root.form, old.root.form)
        with self._loading(view, layout, reason, wait_seconds) as loading, ExitStack() as held:
            if stored != view.name:
                # While it does not move, the changes after it, which are needed now, are not pruned.
                held.enter_context(catalog.lease(f"propagate:{stored}", wait_seconds))
            gone = begun_again(catalog.now, old) if is_full(old) else detached(catalog.now, old)
            if derivation is None or gone:
                return False
            csn = (
                catalog.views.get(stored).materialized_csn
                if is_full(old)
                else catalog.views.high_water(stored)
            )
            try:
                with loading.timer.phase("compute"):
                    former = StoredViews(catalog, self.tables, self.views, self.session).open(stored)
                    contents = layout.contents(derivation.run(former.state_at(csn)))
            except LakeDamaged:
                # An edited view is loaded whatever became of its tables.
                return False
            self._replace(loading, csn, contents)
            return True

    @contextmanager
    def _loading(self, view: View, layout: Layout, reason: str, wait_seconds: float) -> Iterator[_Loading]:
        """Begins a load, and takes back what an earlier one that died has left."""
        catalog, name = self.catalog, view.name
        with catalog.lease(f"propagate:{name}", wait_seconds) as lease:
            take_back(catalog, self.tables, lease, name)
            catalog.steps.abandon_pending(lease, name, PropagateStep)
            step = catalog.steps.begin(lease, name, LoadStep())
            # Before anything is read: what begins again after this has to be noticed.
            histories = histories_of(view, catalog.now)
            with timed_step(self.events, "load", name, step.id) as timer:
                yield _Loading(view, layout, reason, lease, step, histories, timer)

    def _replace(self, loading: _Loading, csn: int, contents: Stored) -> ViewRecord:
        """Makes a content at a csn that of the view."""
        catalog, view, layout, timer = self.catalog, loading.view, loading.layout, loading.timer
        name, reason = view.name, loading.reason
        commit = self.tables.signed(f"load:{name}", loading.step.id, csn, f"load: {reason}")
        # Nobody may roll the view's table while its content is replaced.
        with catalog.lease(APPLY, PATIENCE_SECONDS):
            generation = self._next_generation(name)
            with timer.phase("write"), naming(view, csn):
                versions = self._store(layout, generation, contents, commit)
            record = replace(
                _record(view, layout, csn, versions), generation=generation, histories=loading.histories
            )
            positions = dict.fromkeys(_positions(view), csn)
            number = self._rows_of(record, layout)
            seconds, timer.rows = timer.seconds, number
            done = Refreshed(Refresh(name, "full", csn, csn, number, seconds, reason, time.time()))
            former = _former(view, reason) if name in catalog.views.all() else ()
            with timer.phase("commit"):
                catalog.steps.finish(loading.lease, loading.step, *former, ViewAdded(record, positions), done)
        self.events.emit(events.Refreshed(name, "full", csn, number, seconds, reason))
        return record

    def _next_generation(self, name: str) -> int:
        record = self.catalog.views.all().get(name)
        return 1 if record is None else record.generation + 1

    def _computed(
        self, view: View, readings: dict[str, Reading], csn: int, since: int | None
    ) -> tuple[int, PlacedBag]:
        """The view's state at a csn, or at the first one after `since` at which it can be computed."""
        if since is None:
            return csn, self._state_at(view, readings, csn)
        for candidate in self._changes_of(view, since, csn):
            with suppress(EvaluationError), naming(view, candidate):
                return candidate, self._state_at(view, readings, candidate).computed()
        with naming(view, csn):
            return csn, self._state_at(view, readings, csn).computed()

    def _changes_of(self, view: View, after: int, upto: int) -> Iterator[int]:
        """The first csn of a range at which what the view reads has changed, and can still be read."""
        names = [table.qualified for table in view.tables if table.source]
        after = max(after, newest_side(self.catalog, view.tables) - 1)
        for _ in range(_MOST_CANDIDATES):
            if not any(self.catalog.history.touched(name, after, upto) for name in names):
                return
            after = self.catalog.history.next_csn_touching(names, after, 1)
            yield after

    def _state_at(self, view: View, readings: dict[str, Reading], csn: int) -> PlacedBag:
        """The view's state at a csn, computed from its relations."""
        return view.root.state_of(self.snapshots.contents_at(view, readings, csn))

    def _check_meaning(self, view: View, layout: Layout, readings: dict[str, Reading], folder: Path) -> None:
        """Tries what was read on Spark as well; a view is tried with its stages, from base tables."""
        if is_stage(view.name):
            return
        if missing := [table for table in view.named_tables if table.qualified not in readings]:
            readings = readings | self.snapshots.read(missing, folder)
        tables = {table.qualified: self._newest(readings[table.qualified]) for table in view.named_tables}
        check_meaning(self.session.spark, view, layout, sample(view, tables))

    def _newest(self, reading: Reading) -> PlacedBag:
        """The rows that were read, of a view with its whole delta: one of them may be repaired by now."""
        table = reading.table
        if table.source or is_full(self.views.named(table.name)):
            return reading.rows
        return self.snapshots.at_csn(reading, self.catalog.views.high_water(table.name))

    def _common_csn(self, view: View, readings: Iterable[Reading]) -> int:
        """The newest csn at which every relation can be read: views that are read may lag behind.

        A table may have been truncated since it was read.
        """
        catalog, last = self.catalog, self.catalog.history.last_csn()
        reached = [catalog.views.high_water(table.name) for table in view.tables if not table.source]
        limits = [reach_of(catalog, reading.table, reading.saw) for reading in readings]
        return min([last, *reached, *(limit for limit in limits if limit is not None)])

    def _store(self, layout: Layout, generation: int, contents: Stored, commit: Commit) -> tuple[int, int]:
        """Replaces the rows for everybody; state and delta get new tables. Returns the versions of both."""
        tables = self.tables.of_view(layout.view.name, generation)
        for left_by_a_dead_load in (tables.state, tables.deltas):
            self.tables.drop(left_by_a_dead_load)
        tables = self.tables.of_view(layout.view.name, generation)
        if layout.has_delta:
            tables.deltas.create(layout.delta_table)
        state_version = rows_version = 0
        if contents.state is not None:
            bag = state_bag(self.session, layout, tables.state)
            state_version = bag.replace(contents.state, commit)
        # Last: this is what others see at once.
        if contents.rows is not None:
            if is_damaged(tables.rows):
                self.tables.drop(tables.rows)
                tables = self.tables.of_view(layout.view.name, generation)
            rows_bag(self.session, layout, tables.rows).replace(contents.rows, commit)
            self.tables.describe(layout.view, layout.columns, commit.csn)
            rows_version = tables.rows.version()
        return rows_version, state_version

    def _rows_of(self, record: ViewRecord, layout: Layout) -> int:
        """How many rows have been stored."""
        tables = self.tables.of_view(record.name, record.generation)
        if layout.has_rows:
            return sum(file.rows for file in tables.rows.files(version=record.lake_version))
        return sum(file.rows for file in tables.state.files(version=record.state_version))


def _former(view: View, reason: str) -> tuple[ViewDropped | SpanEnded, ...]:
    """The effect on the content that is replaced; without a delta readers cannot use it."""
    return (ViewDropped(view.name),) if is_full(view) else (SpanEnded(view.name, reason),)


def _record(view: View, layout: Layout, csn: int, versions: tuple[int, int]) -> ViewRecord:
    return ViewRecord(
        name=view.name,
        sql=view.sql,
        digest=digest(view),
        columns=layout.columns,
        stored=layout.state,
        loaded_csn=csn,
        oldest_csn=csn,
        materialized_csn=csn,
        lake_version=versions[0],
        state_version=versions[1],
        tables=tuple(table for table in view.named_tables if table.source),
        policy=policy_of(view),
        types={part.name: part.types for part in view.parts if part.types},
    )


def _positions(view: View) -> list[ForwardQuery]:
    return list(algorithm_of(view).positions(view)) if not is_full(view) else []

"""load: a view's first content, or a new one from scratch, while the sources go on.

Its relations are read as they are, aligned to one csn, and the content that follows replaces whatever the
view's table held. A load that was interrupted is simply done again: until the catalog knows of the new
content, the old one and its delta stay as they were, or the view is not there at all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from rollview import events
from rollview.algebra.history import CSN
from rollview.algebra.view import View, is_stage
from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import (
    Catalog,
    DropStep,
    Lease,
    LoadStep,
    PropagateStep,
    Refresh,
    Refreshed,
    ViewAdded,
    ViewDropped,
    ViewRecord,
)
from rollview.events import Events
from rollview.lake import Commit
from rollview.service.apply import LEASE as APPLY
from rollview.service.content import block_contents, with_stages
from rollview.service.definitions import algorithm_of, digest, is_full, policy_of
from rollview.service.lake_tables import LakeTables
from rollview.service.layout import Layout, Stored, layout_of
from rollview.service.meaning import check_meaning, sample
from rollview.service.session import Session
from rollview.service.snapshot import Reading, SnapshotReader
from rollview.service.step_timer import timed_step
from rollview.service.stored_bag import StoredBag
from rollview.service.views import Views
from rollview.spark import SparkBag

PATIENCE_SECONDS = 120.0


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
        self.run(view, layout_of(self.session.spark, view), "full refresh", wait_seconds, at=csn)

    def give_up_interrupted(self, name: str, wait_seconds: float) -> None:
        """Ends a load that died, of a view that keeps what it shows: nobody has seen what it wrote."""
        if self.catalog.pending(LoadStep, name):
            with self.catalog.lease(f"propagate:{name}", wait_seconds) as lease:
                self.catalog.abandon_pending(lease, name, LoadStep)

    def run(
        self,
        view: View,
        layout: Layout,
        reason: str,
        wait_seconds: float = 0.0,
        at: int | None = None,
    ) -> ViewRecord:
        """Loads a view at a csn, by default at the newest one that all its relations reach."""
        catalog, name = self.catalog, view.name
        with catalog.lease(f"propagate:{name}", wait_seconds) as lease, self.snapshots.scratch() as folder:
            catalog.abandon_pending(lease, name, LoadStep, PropagateStep)
            step = catalog.begin(lease, name, LoadStep())
            with timed_step(self.events, "load", name, step.id) as timer:
                with timer.phase("lookups"):
                    readings = self.snapshots.read(view.tables, folder)
                if at is None:
                    with timer.phase("check"):
                        self._check_meaning(view, layout, readings, folder)
                csn = self._common_csn(view) if at is None else at
                with timer.phase("compute"):
                    contents = layout.contents(self._state_at(view, readings, csn))
                when = catalog.commit_time(csn) or 0.0
                commit = Commit(self.tables.writer(f"load:{name}"), step.id, csn, when, f"load: {reason}")
                # Nobody may roll the view's table while its content is replaced.
                with catalog.lease(APPLY, PATIENCE_SECONDS):
                    self._drop_misfits(lease, name, layout)
                    with timer.phase("write"):
                        versions = self._store(layout, contents, commit)
                    record = _record(view, layout, csn, versions)
                    positions = dict.fromkeys(_positions(view), csn)
                    number = self._rows_of(record, layout)
                    seconds, timer.rows = timer.seconds, number
                    done = Refreshed(Refresh(name, "full", csn, csn, number, seconds, reason, time.time()))
                    with timer.phase("commit"):
                        catalog.finish(lease, step, *self._replaced(name), ViewAdded(record, positions), done)
                    deltas = self.tables.delta_table(name)
                    # Not before: the old content could be rolled until now. The new one begins after this.
                    if old := [file for file in deltas.files() if file.maximum.get(CSN, csn + 1) <= csn]:
                        deltas.replace(old, [], commit)
        self.events.emit(events.Refreshed(name, "full", csn, number, seconds, reason))
        return record

    def _replaced(self, name: str) -> list[ViewDropped]:
        """The view as it was, and the views that live on its delta: they have to be loaded after it."""
        views = self.views.all()
        if name not in views:
            return []
        losing = {name}
        for other, view in views.items():
            if not is_full(view) and any(table.qualified in losing for table in view.tables):
                losing.add(other)
        return [ViewDropped(other) for other in reversed(views) if other in losing]

    def _drop_misfits(self, lease: Lease, name: str, layout: Layout) -> None:
        """Removes tables that do not fit, or are needed no more; the catalog forgets the view first."""
        wanted = layout.tables(self.tables)
        found = [table for table in self.tables.all_of_view(name) if table.exists()]
        misfits = [table for table in found if table.columns != wanted.get(table)]
        if not misfits:
            return
        catalog = self.catalog
        if dropped := self._replaced(name):
            catalog.finish(lease, catalog.begin(lease, name, DropStep()), *dropped)
        for table in misfits:
            self.tables.drop(table)

    def _state_at(self, view: View, readings: dict[str, Reading], csn: int) -> SparkBag:
        """The view's state at a csn, computed from its relations."""
        tables = {name: self.snapshots.at_csn(reading, csn) for name, reading in readings.items()}
        if not view.stores_stages:
            tables = with_stages(view, tables)
        return view.root.state_of(block_contents(view.root, tables))

    def _check_meaning(self, view: View, layout: Layout, readings: dict[str, Reading], folder: Path) -> None:
        """Tries what was read on Spark as well; a view is tried with its stages, from base tables."""
        if is_stage(view.name):
            return
        if missing := [table for table in view.named_tables if table.qualified not in readings]:
            readings = readings | self.snapshots.read(missing, folder)
        tables = {table.qualified: readings[table.qualified].rows for table in view.named_tables}
        check_meaning(self.session.spark, view, layout, sample(view, tables))

    def _common_csn(self, view: View) -> int:
        """The newest csn at which every relation can be had: views that are read may lag behind."""
        catalog = self.catalog
        reached = [catalog.high_water(table.name) for table in view.tables if not table.source]
        return min([catalog.last_csn(), *reached])

    def _store(self, layout: Layout, contents: Stored, commit: Commit) -> tuple[int, int]:
        """Replaces what the view's tables hold, and makes missing ones; returns their versions."""
        name = layout.view.name
        for table, columns in layout.tables(self.tables).items():
            table.create(columns)
        bags = (
            (self.tables.view_table(name), layout.rows_order, contents.rows),
            (self.tables.state_table(name), layout.state_order, contents.state),
        )
        versions = [
            0 if rows is None else StoredBag(self.session, table, name, 0, order).replace(rows, commit)
            for table, order, rows in bags
        ]
        return versions[0], versions[1]

    def _rows_of(self, record: ViewRecord, layout: Layout) -> int:
        """How many rows have been stored."""
        name = record.name
        if layout.has_rows:
            files = self.tables.view_table(name).files(version=record.lake_version)
        else:
            files = self.tables.state_table(name).files(version=record.state_version)
        return sum(file.rows for file in files)


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
        policy=policy_of(view),
        types={part.name: part.types for part in view.parts if part.types},
    )


def _positions(view: View) -> list[ForwardQuery]:
    return list(algorithm_of(view).positions(view)) if not is_full(view) else []

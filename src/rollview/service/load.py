"""load: a view's first content, or a new one from scratch, while the sources go on.

Its relations are read as they are, aligned to one csn, and the content that follows replaces whatever the
view's table held. A load that was interrupted is simply done again: until the catalog knows of the new
content, the old one and its delta stay as they were, or the view is not there at all.
"""

from __future__ import annotations

import time

from rollview import events
from rollview.algebra.history import CSN
from rollview.algebra.view import View
from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import (
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
from rollview.lake import Commit
from rollview.service.apply import LEASE as APPLY
from rollview.service.content import block_contents
from rollview.service.definitions import algorithm_of, digest, is_full, policy_of
from rollview.service.layout import Layout
from rollview.service.snapshot import Reading, at_csn, read_tables, scratch
from rollview.service.step_timer import timed_step
from rollview.service.warehouse import Warehouse
from rollview.spark import SparkBag

PATIENCE_SECONDS = 120.0


def load(
    warehouse: Warehouse,
    view: View,
    layout: Layout,
    reason: str,
    wait_seconds: float = 0.0,
    at: int | None = None,
) -> ViewRecord:
    """Loads a view at a csn, by default at the newest one that all its relations reach."""
    catalog, name = warehouse.catalog, view.name
    with catalog.lease(f"propagate:{name}", wait_seconds) as lease, scratch(warehouse) as folder:
        catalog.abandon_pending(lease, name, LoadStep, PropagateStep)
        step = catalog.begin(lease, name, LoadStep())
        with timed_step(warehouse.events, "load", name, step.id) as timer:
            with timer.phase("lookups"):
                readings = read_tables(warehouse, view.tables, folder)
            csn = _common_csn(warehouse, view) if at is None else at
            with timer.phase("compute"):
                state = state_at(warehouse, view, readings, csn)
                rows = SparkBag(layout.to_stored(state)).computed()
            when = catalog.commit_time(csn) or 0.0
            commit = Commit(warehouse.writer(f"load:{name}"), step.id, csn, when, f"load: {reason}")
            # Nobody may roll the view's table while its content is replaced.
            with catalog.lease(APPLY, PATIENCE_SECONDS):
                _drop_misfits(warehouse, lease, name, layout)
                with timer.phase("write"):
                    version = _store(warehouse, name, layout, rows, commit)
                record = _record(view, layout, csn, version)
                positions = dict.fromkeys(_positions(view), csn)
                number = sum(file.rows for file in warehouse.view_table(name).files(version=version))
                seconds, timer.rows = timer.seconds, number
                done = Refreshed(Refresh(name, "full", csn, csn, number, seconds, reason, time.time()))
                with timer.phase("commit"):
                    catalog.finish(
                        lease, step, *_replaced(warehouse, name), ViewAdded(record, positions), done
                    )
                deltas = warehouse.delta_table(name)
                # Not before: the old content could be rolled until now. The new one begins after all of this.
                if old := [file for file in deltas.files() if file.maximum.get(CSN, csn + 1) <= csn]:
                    deltas.replace(old, None, commit)
    warehouse.events.emit(events.Refreshed(name, "full", csn, number, seconds, reason))
    return record


def _replaced(warehouse: Warehouse, name: str) -> list[ViewDropped]:
    """The view as it was, and the views that live on its delta: they have to be loaded after it."""
    if name not in warehouse.views:
        return []
    losing = {name}
    for other, view in warehouse.views.items():
        if not is_full(view) and any(table.qualified in losing for table in view.tables):
            losing.add(other)
    return [ViewDropped(other) for other in reversed(warehouse.views) if other in losing]


def _drop_misfits(warehouse: Warehouse, lease: Lease, name: str, layout: Layout) -> None:
    """Removes tables with other columns; the catalog forgets the view first."""
    tables = {warehouse.delta_table(name): layout.delta, warehouse.view_table(name): layout.stored}
    misfits = [table for table, columns in tables.items() if table.exists() and table.columns != columns]
    if not misfits:
        return
    catalog = warehouse.catalog
    if dropped := _replaced(warehouse, name):
        catalog.finish(lease, catalog.begin(lease, name, DropStep()), *dropped)
    for table in misfits:
        warehouse.drop_table(table)


def _record(view: View, layout: Layout, csn: int, version: int) -> ViewRecord:
    return ViewRecord(
        name=view.name,
        sql=view.sql,
        digest=digest(view),
        columns=layout.columns,
        stored=layout.state,
        loaded_csn=csn,
        oldest_csn=csn,
        materialized_csn=csn,
        lake_version=version,
        policy=policy_of(view),
    )


def state_at(warehouse: Warehouse, view: View, readings: dict[str, Reading], csn: int) -> SparkBag:
    """The view's state at a csn, computed from its relations."""
    tables = {name: at_csn(warehouse, reading, csn) for name, reading in readings.items()}
    return view.root.state_of(block_contents(view.root, tables))


def _common_csn(warehouse: Warehouse, view: View) -> int:
    """The newest csn at which every relation can be had: views that are read may lag behind."""
    catalog = warehouse.catalog
    reached = [catalog.high_water(table.name) for table in view.tables if not table.source]
    return min([catalog.last_csn(), *reached])


def _positions(view: View) -> list[ForwardQuery]:
    return list(algorithm_of(view).positions(view)) if not is_full(view) else []


def _store(warehouse: Warehouse, name: str, layout: Layout, rows: SparkBag, commit: Commit) -> int:
    """Replaces the content of the view's table; makes both tables where they are not there."""
    table = warehouse.view_table(name)
    warehouse.delta_table(name).create(layout.delta)
    table.create(layout.stored)
    order = [layout.stored_name[name] for name in layout.order]
    return table.replace(table.files(), rows.rows(), commit, sort_by=order)

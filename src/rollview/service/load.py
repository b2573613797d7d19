"""load: a view's first content, or a new one from scratch, while the sources go on.

Its relations are read as they are, aligned to one csn, and the content that follows replaces whatever the
view's table held. A load that was interrupted leaves no trace in the catalog and is simply done again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rollview.algebra.lift import initial_state
from rollview.algebra.view import View
from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import Refresh, Refreshed, ViewAdded, ViewDropped, ViewRecord
from rollview.lake import Commit
from rollview.service.apply import LEASE as APPLY
from rollview.service.content import content
from rollview.service.definitions import algorithm_of, digest, is_full, policy_of
from rollview.service.layout import Layout
from rollview.service.snapshot import Reading, at_csn, read_tables, scratch
from rollview.service.warehouse import Warehouse
from rollview.spark import SparkBag

PATIENCE_SECONDS = 120.0


def load(
    warehouse: Warehouse, view: View, layout: Layout, reason: str, wait_seconds: float = 0.0
) -> ViewRecord:
    """Loads a view at the newest csn that all its relations reach."""
    catalog, name = warehouse.catalog, view.name
    started = time.monotonic()
    with catalog.lease(f"propagate:{name}", wait_seconds) as lease, scratch(warehouse) as folder:
        for unfinished in (*catalog.pending("load", name), *catalog.pending("propagate", name)):
            catalog.abandon(lease, unfinished)
        step = catalog.begin(lease, "load", name, {})
        readings = read_tables(warehouse, view.tables, folder)
        csn = _common_csn(warehouse, view)
        state = state_at(warehouse, view, readings, csn)
        rows = SparkBag(layout.to_stored(state if layout.is_aggregate else state.net_effect())).computed()
        commit = Commit(
            warehouse.writer(f"load:{name}"), step.id, csn, catalog.commit_time(csn) or 0.0, f"load: {reason}"
        )
        # Nobody may roll the view's table while its content is replaced.
        with catalog.lease(APPLY, PATIENCE_SECONDS):
            version = _store(warehouse, name, layout, rows, commit)
            record = _record(view, layout, csn, version)
            positions = dict.fromkeys(_positions(view), csn)
            number = sum(file.rows for file in warehouse.view_table(name).files(version=version))
            seconds = time.monotonic() - started
            done = Refreshed(Refresh(name, "full", csn, csn, number, seconds, reason, time.time()))
            replaced = [ViewDropped(name)] if name in catalog.views() else []
            catalog.finish(lease, step, *replaced, ViewAdded(record, positions), done)
    return record


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
    relations: Sequence[Sequence[SparkBag]] = [
        [tables[relation.table.qualified] for relation in block.relations] for block in view.blocks
    ]
    return initial_state(view.root, content(view.root, relations))


def _common_csn(warehouse: Warehouse, view: View) -> int:
    """The newest csn at which every relation can be had: views that are read may lag behind."""
    catalog = warehouse.catalog
    reached = [catalog.high_water(table.name) for table in view.tables if not table.source]
    return min([catalog.last_csn(), *reached])


def _positions(view: View) -> list[ForwardQuery]:
    return list(algorithm_of(view).positions(view)) if not is_full(view) else []


def _store(warehouse: Warehouse, name: str, layout: Layout, rows: SparkBag, commit: Commit) -> int:
    """Replaces the content of the view's table, and empties its delta table."""
    deltas, table = warehouse.delta_table(name), warehouse.view_table(name)
    for each, columns in ((deltas, layout.delta), (table, layout.stored)):
        if each.exists() and each.columns != columns:
            warehouse.drop_table(each)
    deltas, table = warehouse.delta_table(name), warehouse.view_table(name)
    deltas.create(layout.delta)
    table.create(layout.stored)
    if old := deltas.files():
        deltas.replace(old, None, commit)
    order = [layout.stored_name[name] for name in layout.order]
    return table.replace(table.files(), rows.rows(), commit, sort_by=order)

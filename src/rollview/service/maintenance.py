"""Keeping the lake small: logs are compacted, and pruned once no view needs them and their time is over."""

from __future__ import annotations

import time

from rollview.catalog import CondenseStep, MaintainStep, Retained
from rollview.events import Maintained
from rollview.lake import Commit, LakeTable
from rollview.service.apply import LEASE as APPLY
from rollview.service.apply import recover as recover_apply
from rollview.service.capture import LEASE as CAPTURE
from rollview.service.capture import recover as recover_capture
from rollview.service.propagate import Propagation
from rollview.service.warehouse import Warehouse

CHANGES = "(changes)"
"""The subject of steps that look after all change logs; no view can have this name."""

MANY_FILES = 32
"""A log with more small files than this is compacted."""


def maintain(warehouse: Warehouse) -> dict[str, int]:
    """Compacts and prunes whatever is due; returns what was done, by table."""
    done: dict[str, int] = {}
    _maintain_changes(warehouse, done)
    for name in warehouse.views:
        _maintain_view(warehouse, name, done)
    return done


def _maintain_changes(warehouse: Warehouse, done: dict[str, int]) -> None:
    catalog = warehouse.catalog
    with catalog.lease(CAPTURE, 5.0) as lease:
        recover_capture(warehouse, lease)
        for unfinished in catalog.pending(MaintainStep, CHANGES):
            catalog.abandon(lease, unfinished)
        tables = catalog.tables()
        upto = min(
            catalog.csn_at(time.time() - warehouse.project.retention.changes), needed_by_views(warehouse)
        )
        step = catalog.begin(lease, CHANGES, MaintainStep(upto))
        when = catalog.commit_time(catalog.last_csn()) or 0.0
        for name, table in tables.items():
            log = warehouse.change_log(table)
            _shrink(warehouse, log, f"changes/{name}", step.id, upto, catalog.last_csn(), when, done)
            log.vacuum(warehouse.project.retention.files)
        catalog.finish(lease, step)
        oldest = [record.oldest_csn for record in catalog.views().values()]
        catalog.prune_history(min([upto, *oldest]))


def _maintain_view(warehouse: Warehouse, name: str, done: dict[str, int]) -> None:
    catalog = warehouse.catalog
    with catalog.lease(f"propagate:{name}", 5.0) as lease, catalog.lease(APPLY, 5.0) as applying:
        recover_apply(warehouse, applying)
        Propagation(warehouse, warehouse.view(name), lease).recover()
        for unfinished in catalog.pending(MaintainStep, name):
            catalog.abandon(lease, unfinished)
        for interrupted in catalog.pending(CondenseStep, name):
            catalog.abandon(lease, interrupted)
        record = catalog.views()[name]
        kept_since = catalog.csn_at(time.time() - warehouse.project.retention.deltas)
        readers = {name, *_readers(warehouse, name)}
        upto = min(kept_since, *(_passed(warehouse, reader) for reader in readers))
        oldest = max(upto, record.oldest_csn)
        step = catalog.begin(lease, name, MaintainStep(oldest))
        # First nobody may ask for what is about to go, then it goes.
        catalog.finish(lease, step, Retained(name, oldest))
        when = catalog.commit_time(catalog.last_csn()) or 0.0
        deltas = warehouse.delta_table(name)
        _shrink(warehouse, deltas, f"deltas/{name}", step.id, oldest, catalog.high_water(name), when, done)
        for table in (deltas, warehouse.view_table(name)):
            table.vacuum(warehouse.project.retention.files)


def _shrink(
    warehouse: Warehouse,
    table: LakeTable,
    name: str,
    step: int,
    upto: int,
    csn: int,
    when: float,
    done: dict[str, int],
) -> None:
    if dropped := table.prune(upto, Commit(warehouse.writer("prune"), step, csn, when, "prune")):
        done[f"{name}: rows pruned"] = dropped
        warehouse.events.emit(Maintained(name, "rows pruned", dropped))
    if len(table.files()) > MANY_FILES:
        before = len(table.files())
        if table.compact(Commit(warehouse.writer("compact"), step, csn, when, "compact")) is not None:
            fewer = done[f"{name}: files compacted"] = before - len(table.files())
            warehouse.events.emit(Maintained(name, "files compacted", fewer))


def needed_by_views(warehouse: Warehouse) -> int:
    """No change log may lose what a position of any view has not passed, or what a view shows."""
    return min((_passed(warehouse, name) for name in warehouse.views), default=0)


def _passed(warehouse: Warehouse, name: str) -> int:
    """What a view has behind it: neither its propagation nor a recomputation of what it shows reads it."""
    catalog = warehouse.catalog
    return min([*catalog.positions(name).values(), catalog.views()[name].materialized_csn])


def _readers(warehouse: Warehouse, name: str) -> list[str]:
    return [
        other
        for other, view in warehouse.views.items()
        if any(table.qualified == name for table in view.tables)
    ]

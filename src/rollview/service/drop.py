"""drop: forgets views and captured tables, first in the catalog, then in the lake."""

from __future__ import annotations

from collections.abc import Mapping

from rollview.algebra.relation import Table
from rollview.catalog import CondenseStep, DropStep, LoadStep, MaintainStep, PropagateStep, ViewDropped
from rollview.service.warehouse import Warehouse

PATIENCE_SECONDS = 30.0


def drop(warehouse: Warehouse, name: str) -> None:
    """Forgets a view and removes its tables from the lake."""
    catalog = warehouse.catalog
    with catalog.lease(f"propagate:{name}", PATIENCE_SECONDS) as lease:
        catalog.abandon_pending(lease, name, LoadStep, PropagateStep, DropStep, MaintainStep, CondenseStep)
        step = catalog.begin(lease, name, DropStep())
        catalog.finish(lease, step, ViewDropped(name))
        for table in (warehouse.view_table(name), warehouse.delta_table(name)):
            warehouse.drop_table(table)


def forget_tables(warehouse: Warehouse, tables: Mapping[str, Table]) -> None:
    """Drops the views that read these tables, then the tables with their change logs; of whole sites."""
    for name in tables:
        for view in readers(warehouse, name):
            drop(warehouse, view)
    # All at once: half a site could neither be captured nor be told from a whole one.
    warehouse.catalog.unregister(list(tables))
    for table in tables.values():
        warehouse.drop_table(warehouse.change_log(table))


def readers(warehouse: Warehouse, name: str) -> list[str]:
    """The views that read a table, themselves or through other views; those furthest from it first."""
    reading = {name}
    for view in warehouse.views.values():
        if any(table.qualified in reading for table in view.tables):
            reading.add(view.name)
    return [view for view in reversed(warehouse.views) if view in reading]

"""A load that died is taken back: the view shows what the catalog says, for every reader."""

from __future__ import annotations

from rollview.catalog import Catalog, Lease, LoadStep
from rollview.errors import LakeDamaged
from rollview.lake import LakeTable
from rollview.service.lake_tables import LakeTables


def take_back(catalog: Catalog, tables: LakeTables, lease: Lease, name: str) -> None:
    """Ends a load of a view that was begun by somebody who is gone; `lease` is that of the view.

    If it had replaced the rows already, they are those of before again. The tables that it made for state and
    delta nobody knows; the next load, or maintenance, removes them.
    """
    for step in catalog.pending(LoadStep, name):
        record = catalog.views().get(name)
        if record is not None:
            rows = tables.of_view(name, record.generation).rows
            if (
                rows.exists()
                and not is_damaged(rows)
                and rows.last_step(tables.writer(f"load:{name}")) == step.id
            ):
                shown, reason = record.materialized_csn, "take back a load that died"
                rows.restore(record.lake_version, tables.signed(f"take back:{name}", step.id, shown, reason))
        catalog.abandon(lease, step)


def is_damaged(table: LakeTable) -> bool:
    """Whether a table is there and cannot be read at all."""
    try:
        return table.exists() and table.version() < 0
    except LakeDamaged:
        return True


def is_interrupted(catalog: Catalog, name: str) -> bool:
    """Whether a load of the view was begun and not finished; it may still be at work."""
    return any(step.kind == LoadStep.kind and step.subject == name for step in catalog.unfinished())

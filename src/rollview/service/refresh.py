"""refresh: several views, rolled to one time.

What is asked for is captured, propagated and applied, in this order, each only as far as needed. A view that
is not maintained by deltas (policy `snapshot`, or `rollview.refresh` = `full`) is computed anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from rollview.errors import InputError, LeaseHeld
from rollview.service.apply import apply
from rollview.service.capture import capture
from rollview.service.definitions import is_full
from rollview.service.layout import layout_of
from rollview.service.load import load
from rollview.service.points_in_time import Covered, check_covered, resolve
from rollview.service.propagate import propagate_all
from rollview.service.warehouse import Warehouse

PATIENCE_SECONDS = 60.0


def refresh(warehouse: Warehouse, names: Sequence[str] | None, to: str | int = "latest") -> int:
    """Refreshes views, by default all, to the same point in time; returns its csn."""
    catalog = warehouse.catalog
    chosen = [warehouse.view(name).name for name in dict.fromkeys(names or ())] or list(warehouse.views)
    with suppress(LeaseHeld):  # Another process captures all the time; what it has is what there is.
        capture(warehouse)
    csn = resolve(catalog, to, catalog.last_csn())
    full = [name for name, view in warehouse.views.items() if name in chosen and is_full(view)]
    rolled = [name for name in chosen if name not in full]
    if full and csn != catalog.last_csn():
        hint = "leave --to out: it can only be computed as of now"
        raise InputError(f"view {full[0]} has no view delta to roll along", subject=full[0], hint=hint)
    for name in rolled:
        covered = Covered(catalog.views()[name].materialized_csn, catalog.last_csn())
        check_covered(catalog, name, csn, covered, "rolled to")
    propagated = [each for each in with_dependencies(warehouse, chosen) if not is_full(warehouse.view(each))]
    if propagated:
        propagate_all(warehouse, propagated, csn, PATIENCE_SECONDS)
    if rolled:
        apply(warehouse, dict.fromkeys(rolled, csn), f"refresh to csn {csn}", PATIENCE_SECONDS)
    for name in full:
        layout = layout_of(warehouse.spark, warehouse.view(name))
        # At the same csn as the others, however much has been captured since.
        load(warehouse, warehouse.view(name), layout, "full refresh", PATIENCE_SECONDS, at=csn)
    return csn


def with_dependencies(warehouse: Warehouse, names: Sequence[str]) -> list[str]:
    """These views and all views they read, dependencies first."""
    needed: set[str] = set(names)
    for name, view in reversed(warehouse.views.items()):
        if name in needed:
            needed.update(table.name for table in view.tables if not table.source)
    return [name for name in warehouse.views if name in needed]

"""drop: forgets views, first in the catalog, then in the lake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rollview.algebra.view import View
from rollview.catalog import (
    Catalog,
    CondenseStep,
    DropStep,
    LoadStep,
    MaintainStep,
    PropagateStep,
    ViewDropped,
)
from rollview.service.lake_tables import LakeTables
from rollview.service.views import Views

PATIENCE_SECONDS = 30.0


@dataclass(frozen=True)
class DropDriver:
    """Drops views."""

    catalog: Catalog
    tables: LakeTables
    views: Views

    def view(self, name: str) -> None:
        """Forgets a view and removes its tables from the lake."""
        catalog = self.catalog
        with catalog.lease(f"propagate:{name}", PATIENCE_SECONDS) as lease:
            catalog.abandon_pending(
                lease, name, LoadStep, PropagateStep, DropStep, MaintainStep, CondenseStep
            )
            step = catalog.begin(lease, name, DropStep())
            catalog.finish(lease, step, ViewDropped(name))
            self.tables.drop_view(name)

    def with_readers(self, name: str) -> None:
        """Drops the views that read a table, or a view with those that read it."""
        for reader in readers_of(self.views.all(), name):
            self.view(reader)


def readers_of(views: Mapping[str, View], name: str) -> list[str]:
    """The views that read a table, themselves or through other views; those furthest from it first.

    A view is one of its own readers. The views come dependencies first.
    """
    reading = {name}
    for view in views.values():
        if any(table.qualified in reading for table in view.tables):
            reading.add(view.name)
    return [view for view in reversed(list(views)) if view in reading]

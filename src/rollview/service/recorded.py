"""What the catalog knows when a setup is planned, read once. For a project that is new: nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.catalog import CaptureStep, Catalog, Fault, UnreadableStep, ViewRecord
from rollview.service.attached import begun_again, detached
from rollview.service.definitions import algorithm_of, digest, is_full
from rollview.service.views import Views


@dataclass(frozen=True)
class Recorded:
    """Views with their records, captured tables, sites; steps that cannot be read, captures that died.

    `detached` are views that cannot go on, `lost` tables of which changes are missing, and why. `recomputed`
    are views without a delta whose rows tell all that is needed to go on by deltas from what they show.
    """

    views: Mapping[str, View] = field(default_factory=dict)
    records: Mapping[str, ViewRecord] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    sites: frozenset[str] = frozenset()
    detached: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, Fault] = field(default_factory=dict)
    unreadable: tuple[UnreadableStep, ...] = ()
    interrupted: tuple[frozenset[str], ...] = ()
    recomputed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, catalog: Catalog, views: Views) -> Recorded:
        """As the catalog has it now."""
        unfinished = catalog.unfinished()
        return cls(
            views=views.all(),
            records=catalog.views(),
            tables=catalog.tables(),
            sites=frozenset(catalog.sites()),
            detached={
                name: reason for name, view in views.all().items() if (reason := detached(catalog, view))
            },
            lost=catalog.faults("table"),
            unreadable=tuple(step for step in unfinished if isinstance(step, UnreadableStep)),
            interrupted=tuple(
                frozenset(step.bounds.sites)
                for step in unfinished
                if not isinstance(step, UnreadableStep) and isinstance(step.bounds, CaptureStep)
            ),
            recomputed=frozenset(
                name
                for name, view in views.all().items()
                if is_full(view) and views.layout(name).is_told_by_rows and not begun_again(catalog, view)
            ),
        )

    def has(self, view: View) -> bool:
        """Whether the view was set up with this definition, or with one that means the same."""
        known, before = self.records.get(view.name), self.views.get(view.name)
        if known is None or before is None or known.digest == digest(view):
            return known is not None and known.digest == digest(view)
        # Other words for the same tree: what is stored, and how it is maintained, stays.
        is_maintained_alike = is_full(before) == is_full(view) and algorithm_of(view).continues(
            algorithm_of(before)
        )
        return known.digest == digest(before) and before.root == view.root and is_maintained_alike

"""refresh: several views, rolled to one time.

A refresh captures, propagates and applies, in this order, each only as far as needed. A view that
is not maintained by deltas (policy `snapshot`, or `rollview.refresh` = `full`) is recomputed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from rollview.errors import InputError, LeaseHeld
from rollview.maintain.apply import ApplyDriver
from rollview.maintain.capture import CaptureDriver
from rollview.maintain.load import LoadDriver
from rollview.maintain.propagate import PropagateDriver
from rollview.storage.points_in_time import Covered, PointsInTime, check_covered
from rollview.views.properties import is_full
from rollview.views.views import Views

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class RefreshDriver:
    """Refreshes views together."""

    points: PointsInTime
    views: Views
    capture: CaptureDriver
    propagate: PropagateDriver
    apply: ApplyDriver
    load: LoadDriver

    def run(self, names: Sequence[str] | None, to: str | int = "latest") -> int:
        """Refreshes views, by default all, to the same point in time; returns its csn."""
        catalog, views = self.points.catalog, self.views
        asked = [views.named(name) for name in dict.fromkeys(names or views.names)]
        chosen = [part.name for view in asked for part in view.stored_parts]
        read = [views.named(name) for name in with_dependencies(views, chosen)]
        needed = {table.site for view in read for table in view.tables}
        with suppress(LeaseHeld):  # Another process captures all the time; what it has is what there is.
            self.capture.run(needed=needed)
        csn = self.points.resolve(to, catalog.history.last_csn())
        for view in read:
            self.propagate.faults.check_reaches(view, csn)
        full = [name for name, view in views.all().items() if name in chosen and is_full(view)]
        rolled = [name for name in chosen if name not in full]
        if full and csn != catalog.history.last_csn():
            hint = "omit --to: it can only be recomputed as of now"
            raise InputError(f"view {full[0]} has no view delta to roll along", subject=full[0], hint=hint)
        for name in rolled:
            covered = Covered(catalog.views.get(name).materialized_csn, catalog.history.last_csn())
            check_covered(catalog, name, csn, covered, "rolled to")
        propagated = [each for each in with_dependencies(views, chosen) if not is_full(views.named(each))]
        if propagated:
            self.propagate.run_all(propagated, csn, PATIENCE_SECONDS).check()
        if rolled:
            self.apply.run(dict.fromkeys(rolled, csn), f"refresh to csn {csn}", PATIENCE_SECONDS)
        for name in full:
            # At the same csn as the others, however much has been captured since.
            self.load.refresh(name, csn, PATIENCE_SECONDS)
        return csn


def with_dependencies(views: Views, names: Sequence[str]) -> list[str]:
    """These views and all views they read, dependencies first."""
    known = views.all()
    needed: set[str] = set(names)
    for name, view in reversed(known.items()):
        if name in needed:
            needed.update(table.name for table in view.tables if not table.source)
    return [name for name in known if name in needed]

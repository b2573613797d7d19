"""condense: a range of the view delta, replaced by its net effect (beyer2000 §5: condensing).

All changes after the range's start up to its end get the csn of its end; changes that cancel are gone.
States strictly inside the range can then no longer be read, so nothing may stand there.
"""

from __future__ import annotations

from dataclasses import dataclass

from rollview.algebra.history import CSN
from rollview.algebra.net_effect import Range
from rollview.algebra.net_effect import condense as net_effect_of_range
from rollview.catalog import Catalog, Condensed, CondenseStep
from rollview.errors import InputError
from rollview.lake import FileLayout
from rollview.service.exclusive_access import ExclusiveAccess
from rollview.service.lake_tables import LakeTables
from rollview.service.results import CondenseResult
from rollview.service.stored_view import StoredViews
from rollview.service.views import Views


@dataclass(frozen=True)
class CondenseDriver:
    """Condenses view deltas."""

    catalog: Catalog
    tables: LakeTables
    views: Views
    stored: StoredViews
    access: ExclusiveAccess

    def run(self, name: str, after: int, upto: int) -> CondenseResult:
        """Condenses the view delta for after < csn ≤ upto."""
        catalog = self.catalog
        if upto <= after:
            message = f"csn {after} to {upto} is not a valid range"
            raise InputError(message, subject=name, hint="--from comes before --to")
        with self.access.to_view(name) as lease:
            self._check_free(name, after, upto)
            table = self.tables.of_view(name, catalog.view(name).generation).deltas
            files = table.files(csn=(after, upto))
            before = sum(file.rows for file in files)
            if not files:
                return CondenseResult(name, 0, 0, 0, 0)
            stored = self.stored.open(name)
            rows = stored.delta_of(files)
            condensed = net_effect_of_range(stored.view.root, rows, Range(after, upto), CSN)
            total = stored.layout.typed(condensed, CSN).materialized()
            step = catalog.begin(lease, name, CondenseStep(after, upto))
            catalog.finish(lease, step, Condensed(name, after, upto))
            reason = f"condense csn {after} to {upto}"
            commit = self.tables.signed("condense", step.id, catalog.high_water(name), reason)
            size = sum(file.size for file in table.files())
            table.replace(files, [total.rows()], commit, FileLayout((CSN,), expected_rows=before))
            left = sum(file.size for file in table.files())
            return CondenseResult(name, before, int(total.table().num_rows), size, left)

    def _check_free(self, name: str, after: int, upto: int) -> None:
        """The view may not stand strictly inside the range, and views that read it must have passed it."""
        catalog = self.catalog
        shown = catalog.view(name).materialized_csn
        if after < shown < upto:
            hint = f"condense up to csn:{shown}, or from there on"
            raise InputError(f"the stored view is at csn {shown}, inside the range", subject=name, hint=hint)
        for consumer in catalog.consumers.of(name):
            if after < consumer.csn < upto:
                message = f"consumer {consumer.name} is at csn {consumer.csn}, inside the range"
                hint = f"condense up to csn:{consumer.csn}, or from there on"
                raise InputError(message, subject=consumer.name, hint=hint)
        for other, reader in self.views.all().items():
            if not any(table.qualified == name for table in reader.tables):
                continue
            # Its delta inside the range is made, and it is recomputed there by `verify`, from this one.
            passed = min([*catalog.positions(other).values(), catalog.view(other).materialized_csn])
            if passed < upto:
                message = f"view {other}, which reads {name}, is at csn {passed}, before the end of the range"
                hint = f"refresh {other}, or condense up to csn:{passed}"
                raise InputError(message, subject=other, hint=hint)

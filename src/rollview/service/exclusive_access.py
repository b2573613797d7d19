"""Access to logs that nobody else writes meanwhile, with nothing left half done in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rollview.catalog import Catalog, Lease
from rollview.service.apply import LEASE as APPLY
from rollview.service.apply import ApplyDriver
from rollview.service.capture import LEASE as CAPTURE
from rollview.service.capture import CaptureDriver
from rollview.service.propagate import PropagateDriver
from rollview.service.views import Views

PATIENCE_SECONDS = 5.0


@dataclass(frozen=True)
class ExclusiveAccess:
    """Takes leases and finishes the steps that were begun under them."""

    catalog: Catalog
    views: Views
    capture: CaptureDriver
    propagate: PropagateDriver
    apply: ApplyDriver

    @contextmanager
    def to_change_logs(self) -> Iterator[Lease]:
        """Nobody captures."""
        with self.catalog.lease(CAPTURE, PATIENCE_SECONDS) as lease:
            self.capture.recover(lease)
            yield lease

    @contextmanager
    def to_view(self, name: str) -> Iterator[Lease]:
        """Nobody propagates or applies the view. An apply that died may stand where it does not show."""
        catalog = self.catalog
        with (
            catalog.lease(f"propagate:{name}", PATIENCE_SECONDS) as lease,
            catalog.lease(APPLY, PATIENCE_SECONDS) as applying,
        ):
            self.apply.recover(applying)
            self.propagate.recover(lease, self.views.named(name))
            yield lease

"""run: capture, propagate and apply, by the policy of each view, until stopped or until nothing is left."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

from rollview.catalog import Catalog
from rollview.errors import HistoryBroken, InputError, LeaseHeld
from rollview.events import Events, Failed, Started, Stopped
from rollview.service.apply import ApplyDriver
from rollview.service.attached import check_attached, detached
from rollview.service.capture import CaptureDriver
from rollview.service.definitions import is_full
from rollview.service.maintenance import MaintainDriver
from rollview.service.points_in_time import newest_uncondensed
from rollview.service.propagate import PropagateDriver
from rollview.service.retry import Stop, follow, reporting_failure
from rollview.service.views import Views

MAINTAIN_SECONDS = 60.0
ONCE_PATIENCE_SECONDS = 600.0


@dataclass(frozen=True)
class Round:
    """One round through everything."""

    catalog: Catalog
    views: Views
    capture: CaptureDriver
    propagate: PropagateDriver
    apply: ApplyDriver

    def run(self) -> bool:
        """Captures, propagates and applies; whether there was anything to do."""
        try:
            busy = self.capture.run() > 0
        except LeaseHeld:
            busy = False
        # Not further, or a view could be propagated for as long as writers write, while the others wait.
        upto = self.catalog.last_csn()
        with suppress(
            LeaseHeld
        ):  # Somebody else propagates one of them; the next round sees what came of it.
            busy = any(self.propagate.run_all(self._names(), upto, 0.0).values()) or busy
        return self._apply_all() or busy

    def _apply_all(self) -> bool:
        """Rolls all views to one csn: the least of their high-water marks that all of them can show."""
        catalog, names = self.catalog, self._names()
        if not names:
            return False
        csn = min(catalog.high_water(name) for name in names)
        csn = newest_uncondensed(catalog, names, csn)
        if all(catalog.views()[name].materialized_csn >= csn for name in names):
            return False
        try:
            self.apply.run(dict.fromkeys(names, csn), "run", 1.0)
        except LeaseHeld:
            return False
        return True

    def _names(self) -> list[str]:
        """The views that are maintained by deltas, and can go on from where they stand."""
        views = self.views.all().items()
        return [name for name, view in views if not is_full(view) and not detached(self.catalog, view)]

    def check_attached(self) -> None:
        """Refuses views that cannot go on; the others have been served."""
        for view in self.views.all().values():
            check_attached(self.catalog, view)


@dataclass(frozen=True)
class RunDriver:
    """Round after round, with maintenance of the lake from time to time."""

    catalog: Catalog
    views: Views
    round: Round
    maintain: MaintainDriver
    events: Events

    def run(self, once: bool = False, stop: Stop | None = None) -> None:
        """Does all by policy; `once` until nothing is left to do, and without retries."""
        views = self.views.names
        if not views:
            raise InputError("no view is set up", hint="run `rollview setup` first")
        # Whoever else runs now is done soon, or does the same work; one round can wait for its turn.
        with self.catalog.lease("run", ONCE_PATIENCE_SECONDS if once else 0.0):
            self.events.emit(Started(views))
            if once:
                with reporting_failure("run", self.events):
                    self.round.run()
                    self.maintain_lake()
                    self.round.check_attached()
            else:
                follow(stop or Stop(), "run", _Rounds(self), self.events)
            self.events.emit(Stopped(self.catalog.last_csn()))

    def maintain_lake(self) -> dict[str, int]:
        """Maintenance, as far as `run` does it."""
        return self.maintain.run()


class _Rounds:
    """The next round whenever it is called, behind maintenance where that is due."""

    def __init__(self, driver: RunDriver) -> None:
        self._driver = driver
        self._maintained = time.monotonic()
        self._told = ""

    def __call__(self) -> bool:
        self._tell_of_detached()
        if time.monotonic() - self._maintained > MAINTAIN_SECONDS:
            # Also if it fails, it is not due again at once: the views go first.
            self._maintained = time.monotonic()
            self._driver.maintain_lake()
        return self._driver.round.run()

    def _tell_of_detached(self) -> None:
        """A view that cannot go on keeps the others from nothing; it is told once."""
        try:
            self._driver.round.check_attached()
            self._told = ""
        except HistoryBroken as broken:
            if self._told != broken.message:
                self._told = broken.message
                failed = Failed("run", broken.message, "HistoryBroken", broken.subject, broken.hint)
                self._driver.events.emit(failed)

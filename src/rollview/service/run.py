"""run: capture, propagate and apply, by the policy of each view, until stopped or until nothing is left."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from math import inf

from rollview.algebra.view import owner
from rollview.catalog import Catalog
from rollview.errors import HistoryBroken, InputError, LeaseHeld, RollviewError
from rollview.events import Events, Failed, Started, Stopped
from rollview.service.apply import ApplyDriver
from rollview.service.attached import check_attached, detached
from rollview.service.background_verify import BackgroundVerify
from rollview.service.capture import CaptureDriver
from rollview.service.clock_watch import ClockWatch
from rollview.service.definitions import is_full
from rollview.service.faults import Faults, concerns_all, report_retry
from rollview.service.file_notes import FileWatch
from rollview.service.memory import give_back
from rollview.service.points_in_time import newest_uncondensed
from rollview.service.propagate import PropagateDriver, Propagations
from rollview.service.reload import ReloadDriver
from rollview.service.retry import Backoff, Stop, follow, reporting_failure
from rollview.service.schedules import schedule_of
from rollview.service.upkeep import Upkeep

MAINTAIN_SECONDS = 60.0
ONCE_PATIENCE_SECONDS = 600.0
CATCH_UP_SECONDS = 5.0
"""How long a view that is behind what others show may work before these have their turn again."""


@dataclass(frozen=True)
class Rounded:
    """Whether a round found anything to do, and what failed in it: sites and views by name.

    `in_vain`: no site could be captured.
    """

    busy: bool
    failed: Mapping[str, Exception]
    in_vain: bool

    def check(self) -> None:
        """Raises the first error, if there was any."""
        for error in self.failed.values():
            raise error

    def check_input(self) -> None:
        """Raises a mistake that somebody made who may still be watching, if nothing works because of it."""
        for error in self.failed.values():
            if self.in_vain and isinstance(error, InputError):
                raise error


@dataclass(frozen=True)
class Round:
    """One round through everything. What fails is tried again later and later, each thing for itself."""

    faults: Faults
    capture: CaptureDriver
    propagate: PropagateDriver
    apply: ApplyDriver
    reload: ReloadDriver
    due: Backoff = field(default_factory=Backoff)

    @property
    def catalog(self) -> Catalog:
        """Where everything stands."""
        return self.faults.catalog

    def run(self, catch_up_seconds: float | None = None) -> Rounded:
        """Captures, propagates and applies; a view that is late goes on in the next round after a while."""
        halted = {(work, name) for work in ("view", "apply") for name in self.catalog.faults("view")}
        self.due.only(halted | {("site", name) for name in self.catalog.faults("site")})
        busy, failed = False, dict[str, Exception]()
        with suppress(LeaseHeld):
            taken = self.capture.take_all(trying=lambda site: self.due.is_due(("site", site)))
            busy, failed = taken.units > 0, dict(taken.failed)
        for site, error in failed.items():
            self._retry_later(("site", site), f"capture {site}", error)
        self.reload.after_losses()
        self.reload.repair()
        names = [name for name in self._names() if self.due.is_due(("view", name))]
        done = self._propagate(names, CATCH_UP_SECONDS if catch_up_seconds is None else catch_up_seconds)
        # Somebody else propagates a view whose lease is held; the next round sees what came of it.
        stopped = {name: error for name, error in done.failed.items() if not isinstance(error, LeaseHeld)}
        self._halt(stopped)
        going = [name for name in names if name not in done.failed]
        not_applied = self._apply_all(going)
        self._halt(not_applied)
        recomputed = self._recompute_due()
        self._halt(recomputed)
        for name, error in not_applied.items():
            self.due.failed(("apply", name), error)
        self.faults.resume("view", [name for name in going if name not in not_applied])
        in_vain = bool(failed) and failed.keys() >= self.catalog.sites().keys()
        failed |= {**stopped, **not_applied, **recomputed}
        return Rounded(busy or any(done.steps.values()), failed, in_vain)

    def _propagate(self, names: Sequence[str], piece: float) -> Propagations:
        """Propagates views up to the present; those that cannot pass a TRUNCATE are loaded behind it."""
        # Not further, or a view could be propagated for as long as writers write, while the others wait.
        upto = self.catalog.last_csn()
        done = self.propagate.run_all(names, upto, 0.0, dict.fromkeys(self._late(names), piece))
        left = self.reload.after_truncations(done.failed)
        if len(left) == len(done.failed):
            return done
        # Whoever loads captures, too: the others go to where those that were loaded stand.
        going, upto = [name for name in names if name not in left], self.catalog.last_csn()
        again = self.propagate.run_all(going, upto, 0.0, dict.fromkeys(self._late(going), piece))
        steps = {name: done.steps.get(name, 0) + again.steps.get(name, 0) for name in names}
        return Propagations(steps, {**left, **again.failed})

    def _halt(self, stopped: Mapping[str, Exception]) -> None:
        """Writes down which views cannot go on."""
        for name, error in stopped.items():
            if concerns_all(error):
                raise error
            self.faults.halt("view", name, error, self.catalog.high_water(name) + 1)
            self._retry_later(("view", name), owner(name), error)

    def _retry_later(self, key: tuple[str, str], what: str, error: Exception) -> None:
        attempt, pause = self.due.failed(key, error)
        if pause < inf:
            report_retry(self.faults.events, what, attempt, pause, error)

    def _apply_all(self, names: Sequence[str]) -> Mapping[str, Exception]:
        """Rolls all views to one csn: the least of their high-water marks that all of them can show.

        A view that cannot go on shows its last csn, and the others do not wait for it. Nor do they wait for
        one that is behind what they show already: it catches up by itself, or with others like it.
        """
        catalog, halted = self.catalog, self.faults.stopped()
        targets = self._due([name for name in names if name not in halted])
        running = [name for name in names if name not in halted and name not in targets]
        while running:
            late = self._late(running)
            together = [name for name in running if name not in late]
            csn = min(catalog.high_water(name) for name in together)
            targets |= dict.fromkeys(together, newest_uncondensed(catalog, together, csn))
            running = late
        for name in halted.keys() & catalog.views().keys():
            if self.due.is_due(("apply", name)):
                targets[name] = newest_uncondensed(catalog, [name], catalog.high_water(name))
        shown = {name: record.materialized_csn for name, record in catalog.views().items()}
        if all(shown[name] >= csn for name, csn in targets.items()):
            return {}
        try:
            return self.apply.run_all(targets, "run", 1.0).failed
        except LeaseHeld:
            return {}

    def _due(self, names: Sequence[str]) -> dict[str, int]:
        """For views with a schedule the csn of the last due time, or what they show until that is known."""
        catalog, found = self.catalog, dict[str, int]()
        for name in names:
            if (due := self._due_csn(name)) is not None:
                is_reached = due <= catalog.high_water(name)
                shown = catalog.view(name).materialized_csn
                found[name] = max(shown, newest_uncondensed(catalog, [name], due)) if is_reached else shown
        return found

    def _recompute_due(self) -> dict[str, Exception]:
        """Recomputes views with a schedule that have no delta, as of the last due time; what failed."""
        failed: dict[str, Exception] = {}
        for name, view in self.faults.views.all().items():
            if not is_full(view) or not self.due.is_due(("view", name)):
                continue
            due = self._due_csn(name)
            if due is None or due <= self.catalog.view(name).materialized_csn:
                continue
            try:
                self.reload.load.refresh(name, due, 1.0)
                self.faults.resume("view", [name])
            except LeaseHeld:
                continue
            except RollviewError as error:
                failed[name] = error
        return failed

    def _due_csn(self, name: str) -> int | None:
        """What a view shows by its schedule: all that was committed up to the last due time; None without.

        That is the last one up to which everything has been captured.
        """
        catalog, schedule = self.catalog, schedule_of(self.faults.views.named(name))
        if schedule is None:
            return None
        tables, sites = catalog.tables(), catalog.sites()
        own = {tables[each].site for each in self.faults.views.base_tables(name) if each in tables}
        looked = min([time.time(), *(sites[site].looked_at for site in own)])
        return catalog.csn_at(schedule.last(looked)) if looked else None

    def _late(self, names: Sequence[str]) -> list[str]:
        """The views whose delta does not reach what another one shows: never all of them."""
        records = self.catalog.views()
        shown = max((records[name].materialized_csn for name in names), default=0)
        return [name for name in names if self.catalog.high_water(name) < shown]

    def _names(self) -> list[str]:
        """The views that are maintained by deltas, and can go on from where they stand."""
        views = self.faults.views.all().items()
        return [name for name, view in views if not is_full(view) and not detached(self.catalog, view)]

    def check_attached(self) -> None:
        """Refuses views that cannot go on; the others have been served."""
        for view in self.faults.views.all().values():
            check_attached(self.catalog, view)
        for view in self.faults.views.all().values():
            self.faults.check_complete(table for table in view.tables if table.source)


@dataclass(frozen=True)
class RunDriver:
    """Round after round, with maintenance of the lake from time to time."""

    catalog: Catalog
    round: Round
    upkeep: Upkeep
    verify: BackgroundVerify
    files: FileWatch
    events: Events

    def run(self, once: bool = False, stop: Stop | None = None) -> None:
        """Does all by policy; `once` until nothing is left to do, and without retries."""
        views = self.round.faults.views.names
        if not views:
            raise InputError("no view is set up", hint="run `rollview setup` first")
        # Whoever else runs now is done soon, or does the same work; one round can wait for its turn.
        with ExitStack() as stack:
            with reporting_failure("run", self.events):
                stack.enter_context(self.catalog.lease("run", ONCE_PATIENCE_SECONDS if once else 0.0))
            self.events.emit(Started(views))
            # Whoever starts it may have mended something.
            self.round.due.only(())
            if once:
                with reporting_failure("run", self.events):
                    done = self.round.run(catch_up_seconds=inf)
                    self.maintain_lake()
                    done.check()
                    self.round.check_attached()
            else:
                try:
                    follow(stop or Stop(), "run", _Rounds(self), self.events)
                finally:
                    self.verify.close()
            self.events.emit(Stopped(self.catalog.last_csn()))

    def maintain_lake(self) -> dict[str, int]:
        """Maintenance, as far as `run` does it."""
        return self.upkeep.run()


class _Rounds:
    """The next round whenever it is called, behind maintenance where that is due."""

    def __init__(self, driver: RunDriver) -> None:
        self._driver = driver
        self._maintained = time.monotonic()
        self._is_first = True
        self._told = ""
        self._clock = ClockWatch(driver.events)

    def __call__(self) -> bool:
        self._clock.look()
        self._tell_of_detached()
        self._driver.files.look()
        if time.monotonic() - self._maintained > MAINTAIN_SECONDS:
            # Also if it fails, it is not due again at once: the views go first.
            self._maintained = time.monotonic()
            self._maintain()
        done = self._driver.round.run()
        self._driver.verify.look()
        if self._is_first:
            done.check_input()
            self._is_first = False
        return done.busy

    def _maintain(self) -> None:
        """Maintenance that fails for one thing is no reason to stop."""
        give_back()
        try:
            self._driver.maintain_lake()
        except RollviewError as error:
            if concerns_all(error):
                raise
            report_retry(self._driver.events, "maintenance", 1, MAINTAIN_SECONDS, error)

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

"""run: capture, propagate and apply, by the policy of each view, until stopped or until nothing is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from math import inf

from rollview.algebra.view import is_stage, owner
from rollview.catalog import Catalog, Lease
from rollview.config.schedules import schedule_of
from rollview.errors import (
    CatalogUnavailable,
    HistoryBroken,
    InputError,
    LeaseHeld,
    LeaseLost,
    Overtaken,
    RollviewError,
)
from rollview.events import Events, Failed, StandingBy, Started, Stopped
from rollview.maintain.apply import ApplyDriver
from rollview.maintain.batches import Batches
from rollview.maintain.capture import CaptureDriver
from rollview.maintain.faults import RELOADING, Faults, concerns_all, report_retry
from rollview.maintain.propagate import PropagateDriver, Propagations
from rollview.maintain.retry import Backoff, Stop, follow, reporting_failure
from rollview.run.upkeep import BackgroundVerify, ClockWatch, Upkeep, give_back
from rollview.setup.reload import ReloadDriver
from rollview.storage.points_in_time import newest_uncondensed
from rollview.views.properties import algorithm_of, is_chosen_by_cost, is_full
from rollview.views.resumable import check_resumable, detached
from rollview.views.view_files import FileWatch

RUN = "run"
"""The lease of the one that works."""

STANDBY_HINT = "`rollview run --standby` waits for it to end or to fail, and then takes over"
STANDBY_LOOK_SECONDS = 1.0
MAINTAIN_SECONDS = 60.0
ONCE_PATIENCE_SECONDS = 600.0
CATCH_UP_SECONDS = 5.0
"""How long a view that is behind the others may work before these have their turn again."""


@dataclass(frozen=True)
class RoundResult:
    """Whether a round found anything to do, and the failures in it: sites and views by name.

    `in_vain`: no site could be captured.
    """

    busy: bool
    failed: Mapping[str, Exception]
    in_vain: bool

    def check(self) -> None:
        for error in self.failed.values():
            raise error

    def check_input(self) -> None:
        """Raises an error of input, if nothing works because of it: the user may still be watching."""
        for error in self.failed.values():
            if self.in_vain and isinstance(error, InputError):
                raise error


@dataclass(frozen=True)
class Round:
    """One round through everything. Whatever fails is retried after growing pauses, independently."""

    faults: Faults
    capture: CaptureDriver
    propagate: PropagateDriver
    apply: ApplyDriver
    reload: ReloadDriver
    batches: Batches
    due: Backoff = field(default_factory=Backoff)

    @property
    def catalog(self) -> Catalog:
        return self.faults.catalog

    def run(self, catch_up_seconds: float | None = None, at_once: bool = False) -> RoundResult:
        """Captures, propagates and applies; a view that is far behind continues in the next round.

        `at_once`: no view waits for more transactions.
        """
        started = time.monotonic()
        halted = {(work, name) for work in ("view", "apply") for name in self.catalog.faults.of("view")}
        self.due.only(halted | {("site", name) for name in self.catalog.faults.of("site")})
        busy, failed = False, dict[str, Exception]()
        with suppress(LeaseHeld):
            taken = self.capture.take_all(trying=lambda site: self.due.is_due(("site", site)))
            busy, failed = taken.units > 0, dict(taken.failed)
        for site, error in failed.items():
            self._retry_later(("site", site), f"capture {site}", error)
        self.reload.after_losses()
        self.reload.repair()
        names = [name for name in self._names() if self.due.is_due(("view", name))]
        if not at_once:
            waiting = self.batches.waiting(names, self.catalog.faults.of("view"))
            names = [name for name in names if name not in waiting]
        shown = {name: record.materialized_csn for name, record in self.catalog.views.all().items()}
        done = self._propagate(names, CATCH_UP_SECONDS if catch_up_seconds is None else catch_up_seconds)
        # Another process holds the lease and propagates the view; the next round sees the result.
        stopped = {name: error for name, error in done.failed.items() if not isinstance(error, LeaseHeld)}
        self._halt(stopped)
        # A fault at one csn may have been repaired by now; the views that it reads have come further.
        repaired = self.reload.repair()
        stopped = {name: error for name, error in stopped.items() if name not in repaired}
        going = [name for name in names if name not in done.failed]
        apply_started = time.monotonic()
        not_applied = self._apply_all(going)
        apply_seconds = time.monotonic() - apply_started
        self._halt(not_applied)
        recomputed = self._recompute_due()
        self._halt(recomputed)
        for name, error in not_applied.items():
            self.due.failed(("apply", name), error)
        self.faults.resume("view", [name for name in going if name not in not_applied])
        self.reload.after_misfits()
        if not at_once:
            batches = self._batches(shown, done.seconds, apply_seconds)
            self.batches.took(time.monotonic() - started, batches)
        in_vain = bool(failed) and failed.keys() >= self.catalog.captured.sites().keys()
        failed |= {**stopped, **not_applied, **recomputed}
        return RoundResult(busy or any(done.steps.values()), failed, in_vain)

    def _batches(
        self, shown: Mapping[str, int], propagate_seconds: Mapping[str, float], apply_seconds: float
    ) -> dict[str, tuple[int, float]]:
        """The changed rows and the seconds of every view that waited and shows more than before."""
        found = {}
        records = self.catalog.views.all()
        for name in self.batches.bounds():
            if name in shown and name in records and not is_stage(name):
                before, now = shown[name], records[name].materialized_csn
                parts = self.faults.views.named(name).stored_parts
                if now > before and (rows := self.batches.changes(name, before, now)):
                    seconds = sum(propagate_seconds.get(part.name, 0.0) for part in parts)
                    found[name] = rows, seconds + apply_seconds
        return found

    def _propagate(self, names: Sequence[str], piece: float) -> Propagations:
        """Propagates views up to the present; those that cannot pass a TRUNCATE are reloaded after it."""
        # Not further, or a view could be propagated for as long as writers write, while the others wait.
        upto = self.catalog.history.last_csn()
        done = self.propagate.run_all(names, upto, 0.0, dict.fromkeys(self._limited(names), piece))
        left = self.reload.after_truncations(done.failed)
        if len(left) == len(done.failed):
            return done
        # A load captures, too: the others go up to the csn of those that were loaded.
        going, upto = [name for name in names if name not in left], self.catalog.history.last_csn()
        again = self.propagate.run_all(going, upto, 0.0, dict.fromkeys(self._limited(going), piece))
        steps = {name: done.steps.get(name, 0) + again.steps.get(name, 0) for name in names}
        seconds = {name: done.seconds.get(name, 0.0) + again.seconds.get(name, 0.0) for name in names}
        return Propagations(steps, {**left, **again.failed}, seconds)

    def _halt(self, stopped: Mapping[str, Exception]) -> None:
        """Records which views cannot continue."""
        for name, error in stopped.items():
            if concerns_all(error):
                raise error
            self.faults.halt("view", name, error, self.catalog.views.high_water(name) + 1)
            self._retry_later(("view", name), owner(name), error)

    def _retry_later(self, key: tuple[str, str], what: str, error: Exception) -> None:
        attempt, pause = self.due.failed(key, error)
        if pause < inf:
            report_retry(self.faults.events, what, attempt, pause, error)

    def _apply_all(self, names: Sequence[str]) -> Mapping[str, Exception]:
        """Rolls all views to one csn: the least of their high-water marks that all of them can show.

        A view that cannot continue shows its last csn, and the others do not wait for it. Nor do they wait
        for one that is behind what they show already: it catches up alone, or with others like it.
        """
        catalog, halted = self.catalog, self.faults.stopped()
        targets = self._due([name for name in names if name not in halted])
        for name in self.batches.bounds().keys() & set(names) - halted.keys() - targets.keys():
            # A view that waited is rolled as far as it was propagated, alone or with its like.
            targets[name] = newest_uncondensed(catalog, [name], catalog.views.high_water(name))
        running = [name for name in names if name not in halted and name not in targets]
        while running:
            late = self._late(running)
            together = [name for name in running if name not in late]
            csn = min(catalog.views.high_water(name) for name in together)
            targets |= dict.fromkeys(together, newest_uncondensed(catalog, together, csn))
            running = late
        for name in halted.keys() & catalog.views.all().keys():
            if self.due.is_due(("apply", name)):
                targets[name] = newest_uncondensed(catalog, [name], catalog.views.high_water(name))
        shown = {name: record.materialized_csn for name, record in catalog.views.all().items()}
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
                is_reached = due <= catalog.views.high_water(name)
                shown = catalog.views.get(name).materialized_csn
                found[name] = max(shown, newest_uncondensed(catalog, [name], due)) if is_reached else shown
        return found

    def _recompute_due(self) -> dict[str, Exception]:
        """Recomputes views with a schedule that have no delta, as of the last due time; what failed."""
        failed: dict[str, Exception] = {}
        for name, view in self.faults.views.all().items():
            if not is_full(view) or not self.due.is_due(("view", name)):
                continue
            due = self._due_csn(name)
            if due is None or due <= self.catalog.views.get(name).materialized_csn:
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
        """The csn that a view with a schedule shows: all that was committed up to the last due time.

        That is the last due time up to which everything has been captured.
        """
        catalog, schedule = self.catalog, schedule_of(self.faults.views.named(name))
        if schedule is None:
            return None
        tables, sites = catalog.captured.tables(), catalog.captured.sites()
        own = {tables[each].site for each in self.faults.views.base_tables(name) if each in tables}
        looked = min([time.time(), *(sites[site].looked_at for site in own)])
        return catalog.history.csn_at(schedule.last(looked)) if looked else None

    def _late(self, names: Sequence[str]) -> list[str]:
        """The views whose delta does not reach what another one shows: never all of them."""
        records = self.catalog.views.all()
        shown = max((records[name].materialized_csn for name in names), default=0)
        return [name for name in names if self.catalog.views.high_water(name) < shown]

    def _limited(self, names: Sequence[str]) -> list[str]:
        """The views that continue in the next round after a while: late ones and slow ones.

        An algorithm that takes messages raw queries the sources for every change, and keeps its states.
        """
        late = self._late(names)
        views = {name: self.faults.views.named(name) for name in names}
        slow = {
            name
            for name, view in views.items()
            if is_chosen_by_cost(view) or not algorithm_of(view).sequenced
        }
        return [name for name in names if name in late or name in slow]

    def _names(self) -> list[str]:
        """The views that are maintained by deltas and can continue."""
        views = self.faults.views.all().items()
        return [name for name, view in views if not is_full(view) and not detached(self.catalog.now, view)]

    def check_resumable(self) -> None:
        """Refuses views that cannot continue; the others have been served."""
        views = self.faults.views.all()
        # First the fault that keeps a view from being loaded: it is loaded once that is repaired.
        to_load = [
            name
            for name, fault in self.catalog.faults.of("view").items()
            if fault.kind == RELOADING and name in views
        ]
        for name in to_load:
            self.faults.check_complete(table for table in views[name].tables if table.source)
        for view in views.values():
            check_resumable(self.catalog, view)
        for view in views.values():
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
        """Does all by policy; `once` until nothing is left to do, and without retries.

        Overtaken if another process has taken over meanwhile.
        """
        views = self.round.faults.views.names
        if not views:
            raise InputError("no view is set up", hint="run `rollview setup` first")
        # Another process is done soon, or does the same work; one round can wait for its turn.
        with ExitStack() as stack:
            with reporting_failure("run", self.events):
                turn = stack.enter_context(self._turn(ONCE_PATIENCE_SECONDS if once else 0.0))
            self.events.emit(Started(views))
            # The user may have repaired something before the start.
            self.round.due.only(())
            if once:
                with reporting_failure("run", self.events):
                    done = self.round.run(catch_up_seconds=inf, at_once=True)
                    self.maintain_lake()
                    done.check()
                    self.round.check_resumable()
            else:
                try:
                    follow(stop or Stop(), "run", _Rounds(self, turn), self.events)
                finally:
                    self.verify.close()
            self.events.emit(Stopped(self.catalog.history.last_csn()))

    @contextmanager
    def _turn(self, wait_seconds: float) -> Iterator[Lease]:
        with ExitStack() as stack:
            try:
                turn = stack.enter_context(self.catalog.lease(RUN, wait_seconds))
            except LeaseHeld as held:
                raise LeaseHeld(held.message, subject=RUN, hint=STANDBY_HINT) from held
            yield turn

    def maintain_lake(self) -> dict[str, int]:
        """The part of maintenance that `run` does."""
        return self.upkeep.run()


def stand_by(catalog: Catalog, stop: Stop, events: Events, get_ready: Callable[[], object]) -> None:
    """Waits until nobody runs, or until asked to stop. While the catalog cannot be used nobody takes over."""
    reason, attempt = "", 0
    while not stop.asked():
        try:
            with catalog.lease(RUN):
                return
        except LeaseHeld as held:
            attempt = 0
            if held.message != reason:
                get_ready()
                reason = held.message
                events.emit(StandingBy(reason))
        except CatalogUnavailable as error:
            attempt += 1
            report_retry(events, "standing by", attempt, STANDBY_LOOK_SECONDS, error)
        stop.wait(STANDBY_LOOK_SECONDS)
    events.emit(Stopped(catalog.history.last_csn()))


class _Rounds:
    """Runs the next round at each call, after maintenance where that is due."""

    def __init__(self, driver: RunDriver, turn: Lease) -> None:
        self._driver, self._turn = driver, turn
        self._maintained = time.monotonic()
        self._is_first = True
        self._reported = ""
        self._clock = ClockWatch(driver.events)

    def __call__(self) -> bool:
        self._check_turn()
        self._clock.poll()
        self._report_detached()
        self._driver.files.poll()
        if time.monotonic() - self._maintained > MAINTAIN_SECONDS:
            # Also if it fails, it is not due again at once: the views go first.
            self._maintained = time.monotonic()
            self._maintain()
        done = self._driver.round.run()
        self._driver.verify.poll()
        if self._is_first:
            done.check_input()
            self._is_first = False
        return done.busy

    def _check_turn(self) -> None:
        """Refuses to continue in the place of another one: this process was stopped, or cut off, for long."""
        try:
            self._driver.catalog.confirm(self._turn)
        except LeaseLost as lost:
            raise Overtaken(lost.message, subject=RUN, hint=STANDBY_HINT) from lost

    def _maintain(self) -> None:
        """Maintenance that fails for one thing is no reason to stop."""
        give_back()
        try:
            self._driver.maintain_lake()
        except RollviewError as error:
            if concerns_all(error):
                raise
            report_retry(self._driver.events, "maintenance", 1, MAINTAIN_SECONDS, error)

    def _report_detached(self) -> None:
        """Views that cannot continue do not stop the others, and are reported once."""
        try:
            self._driver.round.check_resumable()
            self._reported = ""
        except HistoryBroken as broken:
            if self._reported != broken.message:
                self._reported = broken.message
                failed = Failed("run", broken.message, "HistoryBroken", broken.subject, broken.hint)
                self._driver.events.emit(failed)

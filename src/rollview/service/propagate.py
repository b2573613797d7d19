"""propagate: makes view deltas, by the algorithm of the view, interval by interval.

One step gives every forward query of the view its interval, records these bounds, runs the algorithm's
processes side by side until each has published, writes all they published as one append to the view's
delta table, and moves the positions. A transaction that truncated a table has a step of its own. Where so
much has changed that the view is sooner computed as a whole, a step does that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from math import inf
from typing import Any

from rollview import events
from rollview.algebra.history import CSN
from rollview.algebra.levels import Level
from rollview.algebra.view import View
from rollview.algorithms.effects import ForwardQuery, Interval, Publish
from rollview.catalog import (
    Catalog,
    Condensed,
    Lease,
    Moved,
    PropagateStep,
    QueryInterval,
    QuerySkip,
    Refresh,
    Refreshed,
    Step,
    Truncation,
    Worked,
)
from rollview.errors import EvaluationError, TableTruncated
from rollview.events import Events, Propagated
from rollview.lake import LakeTable
from rollview.service.attached import check_attached
from rollview.service.control_records import ControlRecords, is_rolling
from rollview.service.definitions import algorithm_of
from rollview.service.faults import Faults
from rollview.service.interrupted_load import take_back
from rollview.service.interval_sizing import Intervals
from rollview.service.lake_tables import LakeTables
from rollview.service.layout import Layout
from rollview.service.processes import Processes
from rollview.service.progress import TRANSACTIONS, ProgressMeter
from rollview.service.refresh_choice import RECOMPUTED, RefreshChoice, touched_between
from rollview.service.step_timer import StepTimer, timed_step
from rollview.service.truncations import ahead_of, leave_empty, truncated
from rollview.service.uncomputable import first_uncomputable, naming, with_rows
from rollview.service.views import Views
from rollview.spark import SparkBag


@dataclass(frozen=True)
class Propagations:
    """How many steps each view made, and which views failed."""

    steps: Mapping[str, int]
    failed: Mapping[str, Exception]

    def check(self) -> None:
        """Raises the first error, if there was any."""
        for error in self.failed.values():
            raise error


@dataclass(frozen=True)
class _Made:
    """What a step comes to: new positions, the version of the delta table if it was written, and the
    intervals whose inner states are given up.
    """

    moves: Mapping[ForwardQuery, int]
    version: int
    as_one: tuple[Interval, ...] = ()


@dataclass(frozen=True)
class PropagateDriver:
    """Propagates views, each by whoever holds its lease."""

    catalog: Catalog
    tables: LakeTables
    views: Views
    choice: RefreshChoice
    processes: Processes
    faults: Faults

    @property
    def events(self) -> Events:
        """Who is told what happens."""
        return self.faults.events

    def run_all(
        self,
        names: Sequence[str],
        upto: int | None,
        wait_seconds: float,
        limited: Mapping[str, float] | None = None,
    ) -> Propagations:
        """Propagates views side by side, a view that reads another one after that one; the steps of each.

        A view that fails keeps the others from nothing. `limited` says which views have only so many seconds.
        """
        waiting, seconds = list(names), limited or {}
        steps: dict[str, int] = {}
        failed: dict[str, Exception] = {}

        def run(name: str) -> int:
            try:
                return self.run(name, upto, wait_seconds, seconds.get(name, inf))
            except Exception as error:
                failed[name] = error
                return 0

        with ThreadPoolExecutor(max_workers=4, thread_name_prefix="rollview-view") as drivers:
            while waiting:
                inputs = {name: _inputs(self.views.named(name)) for name in waiting}
                ready = [name for name in waiting if not inputs[name] & set(waiting)]
                steps |= dict(zip(ready, drivers.map(run, ready), strict=True))
                waiting = [name for name in waiting if name not in ready]
        return Propagations(steps, failed)

    def run(
        self, name: str, upto: int | None = None, wait_seconds: float = 0.0, most_seconds: float = inf
    ) -> int:
        """Propagates a view as far as its relations reach, or up to a csn; returns the number of steps.

        When `most_seconds` are over, the step that was begun is the last one.
        """
        view = self.views.named(name)
        steps, end = 0, time.monotonic() + most_seconds
        with self.catalog.lease(f"propagate:{name}", wait_seconds) as lease:
            self.recover(lease, view)
            check_attached(self.catalog, view)
            begun, meter = self.catalog.high_water(name), None
            try:
                while self._step(lease, view, upto):
                    steps += 1
                    meter = meter or ProgressMeter(self.events, "propagate", name, TRANSACTIONS)
                    self._tell(meter, name, begun, upto)
                    if time.monotonic() >= end:
                        break
            except EvaluationError as found:
                self._stop_before(lease, view, found)
        return steps

    def _tell(self, meter: ProgressMeter, name: str, begun: int, upto: int | None) -> None:
        """How many transactions are behind a view that catches up, since it began."""
        end = self.catalog.last_csn() if upto is None else upto
        meter.at(self.catalog.high_water(name) - begun, max(end - begun, 0))

    def _stop_before(self, lease: Lease, view: View, found: EvaluationError) -> None:
        """Propagates as far as the view can be computed, and says why not further."""

        def reach(csn: int) -> None:
            while self._step(lease, view, csn):
                pass

        good = self.catalog.high_water(view.name)
        first = first_uncomputable(good, found, reach)
        raise with_rows(self.processes.relations, view, first) from first.__cause__

    def recover(self, lease: Lease, view: View) -> None:
        """Finishes a step that was begun; takes a load back that was not finished."""
        take_back(self.catalog, self.tables, lease, view.name)
        for step in self.catalog.pending(PropagateStep, view.name):
            try:
                with naming(view, 0):
                    self._run(lease, view, step)
            except (EvaluationError, TableTruncated):
                # A shorter one finds out how far it can go.
                self.catalog.abandon(lease, step)

    def _step(self, lease: Lease, view: View, upto: int | None) -> bool:
        """One step, not beyond a csn; whether there was anything to do."""
        # First how far it may go, then what was lost by then: the other way round, a loss could be missed.
        ends = [self.catalog.last_csn(), upto, self.faults.limit(view)]
        end = min(each for each in ends if each is not None)
        high_water = self.catalog.high_water(view.name)
        ahead = ahead_of(self.catalog, view, high_water)
        before = min([end, *(each.csn - 1 for each in ahead)])
        executed = self._control.executed(view, before) if is_rolling(view) else 0
        # What rolling propagation has begun is right only where all its queries have come to that time.
        before = max(before, executed)
        intervals, skipped = self.choice.sizing.next(view, before)
        whole = Interval(high_water, self.choice.sizing.reach(view, before))
        if intervals and (reason := self.choice.reason_to_recompute(view, whole)):
            moves = dict.fromkeys(self.catalog.positions(view.name), whole.upto)
            bounds = PropagateStep((), _skips(moves), recomputed=whole.upto, reason=reason)
            self._begin(lease, view, bounds, whole.upto)
            return True
        if intervals or skipped:
            self._run_through(lease, view, intervals, skipped, executed)
            return True
        if ahead and high_water == before < end:
            self._pass_over(lease, view, ahead)
            return True
        return False

    @property
    def _control(self) -> ControlRecords:
        return ControlRecords(self.catalog)

    def _run_through(
        self,
        lease: Lease,
        view: View,
        intervals: Intervals,
        skipped: Mapping[ForwardQuery, int],
        executed: int,
    ) -> None:
        """Runs forward queries through their intervals."""
        bounds = PropagateStep(
            tuple(QueryInterval(q.block, q.relation, i.after, i.upto) for q, i in intervals.items()),
            _skips(skipped),
            executed=executed,
        )
        started = time.monotonic()
        self._begin(lease, view, bounds, max((i.upto for i in intervals.values()), default=0))
        self.choice.took(view, intervals, time.monotonic() - started)

    def _pass_over(self, lease: Lease, view: View, truncations: Sequence[Truncation]) -> None:
        """Takes a view over the next csn, at which tables were truncated, if it is empty behind it."""
        if not leave_empty(view, truncations):
            raise truncated(truncations[0])
        csn = truncations[0].csn
        moves = dict.fromkeys(self.catalog.positions(view.name), csn)
        self._begin(lease, view, PropagateStep((), _skips(moves), csn), csn)

    def _begin(self, lease: Lease, view: View, bounds: PropagateStep, upto: int) -> None:
        self._check_no_external_writes(view)
        step = self.catalog.begin(lease, view.name, bounds)
        try:
            with naming(view, upto):
                self._run(lease, view, step)
        except (EvaluationError, TableTruncated):
            # Nothing of it has been written: rows are computed before.
            self.catalog.abandon(lease, step)
            raise

    def _check_no_external_writes(self, view: View) -> None:
        """What is read and what is written must be as rollview left it."""
        self.tables.check_change_logs(table for table in view.tables if table.source)
        record = self.views.record(view.name)
        self.tables.check_untouched(self._delta_table(view.name), record.delta_version)

    def _delta_table(self, name: str) -> LakeTable:
        return self.tables.of_view(name, self.views.record(name).generation).deltas

    def _run(self, lease: Lease, view: View, step: Step[PropagateStep]) -> None:
        before = self.catalog.high_water(view.name)
        refresh = None
        with timed_step(self.events, "propagate", view.name, step.id) as timer:
            made = self._publish(view, step, timer)
            control = self._control.ended(view, step.bounds)[1] if step.bounds.executed else ""
            effects: list[Refreshed | Condensed] = []
            if step.bounds.recomputed:
                whole = Interval(before, step.bounds.recomputed)
                refresh = self._refresh(view, whole, timer.seconds, step.bounds.reason)
                effects = [Refreshed(refresh), *self._given_up(view, whole)]
            for as_one in made.as_one:
                effects += self._given_up(view, as_one)
            with timer.phase("commit"):
                moved = Moved(view.name, tuple(made.moves.items()), made.version, control)
                self.catalog.finish(lease, step, moved, Worked(view.name, timer.work), *effects)
        if refresh is not None:
            to, rows, seconds = refresh.to_csn, refresh.rows, refresh.seconds
            self.events.emit(events.Refreshed(view.name, RECOMPUTED, to, rows, seconds, refresh.reason))
        if (reached := self.catalog.high_water(view.name)) > before:
            self.events.emit(Propagated(view.name, before, reached))

    def _refresh(self, view: View, whole: Interval, seconds: float, reason: str) -> Refresh:
        files = self._delta_table(view.name).files(csn=(whole.after, whole.upto))
        rows = sum(file.rows for file in files)
        return Refresh(view.name, RECOMPUTED, whole.after, whole.upto, rows, seconds, reason, time.time())

    def _given_up(self, view: View, whole: Interval) -> list[Condensed]:
        """The states between two csn of a view that was recomputed, and of all views above it."""
        if not touched_between(self.catalog, view, whole):
            return []
        known, above = self.catalog.views(), {view.name}
        for name, other in self.views.all().items():
            if any(table.qualified in above for table in other.tables):
                above.add(name)
        return [Condensed(name, whole.after, whole.upto) for name in sorted(above) if name in known]

    def _publish(self, view: View, step: Step[PropagateStep], timer: StepTimer) -> _Made:
        """Runs the processes through the step's intervals and writes what they made."""
        name = view.name
        intervals = {
            ForwardQuery(name, block, relation): Interval(after, upto)
            for block, relation, after, upto in step.bounds.intervals
        }
        moves = {ForwardQuery(name, block, relation): to for block, relation, to in step.bounds.skipped}
        table = self._delta_table(name)
        writer = self.tables.writer(f"propagate:{name}")
        if table.last_step(writer) >= step.id:
            # What was published is in the table; it moved every query to where its interval said.
            reached = {q: _reached(view, table, writer, step.id, i) for q, i in intervals.items()}
            moved = {query: interval.upto for query, interval in reached.items()}
            as_one = () if algorithm_of(view).level is Level.COMPLETE else tuple(reached.values())
            return _Made(moves | moved | self._rolled(view, step.bounds), table.version(), as_one)
        version, as_one = 0, ()
        with self._published(view, step.bounds, intervals, timer) as published:
            for each in published:
                moves |= dict(each.moves)
            moves |= self._rolled(view, step.bounds)
            as_one = tuple(each.as_one for each in published if each.as_one is not None)
            if published:
                with timer.phase("compute"):
                    delta = _total(self.views.layout(name), [each.delta for each in published])
                timer.rows = getattr(delta, "num_rows", None)
                high_water = min((self.catalog.positions(name) | moves).values())
                before = self.catalog.high_water(name)
                commit = self.tables.signed(f"propagate:{name}", step.id, high_water, "propagate", before)
                with timer.phase("write"):
                    version = table.append(delta, commit)
                    # Nobody else may have written between the last look and this.
                    table.check_no_external_writes(self.views.record(name).delta_version)
        return _Made(moves, version, as_one)

    def _rolled(self, view: View, bounds: PropagateStep) -> dict[ForwardQuery, int]:
        """Where rolling propagation moves positions to: as far as it has compensated for."""
        return self._control.ended(view, bounds)[0] if bounds.executed else {}

    @contextmanager
    def _published(
        self, view: View, bounds: PropagateStep, intervals: Intervals, timer: StepTimer
    ) -> Iterator[list[Publish[SparkBag]]]:
        """What the step publishes; its rows may be gone when this is left."""
        if bounds.emptied:
            yield self.processes.empty(view, bounds.emptied, timer)
        elif bounds.recomputed:
            whole = Interval(self.catalog.high_water(view.name), bounds.recomputed)
            with self.processes.recompute(view, whole, timer) as published:
                yield published
        else:
            yield self.processes.run(view, intervals, timer, bounds)


def _reached(view: View, table: LakeTable, writer: str, step: int, interval: Interval) -> Interval:
    """How far an interval was propagated by a step that has been written."""
    if algorithm_of(view).sequenced:
        return interval
    # Answers may have shown more than the step was to take in.
    commits = (table.commit_at(version) for version in range(table.version(), 0, -1))
    own = (each for each in commits if each is not None and (each.writer, each.step) == (writer, step))
    return Interval(interval.after, next(own).csn)


def _skips(moves: Mapping[ForwardQuery, int]) -> tuple[QuerySkip, ...]:
    return tuple(QuerySkip(query.block, query.relation, to) for query, to in moves.items())


def _inputs(view: View) -> set[str]:
    """The views that a view reads."""
    return {table.name for table in view.tables if not table.source}


def _total(layout: Layout, deltas: Sequence[SparkBag]) -> Any:
    """All pieces of the view delta as one, computed in one job."""
    total = reduce(lambda left, right: left.plus(right), (layout.typed(delta, CSN) for delta in deltas))
    return total.materialized().rows()

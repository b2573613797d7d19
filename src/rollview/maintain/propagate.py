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
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, field, replace
from functools import reduce
from math import inf
from typing import Any

from rollview import events
from rollview.algebra.history import CSN
from rollview.algebra.view import View
from rollview.algorithms.algorithm import Level
from rollview.algorithms.effects import ForwardQuery, Interval, Publish
from rollview.bags import PlacedBag
from rollview.catalog import (
    Catalog,
    Condensed,
    Lease,
    Lookups,
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
from rollview.maintain.algorithm_choice import AlgorithmChooser, ChosenStep
from rollview.maintain.apply import take_back
from rollview.maintain.control_records import ControlRecords, is_rolling
from rollview.maintain.faults import Faults, report_retry
from rollview.maintain.intervals import RECOMPUTED, Intervals, RefreshChoice, touched_between
from rollview.maintain.processes import Processes
from rollview.maintain.raw_step import Reached
from rollview.maintain.truncations import ahead_of, leave_empty, truncated
from rollview.runtime.progress import TRANSACTIONS, ProgressMeter, StepTimer, timed_step
from rollview.storage.lake_tables import LakeTables
from rollview.views.layout import Layout
from rollview.views.properties import algorithm_of, is_chosen_by_cost
from rollview.views.resumable import check_resumable
from rollview.views.uncomputable import first_uncomputable, naming, with_rows
from rollview.views.views import Views


@dataclass(frozen=True)
class Propagations:
    """How many steps each view made, which views failed, and the seconds that each view took."""

    steps: Mapping[str, int]
    failed: Mapping[str, Exception]
    seconds: Mapping[str, float] = field(default_factory=dict)

    def check(self) -> None:
        """Raises the first error, if there was any."""
        for error in self.failed.values():
            raise error


@dataclass(frozen=True)
class _Made:
    """The result of a step: new positions, the version of the delta table if it was written, and the
    intervals whose inner states are given up.
    """

    moves: Mapping[ForwardQuery, int]
    version: int
    as_one: tuple[Interval, ...] = ()


@dataclass(frozen=True)
class PropagateDriver:
    """Propagates views, each under its lease."""

    catalog: Catalog
    tables: LakeTables
    views: Views
    choice: RefreshChoice
    processes: Processes
    faults: Faults

    @property
    def events(self) -> Events:
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
        took: dict[str, float] = {}

        def run(name: str) -> int:
            started = time.monotonic()
            try:
                return self.run(name, upto, wait_seconds, seconds.get(name, inf))
            except Exception as error:
                failed[name] = error
                return 0
            finally:
                took[name] = time.monotonic() - started

        with ThreadPoolExecutor(max_workers=4, thread_name_prefix="rollview-view") as drivers:
            while waiting:
                inputs = {name: _inputs(self.views.named(name)) for name in waiting}
                ready = [name for name in waiting if not inputs[name] & set(waiting)]
                steps |= dict(zip(ready, drivers.map(run, ready), strict=True))
                waiting = [name for name in waiting if name not in ready]
        return Propagations(steps, failed, took)

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
            check_resumable(self.catalog, view)
            begun, meter = self.catalog.views.high_water(name), None
            try:
                while self._step(lease, view, upto, end):
                    steps += 1
                    meter = meter or ProgressMeter(self.events, "propagate", name, TRANSACTIONS)
                    self._report_progress(meter, name, begun, upto)
                    if time.monotonic() >= end:
                        break
            except EvaluationError as found:
                self._stop_before(lease, view, found)
        return steps

    def _report_progress(self, meter: ProgressMeter, name: str, begun: int, upto: int | None) -> None:
        """Reports how many transactions a view has caught up with since `begun`, and of how many."""
        end = self.catalog.history.last_csn() if upto is None else upto
        meter.at(self.catalog.views.high_water(name) - begun, max(end - begun, 0))

    def _stop_before(self, lease: Lease, view: View, found: EvaluationError) -> None:
        """Propagates as far as the view can be computed, and says why not further."""

        def reach(csn: int) -> None:
            while self._step(lease, view, csn):
                pass

        good = self.catalog.views.high_water(view.name)
        first = first_uncomputable(good, found, reach)
        raise with_rows(self.processes.relations, view, first) from first.__cause__

    def recover(self, lease: Lease, view: View) -> None:
        """Finishes a step that was begun; takes a load back that was not finished."""
        take_back(self.catalog, self.tables, lease, view.name)
        for step in self.catalog.steps.pending(PropagateStep, view.name):
            by = replace(view, algorithm=step.bounds.algorithm)
            if self._is_lost(by, step):
                self.catalog.steps.abandon(lease, step)
                continue
            try:
                with naming(view):
                    self._run(lease, by, step)
            except (EvaluationError, TableTruncated):
                # A shorter one finds out how far it can go.
                self.catalog.steps.abandon(lease, step)

    def _is_lost(self, view: View, step: Step[PropagateStep]) -> bool:
        """Whether a step was to write states that only a process knew which has died.

        One that costs have given another algorithm is not repeated either: the view's own can do it.
        """
        is_repeated = algorithm_of(view).sequenced and not step.bounds.algorithm
        if is_repeated or not step.bounds.intervals:
            return False
        writer = self.tables.writer(f"propagate:{view.name}")
        return self._delta_table(view.name).last_step(writer) < step.id

    def _step(self, lease: Lease, view: View, upto: int | None, end_seconds: float = inf) -> bool:
        """One step, not beyond a csn; whether there was anything to do.

        A raw algorithm may go beyond it, and ends with the first state after `end_seconds`.
        """
        # First how far it may go, then what was lost by then: the other way round, a loss could be missed.
        ends = [self.catalog.history.last_csn(), upto, self.faults.limit(view)]
        end = min(each for each in ends if each is not None)
        high_water = self.catalog.views.high_water(view.name)
        ahead = ahead_of(self.catalog, view, high_water)
        before = min([end, *(each.csn - 1 for each in ahead)])
        executed = self._control.executed(view, before) if is_rolling(view) else 0
        # A delta of rolling propagation is right only where all its queries have reached that time.
        before = max(before, executed)
        intervals, skipped = self.choice.sizing.next(view, before)
        whole = Interval(high_water, self.choice.sizing.reach(view, before))
        if intervals and (reason := self.choice.reason_to_recompute(view, whole)):
            moves = dict.fromkeys(self.catalog.views.positions(view.name), whole.upto)
            bounds = PropagateStep((), _skips(moves), recomputed=whole.upto, reason=reason)
            self._begin(lease, view, bounds, whole.upto)
            return True
        # Algorithms that take messages raw may take in more than their interval, but not a truncation.
        if intervals and not ahead and is_chosen_by_cost(view):
            chosen = self._chooser.next(lease, view, whole)
            if chosen is not None and self._run_chosen(lease, chosen, end_seconds):
                return True
        if intervals or skipped:
            if algorithm_of(view).sequenced or not intervals:
                self._run_through(lease, view, intervals, skipped, executed)
            else:
                self._run_raw(lease, view, intervals, end_seconds)
            return True
        if ahead and high_water == before < end:
            self._pass_over(lease, view, ahead)
            return True
        return False

    @property
    def _control(self) -> ControlRecords:
        return ControlRecords(self.catalog)

    @property
    def _chooser(self) -> AlgorithmChooser:
        return AlgorithmChooser(self.catalog, self.tables, self.views, self.choice.sizing)

    def _run_chosen(self, lease: Lease, chosen: ChosenStep, end_seconds: float) -> bool:
        """Runs a step by the algorithm that costs have chosen; whether the view has come further.

        An error of the algorithm stops no view: its own makes the step instead.
        """
        view, started = chosen.view, time.monotonic()
        algorithm, high_water = algorithm_of(view), self.catalog.views.high_water(view.name)
        known = self.catalog.works.by_algorithm(view.name).get(algorithm.name)
        intervals = dict.fromkeys(algorithm.positions(view), chosen.interval)
        try:
            if algorithm.sequenced:
                self._run_through(lease, view, intervals, {}, 0)
            else:
                self._run_raw(lease, view, intervals, end_seconds)
        except Exception as error:
            report_retry(self.events, f"{view.name} by {algorithm.name}", 1, 0.0, error)
            self._chooser.failed(lease, chosen, error)
            self.recover(lease, replace(view, algorithm=""))
            return self.catalog.views.high_water(view.name) > high_water
        if chosen.is_measured:
            self._chooser.measured(lease, chosen, known, time.monotonic() - started)
        return True

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
            algorithm=view.algorithm,
        )
        started = time.monotonic()
        lookups = self._begin(lease, view, bounds, max((i.upto for i in intervals.values()), default=0))
        self.choice.took(view, intervals, time.monotonic() - started, lookups)

    def _run_raw(self, lease: Lease, view: View, intervals: Intervals, end_seconds: float) -> None:
        """Runs an algorithm that takes messages raw; the states that it reaches are steps of their own."""
        ((query, interval),) = intervals.items()
        started, done, lookups = time.monotonic(), interval.after, list[Lookups]()
        self._check_no_external_writes(view)
        with closing(self.processes.run_raw(view, interval)) as reaching:
            while (reached := _next(view, reaching, interval.upto)) is not None:
                own = QueryInterval(query.block, query.relation, *astuple(reached.interval))
                done = reached.interval.upto
                bounds = PropagateStep((own,), (), algorithm=view.algorithm)
                lookups += self._begin(lease, view, bounds, done, reached)
                if time.monotonic() >= end_seconds:
                    break
        taken = {query: Interval(interval.after, done)}
        self.choice.took(view, taken, time.monotonic() - started, lookups)

    def _pass_over(self, lease: Lease, view: View, truncations: Sequence[Truncation]) -> None:
        """Takes a view over the next csn, at which tables were truncated, if it is empty behind it."""
        if not leave_empty(view, truncations):
            raise truncated(truncations[0])
        csn = truncations[0].csn
        moves = dict.fromkeys(self.catalog.views.positions(view.name), csn)
        self._begin(lease, view, PropagateStep((), _skips(moves), csn), csn)

    def _begin(
        self, lease: Lease, view: View, bounds: PropagateStep, upto: int, reached: Reached | None = None
    ) -> tuple[Lookups, ...]:
        """Records a step and runs it; its look-ups."""
        self._check_no_external_writes(view)
        step = self.catalog.steps.begin(lease, view.name, bounds)
        try:
            with naming(view, upto):
                return self._run(lease, view, step, reached)
        except (EvaluationError, TableTruncated):
            # Nothing of it has been written: rows are computed before.
            self.catalog.steps.abandon(lease, step)
            raise

    def _check_no_external_writes(self, view: View) -> None:
        """Refuses tables to read or write that are not as rollview left them."""
        self.tables.check_change_logs(table for table in view.tables if table.source)
        record = self.views.record(view.name)
        self.tables.check_untouched(self._delta_table(view.name), record.delta_version)

    def _delta_table(self, name: str) -> LakeTable:
        return self.tables.of_view(name, self.views.record(name).generation).deltas

    def _run(
        self, lease: Lease, view: View, step: Step[PropagateStep], reached: Reached | None = None
    ) -> tuple[Lookups, ...]:
        before = self.catalog.views.high_water(view.name)
        refresh = None
        counted = None if reached is None else reached.timer
        with timed_step(self.events, "propagate", view.name, step.id, counted) as timer:
            made = self._publish(view, step, timer, reached)
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
                worked = self._worked(view, step.bounds, made.moves, timer)
                self.catalog.steps.finish(lease, step, moved, worked, *effects)
        if refresh is not None:
            to, rows, seconds = refresh.to_csn, refresh.rows, refresh.seconds
            self.events.emit(events.Refreshed(view.name, RECOMPUTED, to, rows, seconds, refresh.reason))
        if (high_water := self.catalog.views.high_water(view.name)) > before:
            self.events.emit(Propagated(view.name, before, high_water))
        return timer.lookups

    def _worked(
        self, view: View, bounds: PropagateStep, moves: Mapping[ForwardQuery, int], timer: StepTimer
    ) -> Worked:
        """The cost of a step; it is that of the algorithm if forward queries ran."""
        if not bounds.intervals:
            return Worked(view.name, timer.work, lookups=timer.lookups)
        before = self.catalog.views.positions(view.name)
        low, high = min(before.values()), min((before | dict(moves)).values())
        tables = self.views.base_tables(view.name)
        transactions = self.catalog.history.units_touching(tables, low, high)
        name = algorithm_of(view).name
        return Worked(view.name, timer.work, name, transactions, timer.seconds, timer.lookups)

    def _refresh(self, view: View, whole: Interval, seconds: float, reason: str) -> Refresh:
        files = self._delta_table(view.name).files(csn=(whole.after, whole.upto))
        rows = sum(file.rows for file in files)
        return Refresh(view.name, RECOMPUTED, whole.after, whole.upto, rows, seconds, reason, time.time())

    def _given_up(self, view: View, whole: Interval) -> list[Condensed]:
        """The states between two csn of a view that was recomputed, and of all views above it."""
        if not touched_between(self.catalog, view, whole):
            return []
        known, above = self.catalog.views.all(), {view.name}
        for name, other in self.views.all().items():
            if any(table.qualified in above for table in other.tables):
                above.add(name)
        return [Condensed(name, whole.after, whole.upto) for name in sorted(above) if name in known]

    def _publish(
        self, view: View, step: Step[PropagateStep], timer: StepTimer, reached: Reached | None = None
    ) -> _Made:
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
            # The published delta is in the table; every query has moved to the end of its interval.
            written = {q: _reached(view, table, writer, step.id, i) for q, i in intervals.items()}
            moved = {query: interval.upto for query, interval in written.items()}
            as_one = () if algorithm_of(view).level is Level.COMPLETE else tuple(written.values())
            moves |= moved | self._rolled(view, step.bounds)
            return _Made(self._of_own(view, step.bounds, moves), table.version(), as_one)
        version, as_one = 0, ()
        with self._published(view, step.bounds, intervals, timer, reached) as published:
            for each in published:
                # A query that stays where it is does not take back that it may skip what changes nothing.
                moves |= {query: max(moves.get(query, to), to) for query, to in dict(each.moves).items()}
            moves |= self._rolled(view, step.bounds)
            moves = self._of_own(view, step.bounds, moves)
            as_one = tuple(each.as_one for each in published if each.as_one is not None)
            if published:
                with timer.phase("compute"):
                    delta = _total(self.views.layout(name), [each.delta for each in published])
                timer.rows = getattr(delta, "num_rows", None)
                high_water = min((self.catalog.views.positions(name) | moves).values())
                before = self.catalog.views.high_water(name)
                commit = self.tables.signed(f"propagate:{name}", step.id, high_water, "propagate", before)
                with timer.phase("write"):
                    version = table.append(delta, commit)
                    # Nobody else may have written between the last look and this.
                    table.check_no_external_writes(self.views.record(name).delta_version)
        return _Made(moves, version, as_one)

    def _rolled(self, view: View, bounds: PropagateStep) -> dict[ForwardQuery, int]:
        """Where rolling propagation moves positions to: as far as it has compensated for."""
        return self._control.ended(view, bounds)[0] if bounds.executed else {}

    def _of_own(
        self, view: View, bounds: PropagateStep, moves: dict[ForwardQuery, int]
    ) -> dict[ForwardQuery, int]:
        """The view's own positions move together where another algorithm has made the step."""
        if not bounds.algorithm:
            return moves
        (upto,) = set(moves.values())
        return dict.fromkeys(self.catalog.views.positions(view.name), upto)

    @contextmanager
    def _published(
        self,
        view: View,
        bounds: PropagateStep,
        intervals: Intervals,
        timer: StepTimer,
        reached: Reached | None,
    ) -> Iterator[Sequence[Publish[PlacedBag]]]:
        """The delta that the step publishes; its rows may be gone when the block ends."""
        if reached is not None:
            yield reached.published
        elif bounds.emptied:
            yield self.processes.empty(view, bounds.emptied, timer)
        elif bounds.recomputed:
            whole = Interval(self.catalog.views.high_water(view.name), bounds.recomputed)
            with self.processes.recompute(view, whole, timer) as published:
                yield published
        else:
            yield self.processes.run(view, intervals, timer, bounds)


def _reached(view: View, table: LakeTable, writer: str, step: int, interval: Interval) -> Interval:
    """How far an interval was propagated by a step that has been written."""
    if algorithm_of(view).sequenced:
        return interval
    # Releases that wrote all states of an interval in one step may have taken in more than it says.
    commits = (table.commit_at(version) for version in range(table.version(), 0, -1))
    own = (each for each in commits if each is not None and (each.writer, each.step) == (writer, step))
    return Interval(interval.after, next(own).csn)


def _next(view: View, reaching: Iterator[Reached], upto: int) -> Reached | None:
    """The next states that an algorithm reaches; an error of Spark becomes one of the view, up to a csn."""
    with naming(view, upto):
        return next(reaching, None)


def _skips(moves: Mapping[ForwardQuery, int]) -> tuple[QuerySkip, ...]:
    return tuple(QuerySkip(query.block, query.relation, to) for query, to in moves.items())


def _inputs(view: View) -> set[str]:
    """The views that a view reads."""
    return {table.name for table in view.tables if not table.source}


def _total(layout: Layout, deltas: Sequence[PlacedBag]) -> Any:
    """All pieces of the view delta as one, computed in one job."""
    total = reduce(lambda left, right: left.plus(right), (layout.typed(delta, CSN) for delta in deltas))
    return total.materialized().rows()

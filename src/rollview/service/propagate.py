"""propagate: makes view deltas, by the algorithm of the view, interval by interval.

One step gives every forward query of the view its interval, records these bounds, runs the algorithm's
processes side by side until each has published, writes all they published as one append to the view's
delta table, and moves the positions. The processes are the very generators that the simulator runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from rollview.algebra.history import CSN
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.algorithms.effects import (
    Ask,
    Await,
    Changes,
    Compensated,
    Execute,
    ForwardQuery,
    Interval,
    Newest,
    NextInterval,
    Process,
    Publish,
    RowsOf,
)
from rollview.catalog import Lease, Moved, PropagateStep, QueryInterval, QuerySkip, Step
from rollview.errors import RollviewError
from rollview.events import Propagated
from rollview.lake import Commit
from rollview.service.definitions import algorithm_of
from rollview.service.interval_sizing import IntervalSizing
from rollview.service.relations import Relations
from rollview.service.step_timer import StepTimer, timed_step
from rollview.service.warehouse import Warehouse
from rollview.spark import SparkBag

Bounds = dict[ForwardQuery, Interval]


@dataclass
class Propagation:
    """The propagation of one view, by whoever holds its lease."""

    warehouse: Warehouse
    view: View
    lease: Lease
    interval_sizing: IntervalSizing = field(default_factory=IntervalSizing)

    def __post_init__(self) -> None:
        self.relations = Relations(self.warehouse, self.view)
        self.algorithm = algorithm_of(self.view)
        self.timer = StepTimer()

    def recover(self) -> None:
        """Finishes a step that was begun."""
        for step in self.warehouse.catalog.pending(PropagateStep, self.view.name):
            self._run(step)

    def step(self, upto: int | None = None) -> bool:
        """One step, not beyond a csn; whether there was anything to do."""
        positions = self.warehouse.catalog.positions(self.view.name)
        intervals, skipped = self._bounds(positions, upto)
        if not intervals and not skipped:
            return False
        self._check_no_external_writes()
        bounds = PropagateStep(
            tuple(QueryInterval(q.block, q.relation, i.after, i.upto) for q, i in intervals.items()),
            tuple(QuerySkip(query.block, query.relation, to) for query, to in skipped.items()),
        )
        started = time.monotonic()
        step = self.warehouse.catalog.begin(self.lease, self.view.name, bounds)
        self._run(step)
        self.interval_sizing.took(intervals, time.monotonic() - started, self.warehouse.project.step_seconds)
        return True

    def _bounds(
        self, positions: Mapping[ForwardQuery, int], limit: int | None
    ) -> tuple[Bounds, dict[ForwardQuery, int]]:
        """For each forward query its interval, or how far it can go without asking anything."""
        intervals: Bounds = {}
        skipped: dict[ForwardQuery, int] = {}
        for query, position in positions.items():
            tables = self._tables(query)
            newest = min(self.relations.newest(table) for table in tables)
            newest = newest if limit is None else min(newest, limit)
            if newest <= position:
                continue
            if not any(self.relations.touched(table, position, newest) for table in tables):
                skipped[query] = newest
                continue
            number = self.interval_sizing.transactions(self.view, query, tables)
            names = [table.qualified for table in tables if table.source]
            upto = self.warehouse.catalog.next_csn_touching(names, position, number) if names else newest
            intervals[query] = Interval(position, min(newest, upto))
        return intervals, skipped

    def _check_no_external_writes(self) -> None:
        """What is read and what is written must be as rollview left it."""
        logs = [self.warehouse.change_log(table) for table in self.view.tables if table.source]
        for table in (*logs, self.warehouse.delta_table(self.view.name)):
            self.warehouse.check_no_external_writes(table)

    def _tables(self, query: ForwardQuery) -> list[Table]:
        relations = self.view.blocks[query.block].relations
        chosen = relations if query.relation is None else (relations[query.relation],)
        return [relation.table for relation in chosen]

    def _run(self, step: Step[PropagateStep]) -> None:
        name, catalog = self.view.name, self.warehouse.catalog
        before = catalog.high_water(name)
        with timed_step(self.warehouse.events, "propagate", name, step.id) as self.timer:
            self._publish(step)
        if (reached := catalog.high_water(name)) > before:
            self.warehouse.events.emit(Propagated(name, before, reached))

    def _publish(self, step: Step[PropagateStep]) -> None:
        """Runs the processes through the step's intervals and publishes what they made."""
        name = self.view.name
        intervals = {
            ForwardQuery(name, block, relation): Interval(after, upto)
            for block, relation, after, upto in step.bounds.intervals
        }
        moves = {ForwardQuery(name, block, relation): to for block, relation, to in step.bounds.skipped}
        table = self.warehouse.delta_table(name)
        writer = self.warehouse.writer(f"propagate:{name}")
        if table.last_step(writer) < step.id:
            published = self._evaluate(intervals)
            for each in published:
                moves |= dict(each.moves)
            positions = self.warehouse.catalog.positions(name) | moves
            high_water = min(positions.values())
            if published:
                with self.timer.phase("compute"):
                    delta = _total(self, [each.delta for each in published])
                self.timer.rows = getattr(delta, "num_rows", None)
                when = self.warehouse.catalog.commit_time(high_water) or 0.0
                with self.timer.phase("write"):
                    table.append(delta, Commit(writer, step.id, high_water, when, "propagate"))
        else:
            # What was published is in the table; it moved every query to where its interval said.
            moves |= {query: interval.upto for query, interval in intervals.items()}
        with self.timer.phase("commit"):
            self.warehouse.catalog.finish(self.lease, step, Moved(name, tuple(moves.items())))

    def _evaluate(self, intervals: Bounds) -> list[Publish[SparkBag]]:
        """What the processes publish for these intervals."""
        running = [
            _Running(self, process, intervals) for process in self.algorithm.processes(self.view) if intervals
        ]
        results = self.warehouse.work_pool.map(lambda each: each.run(), running)
        return [published for result in results for published in result]


_PHASES: dict[type, str] = {Changes: "read_changes", Ask: "lookups"}
"""To which phase of a step the service of an effect counts."""


class _Running:
    """One process of the algorithm; it is over when it waits for an interval that the step does not have."""

    def __init__(self, propagation: Propagation, process: Process, intervals: Bounds) -> None:
        self.propagation = propagation
        self.process = process
        self.intervals = dict(intervals)
        self.horizon = 0

    def run(self) -> list[Publish[SparkBag]]:
        published: list[Publish[SparkBag]] = []
        value: Any = None
        while True:
            try:
                effect = self.process.send(value)
            except StopIteration:
                return published
            if isinstance(effect, NextInterval):
                interval = self.intervals.pop(effect.query, None)
                if interval is None:
                    self.process.close()
                    return published
                self.horizon = interval.upto
                value = interval if effect.after is None else Interval(effect.after, interval.upto)
            elif isinstance(effect, Publish):
                published.append(effect)
                value = None
            else:
                with self.propagation.timer.phase(_PHASES.get(type(effect), "compute")):
                    value = self._serve(effect)

    def _serve(self, effect: Any) -> Any:
        relations, warehouse = self.propagation.relations, self.propagation.warehouse
        match effect:
            case Changes(table=table, after=after, upto=upto):
                return relations.changes(table, after, upto)
            case Ask(questions=questions):
                return relations.lookup(questions)
            case Await(answers=answers):
                return tuple(answer.saw for answer in answers)
            case Execute(at=at):
                return warehouse.catalog.last_csn() if at is None else at
            case Newest():
                # The history reaches as far as the step's bounds say, however often it is repeated.
                return self.horizon
            case RowsOf(columns=columns, rows=rows):
                # Only empty ones are asked for; they take the type of whatever they are added to.
                types = {name: "bigint" if name == CSN else "void" for name in columns}
                return SparkBag.of(warehouse.spark, types, dict(rows))
            case Compensated():
                return None
        raise RollviewError(f"{self.propagation.algorithm.name} asks for {type(effect).__name__}")


def _total(propagation: Propagation, deltas: Sequence[SparkBag]) -> Any:
    """All pieces of the view delta as one, computed in one job."""
    layout = propagation.warehouse.layout(propagation.view.name)
    total = reduce(lambda left, right: left.plus(right), (layout.typed(delta, CSN) for delta in deltas))
    return total.materialized().rows()


def propagate_all(
    warehouse: Warehouse, names: Sequence[str], upto: int | None, wait_seconds: float
) -> dict[str, int]:
    """Propagates views side by side, a view that reads another one after that one; the steps of each."""
    waiting = list(names)
    steps: dict[str, int] = {}
    with ThreadPoolExecutor(max_workers=4, thread_name_prefix="rollview-view") as drivers:
        while waiting:
            inputs = {name: {t.name for t in warehouse.view(name).tables if not t.source} for name in waiting}
            ready = [name for name in waiting if not inputs[name] & set(waiting)]
            done = drivers.map(lambda name: propagate(warehouse, name, upto, wait_seconds), ready)
            steps |= dict(zip(ready, done, strict=True))
            waiting = [name for name in waiting if name not in ready]
    return steps


def propagate(warehouse: Warehouse, name: str, upto: int | None = None, wait_seconds: float = 0.0) -> int:
    """Propagates a view as far as its relations reach, or up to a csn; returns the number of steps."""
    view = warehouse.view(name)
    steps = 0
    with warehouse.catalog.lease(f"propagate:{name}", wait_seconds) as lease:
        propagation = Propagation(warehouse, view, lease, warehouse.interval_sizing)
        propagation.recover()
        while propagation.step(upto):
            steps += 1
    return steps

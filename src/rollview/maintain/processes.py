"""The processes of an algorithm, run through given intervals: the very generators that the simulator runs.

Their effects are served from change logs, sources and stored views.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from rollview.algebra.history import CSN
from rollview.algebra.view import View
from rollview.algorithms.effects import (
    Answerable,
    Ask,
    Await,
    Changes,
    Compensated,
    ContentsAt,
    Doubted,
    Execute,
    ForwardQuery,
    HighWater,
    Interval,
    Netted,
    Newest,
    NextInterval,
    NextIntervals,
    Process,
    Publish,
    Recall,
    RowsOf,
    SourceDelta,
    Spared,
    StateAt,
    StateWith,
    Values,
)
from rollview.algorithms.interpreter import WAIT, Running
from rollview.algorithms.recomputing import empty, recompute
from rollview.bags import PlacedBag
from rollview.catalog import Catalog, PropagateStep
from rollview.errors import RollviewError
from rollview.maintain.control_records import Control, ControlRecords, is_rolling
from rollview.maintain.intervals import Intervals
from rollview.maintain.raw_step import RawStep, Reached
from rollview.maintain.relations import Relations
from rollview.maintain.snapshot import SnapshotReader
from rollview.maintain.source_deltas import SourceDeltas
from rollview.runtime.progress import StepTimer
from rollview.runtime.session import Session
from rollview.runtime.sites import side_by_side
from rollview.views.properties import algorithm_of

_PHASES: dict[type, str] = {
    Changes: "read_changes",
    SourceDelta: "read_changes",
    Ask: "lookups",
    StateWith: "lookups",
    ContentsAt: "lookups",
}
"""To which phase of a step the service of an effect counts."""


@dataclass(frozen=True)
class Processes:
    """Runs the processes of views."""

    catalog: Catalog
    relations: Relations
    snapshots: SnapshotReader
    deltas: SourceDeltas
    session: Session

    def run(
        self, view: View, intervals: Intervals, timer: StepTimer, bounds: PropagateStep
    ) -> list[Publish[PlacedBag]]:
        """The results of the processes of a view, run side by side, for these intervals."""
        if not intervals:
            return []
        control = ControlRecords(self.catalog).begun(view, bounds) if is_rolling(view) else {}
        processes = algorithm_of(view).processes(view)
        shared = _Shared(control=control, executed=bounds.executed or self.catalog.history.last_csn())
        return self._run_all([_Running(self, view, each, intervals, timer, shared) for each in processes])

    def run_raw(self, view: View, interval: Interval) -> Generator[Reached]:
        """The states that an algorithm reaches which takes messages raw, as soon as it reaches them."""
        return RawStep(self.relations, self.session, view, interval).run()

    def empty(self, view: View, csn: int, timer: StepTimer) -> list[Publish[PlacedBag]]:
        """The delta of a view that becomes empty."""
        process = empty(view, self.catalog.views.positions(view.name), csn)
        return _Running(self, view, process, {}, timer, _Shared()).run()

    @contextmanager
    def recompute(
        self, view: View, interval: Interval, timer: StepTimer
    ) -> Iterator[list[Publish[PlacedBag]]]:
        """The delta of a view that is recomputed as a whole; to be used before the block ends."""
        process = recompute(view, self.catalog.views.positions(view.name), interval)
        with self.snapshots.scratch() as folder:
            yield _Running(self, view, process, {}, timer, _Shared(folder)).run()

    def _contents_at(self, view: View, csn: int, folder: Path) -> list[PlacedBag]:
        """The content of each block of a view at a csn."""
        readings = self.snapshots.read(view.tables, folder)
        return list(self.snapshots.contents_at(view, readings, csn))

    def _run_all(self, running: list[_Running]) -> list[Publish[PlacedBag]]:
        results = side_by_side(self.session.work_pool, _Running.run, running)
        return [published for result in results for published in result]


class _Shared:
    """Answers that several processes of a step share, computed once; a folder for whole relations, if any.

    `control` is what they knew when the step began, `executed` when their queries see the relations.
    """

    def __init__(self, folder: Path | None = None, control: Control | None = None, executed: int = 0) -> None:
        self.folder = folder
        self.control = control or {}
        self.executed = executed
        self._lock = Lock()
        self._asked: dict[Hashable, Future[Any]] = {}

    def get(self, question: Hashable, answer: Callable[[], Any]) -> Any:
        """The answer to a question; the first caller computes it."""
        with self._lock:
            is_first = question not in self._asked
            future = self._asked.setdefault(question, Future())
        if is_first:
            try:
                future.set_result(answer())
            except BaseException as error:
                future.set_exception(error)
        return future.result()


class _Running:
    """One process of the algorithm; it is over when it waits for an interval that the step does not have."""

    def __init__(
        self,
        parts: Processes,
        view: View,
        process: Process,
        intervals: Intervals,
        timer: StepTimer,
        shared: _Shared,
    ) -> None:
        self.parts = parts
        self.view = view
        self.tables = {table.qualified: table for table in view.tables}
        self.running = Running(process)
        self.published: list[Publish[PlacedBag]] = []
        self.intervals = dict(intervals)
        self.timer = timer
        self.shared = shared
        self.interval = Interval(0, 0)

    def run(self) -> list[Publish[PlacedBag]]:
        if self.running.advance(None, self._serve):
            self.running.process.close()
        return self.published

    def _serve(self, _: Running, effect: Any) -> Any:
        match effect:
            case NextInterval(query=query, after=after):
                interval = self.intervals.pop(query, None)
                if interval is None:
                    return WAIT
                self.interval = interval if after is None else Interval(after, interval.upto)
                return self.interval
            case NextIntervals(queries=queries):
                return self._next_of(queries)
            case Publish():
                self.published.append(effect)
                return None
        with self.timer.phase(_PHASES.get(type(effect), "compute")):
            return self._computed(effect)

    def _next_of(self, queries: Sequence[ForwardQuery]) -> Any:
        """An interval for each query; an empty one for those that stay where they are."""
        own = {query: self.intervals.pop(query) for query in queries if query in self.intervals}
        if not own:
            return WAIT
        self.interval = Interval(
            min(each.after for each in own.values()), max(each.upto for each in own.values())
        )
        positions = self.parts.catalog.views.positions(self.view.name)
        return {query: own.get(query) or Interval(positions[query], positions[query]) for query in queries}

    def _computed(self, effect: Any) -> Any:
        relations = self.parts.relations
        match effect:
            case Changes(table=name, after=after, upto=upto):
                table, since = self.tables[name], self.interval.after
                question = (name, after, upto, since)
                return self.shared.get(question, lambda: relations.changes(table, after, upto, since))
            case Ask(questions=questions):
                return relations.lookup(questions, self.interval.after, self.timer)
            case Await(answers=answers):
                return tuple(answer.saw for answer in answers)
            case Execute(at=at):
                return self.shared.executed if at is None else at
            case Recall():
                return dict(self.shared.control)
            case Newest():
                # The history reaches as far as the step's bounds say, however often it is repeated.
                return self.interval.upto
            case RowsOf(columns=columns, rows=rows):
                # Only empty ones are asked for; they take the type of whatever they are added to.
                types = {name: "bigint" if name == CSN else "void" for name in columns}
                return PlacedBag.of(self.parts.session.spark, types, dict(rows))
            case HighWater(view=name):
                return self.parts.catalog.views.high_water(name)
            case StateAt() | StateWith() | Answerable() | ContentsAt():
                return self._of_a_view(effect)
            case SourceDelta(block=block, after=after, upto=upto):
                return self.shared.get(effect, lambda: self.parts.deltas.read(self.view, block, after, upto))
            case Values(rows=rows, columns=columns):
                found = rows.distinct(columns).table()
                return frozenset(zip(*(found.column(name).to_pylist() for name in columns), strict=True))
            case Spared() | Netted() | Doubted() | Compensated():
                return self.timer.count(effect)
        raise RollviewError(f"{algorithm_of(self.view).name} asks for {type(effect).__name__}")

    def _of_a_view(self, effect: StateAt | StateWith[PlacedBag] | Answerable[PlacedBag] | ContentsAt) -> Any:
        relations = self.parts.relations
        match effect:
            case StateAt(view=name, csn=csn):
                return relations.stored.open(name).state_at(csn)
            case StateWith(view=name, csn=csn, keys=keys):
                return relations.stored.open(name).state_with(csn, keys)
            case Answerable():
                return relations.known_state(self.view, effect)
            case ContentsAt(csn=csn):
                assert self.shared.folder is not None, "whole relations are read into a folder"
                return self.parts._contents_at(self.view, csn, self.shared.folder)

"""Progress and time of work: the one place that makes `Progress` events, and seconds per phase of a step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock

from pyarrow import parquet

from rollview.algorithms.effects import Answer, Compensated, Doubted, Netted, Question, Spared
from rollview.bags import PlacedBag
from rollview.catalog import Lookups, Work
from rollview.events import Events, Progress, StepBegun, StepFinished

EVERY_SECONDS = 1.0
ROWS, TRANSACTIONS = "rows", "transactions"


class ProgressMeter:
    """Counts what is done of a piece of work; at most one event a second, and none for what is quick."""

    def __init__(
        self,
        events: Events,
        kind: str,
        subject: str,
        unit: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._events, self._kind, self._subject, self._unit = events, kind, subject, unit
        self._clock = clock
        self._begun = self._reported_at = clock()
        self._first: int | None = None

    def at(self, done: int, total: int | None = None) -> None:
        """Reports progress, of a total if that is known."""
        now = self._clock()
        if self._first is None:
            self._first = done
        if now - self._reported_at < EVERY_SECONDS:
            return
        self._reported_at = now
        seconds, gained = now - self._begun, done - self._first
        left = None
        if total is not None and gained > 0:
            left = max(0.0, (total - done) * seconds / gained)
        self._events.emit(Progress(self._kind, self._subject, done, total, self._unit, seconds, left))


@contextmanager
def watching_files(meter: ProgressMeter, folder: Path, estimate: Callable[[], int | None]) -> Iterator[None]:
    """Reports how many rows are in the files of a folder that is being filled, and the estimated total.

    Work that takes less than a second is not watched at all.
    """
    done = threading.Event()

    def watch() -> None:
        counted: dict[Path, int] = {}
        total = None
        if not done.wait(EVERY_SECONDS):
            with suppress(Exception):  # A source without an estimate is no reason to stop.
                total = estimate()
        while not done.wait(EVERY_SECONDS):
            for file in folder.glob("*.parquet"):
                # One that is being written has no footer yet.
                with suppress(OSError, ValueError):
                    if file not in counted:
                        counted[file] = parquet.read_metadata(file).num_rows
            rows = sum(counted.values())
            meter.at(rows, None if total is None else max(total, rows))

    watcher = threading.Thread(target=watch, name="rollview-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


# Where the time of a step goes: seconds per phase, cheap enough to be always on.


class StepTimer:
    """Adds up the seconds of a step's phases; parts of the step may run in several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._started = time.monotonic()
        self.phases: dict[str, float] = {}
        self.rows: int | None = None
        self.work = Work(steps=1)
        self._lookups: dict[tuple[str, ...], Lookups] = {}

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Counts the time inside to a phase, also if it fails."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - started)

    @property
    def lookups(self) -> tuple[Lookups, ...]:
        """The sub-queries to sources, by the tables that they asked for."""
        return tuple(self._lookups.values())

    def looked_up(
        self, question: Question[PlacedBag], answer: Answer[PlacedBag], seconds: float | None
    ) -> None:
        """Counts a sub-query, and the rows that were found; without those that only Spark has seen.

        `seconds` is how long its source took; None where a view answered.
        """
        found = [bag.table() for bag in answer.rows if bag.place == "driver"]
        rows = sum(each.num_rows for each in found)
        self._add(lookups=1, rows_found=rows)
        if seconds is None:
            return
        relations = question.block.relations
        steps = question.sub_query.join_steps
        tables = tuple(sorted({relations[each.relation].table.qualified for each in steps}))
        sent = sum(bag.table().num_rows for bag in question.keys if bag is not None)
        one = Lookups(tables, 1, sent, rows, sum(each.nbytes for each in found), seconds)
        with self._lock:
            known = self._lookups.get(tables)
            self._lookups[tables] = one if known is None else known.plus(one)

    def count(
        self, outcome: Spared[PlacedBag] | Netted[PlacedBag] | Doubted | Compensated[PlacedBag]
    ) -> None:
        """Counts the work that an algorithm reports."""
        if isinstance(outcome, Spared):
            self._add(spared=outcome.rows.table().num_rows if outcome.rows.place == "driver" else 0)
        elif isinstance(outcome, Netted):
            if outcome.before.place == "driver" and outcome.after.place == "driver":
                self._add(spared=outcome.before.table().num_rows - outcome.after.table().num_rows)
        elif isinstance(outcome, Doubted):
            self._add(in_doubt=outcome.transactions)

    def _add(self, **counted: int) -> None:
        with self._lock:
            sums = {name: getattr(self.work, name) + number for name, number in counted.items()}
            self.work = replace(self.work, **sums)

    def add(self, name: str, seconds: float) -> None:
        with self._lock:
            self.phases[name] = self.phases.get(name, 0.0) + seconds


@contextmanager
def timed_step(
    events: Events, kind: str, subject: str, step: int = 0, timer: StepTimer | None = None
) -> Iterator[StepTimer]:
    """Emits that a step begins and, if nothing is raised inside, that it is finished.

    A given timer has already counted the work before the step.
    """
    events.emit(StepBegun(kind, subject, step))
    timer = timer or StepTimer()
    yield timer
    phases = dict(timer.phases)
    counted = (timer.rows, timer.work.lookups, timer.work.rows_found)
    events.emit(StepFinished(kind, subject, step, timer.seconds, phases, *counted))

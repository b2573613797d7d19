"""Where the time of a step goes: seconds per phase, cheap enough to be always on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock

from rollview.algorithms.effects import Answer, Compensated, Doubted, Netted, Spared
from rollview.catalog import Work
from rollview.events import Events, StepBegun, StepFinished
from rollview.spark import SparkBag


class StepTimer:
    """Adds up the seconds of a step's phases; parts of the step may run in several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._started = time.monotonic()
        self.phases: dict[str, float] = {}
        self.rows: int | None = None
        self.work = Work(steps=1)

    @property
    def seconds(self) -> float:
        """How long the step has taken so far."""
        return time.monotonic() - self._started

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Counts the time inside to a phase, also if it fails."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - started)

    def looked_up(self, answers: Sequence[Answer[SparkBag]]) -> None:
        """Counts sub-queries, and the rows that were found; not those that only Spark has seen."""
        found = sum(bag.table().num_rows for each in answers for bag in each.rows if bag.is_at_driver)
        self._add(lookups=len(answers), rows_found=found)

    def count(self, told: Spared[SparkBag] | Netted[SparkBag] | Doubted | Compensated[SparkBag]) -> None:
        """Counts what an algorithm tells of its work."""
        if isinstance(told, Spared):
            self._add(spared=told.rows.table().num_rows if told.rows.is_at_driver else 0)
        elif isinstance(told, Netted):
            if told.before.is_at_driver and told.after.is_at_driver:
                self._add(spared=told.before.table().num_rows - told.after.table().num_rows)
        elif isinstance(told, Doubted):
            self._add(in_doubt=told.transactions)

    def _add(self, **counted: int) -> None:
        with self._lock:
            sums = {name: getattr(self.work, name) + number for name, number in counted.items()}
            self.work = replace(self.work, **sums)

    def add(self, name: str, seconds: float) -> None:
        """Counts seconds to a phase."""
        with self._lock:
            self.phases[name] = self.phases.get(name, 0.0) + seconds


@contextmanager
def timed_step(
    events: Events, kind: str, subject: str, step: int = 0, timer: StepTimer | None = None
) -> Iterator[StepTimer]:
    """Says that a step begins and, if nothing is raised inside, that it is finished.

    A timer that is given has counted what had to be done before the step could begin.
    """
    events.emit(StepBegun(kind, subject, step))
    timer = timer or StepTimer()
    yield timer
    phases = dict(timer.phases)
    counted = (timer.rows, timer.work.lookups, timer.work.rows_found)
    events.emit(StepFinished(kind, subject, step, timer.seconds, phases, *counted))

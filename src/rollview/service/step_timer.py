"""Where the time of a step goes: seconds per phase, cheap enough to be always on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from rollview.events import Events, StepBegun, StepFinished


class StepTimer:
    """Adds up the seconds of a step's phases; parts of the step may run in several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._started = time.monotonic()
        self.phases: dict[str, float] = {}
        self.rows: int | None = None

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
    events.emit(StepFinished(kind, subject, step, timer.seconds, dict(timer.phases), timer.rows))

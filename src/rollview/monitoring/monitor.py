"""A project, watched: its metrics, whether its process is well, whether it is ready.

`metrics_text`, `health` and `ready` are what `/metrics`, `/healthz` and `/readyz` answer, wherever these are
served. None of them starts Spark or asks a source.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from rollview.events import Event, StepBegun, StepFinished
from rollview.monitoring.collector import ProjectCollector
from rollview.monitoring.event_counters import EventCounters
from rollview.monitoring.lineage import LineageCounts
from rollview.monitoring.readiness import look_at
from rollview.monitoring.sampler import Sampler
from rollview.service.project import Project
from rollview.service.retry import Stop

IDLE_SECONDS = 120.0
"""How long the loop of `run` may give no sign of life between steps: pauses are 30 s at most."""

STEP_SECONDS = 3600.0
"""How long it may give none while a step is under way; a first load can take its time."""


@dataclass(frozen=True)
class Answer:
    """What a probe is told: whether all is well, and a few facts as JSON."""

    ok: bool
    body: dict[str, Any] = field(default_factory=dict)


class Monitor:
    """Everything that is watched in one process. `stop` is that of the loop of `run`, where one runs;
    `lineage` counts the events of `following_lineage`, where these are sent.
    """

    def __init__(
        self, project: Project, stop: Stop | None = None, lineage: LineageCounts | None = None
    ) -> None:
        self.project, self.stop = project, stop
        self.registry = CollectorRegistry()
        self.sampler = Sampler(project)
        self.life = _Life()
        self._counters = EventCounters(self.registry)
        self.registry.register(ProjectCollector(project, lambda: self.sampler.last, self.turned_at, lineage))
        ProcessCollector(registry=self.registry)

    def turned_at(self) -> float:
        """When the loop last came around; 0 if there is none, or it has not begun."""
        return 0.0 if self.stop is None else self.stop.turned_at

    @contextmanager
    def watching(self) -> Iterator[Monitor]:
        """Counts events and looks at sizes while the context lasts."""
        ends = [self.project.subscribe(each) for each in (self._counters, self.life)]
        self.sampler.start()
        try:
            yield self
        finally:
            self.sampler.close()
            for end in ends:
                end()


class _Life:
    """When something last happened, and which steps are under way.

    A step that failed has no end. But when the loop comes around, all that it had begun is over; only
    verification goes on beside it, and nothing waits for that.
    """

    def __init__(self) -> None:
        self.seen_at = time.time()
        self._lock = Lock()
        self._running: dict[tuple[str, str], float] = {}

    def __call__(self, event: Event) -> None:
        self.seen_at = time.time()
        with self._lock:
            match event:
                case StepBegun(kind=kind, subject=subject) if kind != "verify":
                    self._running[kind, subject] = self.seen_at
                case StepFinished(kind=kind, subject=subject):
                    self._running.pop((kind, subject), None)

    def running(self, turned_at: float) -> list[str]:
        """The steps under way that were begun since the loop last came around, the oldest first."""
        with self._lock:
            steps = self._running.items()
            return [f"{kind} {subject}".strip() for (kind, subject), begun in steps if begun >= turned_at]


def metrics_text(monitor: Monitor) -> bytes:
    """All metrics in Prometheus's text format."""
    return generate_latest(monitor.registry)


def health(monitor: Monitor) -> Answer:
    """Whether the process is alive and its loop has moved recently; a process without a loop just answers."""
    if monitor.stop is None:
        return Answer(True, {"healthy": True})
    running = monitor.life.running(monitor.turned_at())
    seconds = max(0.0, time.time() - max(monitor.life.seen_at, monitor.turned_at()))
    limit = STEP_SECONDS if running else IDLE_SECONDS
    body: dict[str, Any] = {"healthy": seconds <= limit, "seconds_since_sign_of_life": round(seconds, 1)}
    if running:
        body["under_way"] = running
    if seconds > limit:
        doing = f"while {running[0]} is under way" if running else "and no step is under way"
        body["reason"] = f"the loop has not moved for {seconds:.0f} s {doing}; the limit is {limit:.0f} s"
    return Answer(seconds <= limit, body)


def ready(monitor: Monitor) -> Answer:
    """Whether the catalog can be read, views are set up, and not all of them have stopped."""
    found, why_not = look_at(monitor.project)
    body: dict[str, Any] = {"ready": not why_not}
    if why_not:
        body["reason"] = why_not
    if found is not None:
        body |= {"views": len(found.views), "csn": found.last_csn}
        body["stopped_views"] = [view.name for view in found.views if view.halted]
        body["stopped_sources"] = [source.name for source in found.sources if source.halted]
    return Answer(not why_not, body)

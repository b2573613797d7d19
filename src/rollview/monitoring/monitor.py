"""Monitoring of a project: its metrics, the health of its process, whether it is ready.

`metrics_text`, `health` and `ready` are the answers of `/metrics`, `/healthz` and `/readyz`, wherever these
are served. None of them starts Spark or queries a source.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest

from rollview.algebra.view import is_stage
from rollview.events import (
    Captured,
    ClockJumped,
    Event,
    Failed,
    Halted,
    Maintained,
    Refreshed,
    Retry,
    SparkStarted,
    StepBegun,
    StepFinished,
    Verified,
)
from rollview.maintain.retry import Stop
from rollview.monitoring import metrics
from rollview.monitoring.collector import ProjectCollector, look_at
from rollview.monitoring.lineage import LineageCounts
from rollview.monitoring.metrics import Metric
from rollview.monitoring.sampler import Sampler
from rollview.project.project import Project

_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
"""From a small apply to a first load."""


def counter(metric: Metric, registry: CollectorRegistry) -> Counter:
    """A declared counter."""
    return Counter(metric.name, metric.help, metric.labels, registry=registry)


class EventCounters:
    """A subscriber that counts. Counters without labels show 0 from the beginning."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def made(metric: Metric) -> Counter:
            return counter(metric, registry)

        self._transactions = made(metrics.TRANSACTIONS)
        self._step_seconds = Histogram(
            metrics.STEP_SECONDS.name,
            metrics.STEP_SECONDS.help,
            metrics.STEP_SECONDS.labels,
            registry=registry,
            buckets=_BUCKETS,
        )
        self._phase_seconds = made(metrics.PHASE_SECONDS)
        self._step_rows = made(metrics.STEP_ROWS)
        self._lookups = made(metrics.LOOKUPS)
        self._lookup_rows = made(metrics.LOOKUP_ROWS)
        self._refreshes = made(metrics.REFRESHES)
        self._refresh_rows = made(metrics.REFRESH_ROWS)
        self._retries = made(metrics.RETRIES)
        self._errors = made(metrics.ERRORS)
        self._halts = made(metrics.HALTS)
        self._verified = made(metrics.VERIFIED)
        self._different = made(metrics.DIFFERENT)
        self._maintained = made(metrics.MAINTAINED)
        self._clock_jumps = made(metrics.CLOCK_JUMPS)
        self._spark_starts = made(metrics.SPARK_STARTS)

    def __call__(self, event: Event) -> None:
        match event:
            case Captured(transactions=number):
                self._transactions.inc(number)
            case StepFinished():
                self._count_step(event)
            case Refreshed(view=view, kind=kind, rows=rows) if not is_stage(view):
                self._refreshes.labels(view, kind).inc()
                if rows is not None:
                    self._refresh_rows.labels(view, kind).inc(rows)
            case Retry(what=what, kind=kind):
                self._retries.labels(what, kind).inc()
                self._errors.labels(kind).inc()
            case Failed(kind=kind):
                self._errors.labels(kind).inc()
            case Halted(scope=scope, kind=kind):
                self._halts.labels(scope, kind).inc()
            case Verified(view=view, different=different):
                self._verified.labels(view).inc()
                self._different.labels(view).inc(different)
            case Maintained(what=what, number=number):
                self._maintained.labels(what.replace(" ", "_")).inc(number)
            case ClockJumped():
                self._clock_jumps.inc()
            case SparkStarted():
                self._spark_starts.inc()

    def _count_step(self, event: StepFinished) -> None:
        self._step_seconds.labels(event.kind).observe(event.seconds)
        for phase, seconds in event.phases.items():
            self._phase_seconds.labels(event.kind, phase).inc(seconds)
        if event.rows is not None:
            self._step_rows.labels(event.kind).inc(event.rows)
        if event.lookups:
            self._lookups.labels(event.kind).inc(event.lookups)
            self._lookup_rows.labels(event.kind).inc(event.rows_found)


IDLE_SECONDS = 120.0
"""How long the loop of `run` may be silent between steps: pauses are 30 s at most."""

STEP_SECONDS = 3600.0
"""How long it may be silent during a step; a first load can take long."""


@dataclass(frozen=True)
class Answer:
    """The answer to a probe: whether all is well, and a few facts as JSON."""

    ok: bool
    body: dict[str, Any] = field(default_factory=dict)


class Monitor:
    """Everything that is monitored in one process. `stop` is that of the loop of `run`, where one runs;
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

    A step that failed has no end. But when the loop comes around, all steps that it had begun are over; only
    verification continues beside it, and nothing waits for that.
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
        body["stopped_sources"] = [source.site for source in found.sources if source.halted]
    return Answer(not why_not, body)

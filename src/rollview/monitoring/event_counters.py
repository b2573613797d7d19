"""Counters and histograms of what a process does, fed by its events."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

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
    StepFinished,
    Verified,
)
from rollview.monitoring import metrics
from rollview.monitoring.metrics import Metric

_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
"""From a small apply to a first load."""


def counter(metric: Metric, registry: CollectorRegistry) -> Counter:
    """A counter as it is declared."""
    return Counter(metric.name, metric.help, metric.labels, registry=registry)


class EventCounters:
    """A subscriber that counts. One that has no labels shows 0 from the beginning."""

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
        """Counts an event."""
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

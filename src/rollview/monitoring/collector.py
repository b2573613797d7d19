"""What is durable, as metrics: read from the catalog whenever somebody scrapes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from prometheus_client import Metric as Family
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

import rollview
from rollview.monitoring import metrics
from rollview.monitoring.lineage import LineageCounts
from rollview.monitoring.metrics import Metric
from rollview.monitoring.readiness import look_at
from rollview.monitoring.sampler import Sample
from rollview.service.measures import ConsumerMeasures, Measures, SourceMeasures, ViewMeasures
from rollview.service.project import Project

Value = float | int | bool | None


class ProjectCollector(Collector):
    """Reads a project. While the catalog cannot be read, it says that and nothing else."""

    def __init__(
        self,
        project: Project,
        sample: Callable[[], Sample],
        turned_at: Callable[[], float],
        lineage: LineageCounts | None = None,
    ) -> None:
        self._project, self._sample, self._turned_at, self._lineage = project, sample, turned_at, lineage

    def collect(self) -> Iterator[Family]:
        """All families; those without a value are left out."""
        yield _one(metrics.BUILD_INFO, 1, rollview.__version__, self._project.name)
        found, why_not = look_at(self._project)
        yield _one(metrics.CATALOG_UP, found is not None)
        yield _one(metrics.READY, not why_not)
        if turned_at := self._turned_at():
            yield _one(metrics.LOOP_TURNED, turned_at)
        if found is not None:
            yield from _project(found)
            yield from _sources(found.sources)
            yield from _views(found.views)
            yield from _consumers(found.consumers)
        yield from _sampled(self._sample())
        if (jobs := self._project.figures.spark_jobs()) is not None:
            yield CounterMetricFamily(metrics.SPARK_JOBS.name, metrics.SPARK_JOBS.help, jobs)
        if self._lineage is not None:
            yield _lineage(self._lineage)

    def describe(self) -> Iterator[Family]:
        """Nothing needs to be read in order to register it."""
        return iter(())


def _project(found: Measures) -> Iterator[Family]:
    since = [each.since for each in found.waiting]
    yield _one(metrics.LAST_CSN, found.last_csn)
    if found.last_commit_time is not None:
        yield _one(metrics.LAST_COMMIT, found.last_commit_time)
    yield _one(metrics.WAITING, len(found.waiting))
    yield _one(metrics.WAITING_SECONDS, max(0.0, time.time() - min(since)) if since else 0.0)


def _sources(sources: tuple[SourceMeasures, ...]) -> Iterator[Family]:
    now = time.time()
    values: dict[Metric, Callable[[SourceMeasures], Value]] = {
        metrics.SOURCE_VERSION: lambda each: each.version,
        metrics.SOURCE_MERGED: lambda each: each.merged,
        metrics.SOURCE_CAPTURED: lambda each: each.captured_at,
        metrics.SOURCE_LOOKED: lambda each: each.looked_at,
        metrics.SOURCE_LAG: lambda each: None if each.looked_at is None else max(0.0, now - each.looked_at),
        metrics.SOURCE_REACHABLE: lambda each: each.reachable,
        metrics.SOURCE_HALTED: lambda each: each.halted,
        metrics.SOURCE_TABLES_HALTED: lambda each: each.halted_tables,
    }
    for metric, value in values.items():
        yield _family(metric, [((each.name,), value(each)) for each in sources])


def _views(views: tuple[ViewMeasures, ...]) -> Iterator[Family]:
    info = [((each.name, each.policy, each.algorithm, each.schedule), 1) for each in views]
    yield _family(metrics.VIEW_INFO, info)
    values: dict[Metric, Callable[[ViewMeasures], Value]] = {
        metrics.VIEW_CSN: lambda each: each.csn,
        metrics.VIEW_HIGH_WATER: lambda each: each.high_water,
        metrics.VIEW_OLDEST: lambda each: each.oldest,
        metrics.VIEW_LAG_CSN: lambda each: each.lag_csn,
        metrics.VIEW_LAG: lambda each: each.lag_seconds,
        metrics.VIEW_STALE: lambda each: each.stale_seconds,
        metrics.VIEW_HALTED: lambda each: each.halted,
    }
    for metric, value in values.items():
        yield _family(metric, [((each.name,), value(each)) for each in views])


def _consumers(consumers: tuple[ConsumerMeasures, ...]) -> Iterator[Family]:
    values: dict[Metric, Callable[[ConsumerMeasures], Value]] = {
        metrics.CONSUMER_CSN: lambda each: each.csn,
        metrics.CONSUMER_LAG: lambda each: each.lag_csn,
        metrics.CONSUMER_AT: lambda each: each.acknowledged_at,
    }
    for metric, value in values.items():
        yield _family(metric, [((each.view, each.name), value(each)) for each in consumers])


def _sampled(sample: Sample) -> Iterator[Family]:
    views = [each for each in sample.sizes if each.kind != "changes"]
    changes = [((each.owner,), each.size_bytes) for each in sample.sizes if each.kind == "changes"]
    yield _family(metrics.VIEW_ROWS, [((each.owner,), each.rows) for each in views if each.kind == "rows"])
    yield _family(metrics.VIEW_BYTES, [((each.owner, each.kind), each.size_bytes) for each in views])
    yield _family(metrics.VIEW_FILES, [((each.owner, each.kind), each.files) for each in views])
    yield _family(metrics.CHANGE_LOG_BYTES, changes)
    yield _family(
        metrics.VIEW_FILE_DIFFERS, [((view,), differs) for view, differs in sample.file_differs.items()]
    )
    yield _family(metrics.SOURCE_LOG, [((name,), size) for name, size in sample.kept_log_bytes.items()])


def _lineage(counts: LineageCounts) -> Family:
    family = CounterMetricFamily(metrics.LINEAGE.name, metrics.LINEAGE.help, labels=metrics.LINEAGE.labels)
    for outcome, number in asdict(counts).items():
        family.add_metric((outcome,), number)
    return family


def _one(metric: Metric, value: float, *labels: str) -> Family:
    return _family(metric, [(labels, value)])


def _family(metric: Metric, values: Sequence[tuple[tuple[str, ...], Value]]) -> Family:
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in values:
        if value is not None:
            family.add_metric(labels, float(value))
    return family

"""Metrics of durable facts, read from the catalog at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from prometheus_client import Metric as Family
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from rollview.errors import RollviewError
from rollview.monitoring import metrics
from rollview.monitoring.lineage import LineageCounts
from rollview.monitoring.metrics import Metric
from rollview.monitoring.sampler import Sample
from rollview.observe.state import ConsumerState, ProjectState, SourceState, ViewState
from rollview.project.project import Project
from rollview.version import __version__

Value = float | int | bool | None


class ProjectCollector(Collector):
    """Reads a project. While the catalog cannot be read, only that is reported."""

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
        yield _one(metrics.BUILD_INFO, 1, __version__, self._project.name)
        found, why_not = look_at(self._project)
        yield _one(metrics.CATALOG_UP, found is not None)
        yield _one(metrics.READY, not why_not)
        if turned_at := self._turned_at():
            yield _one(metrics.LOOP_TURNED, turned_at)
        if found is not None:
            yield from _project(found)
            yield from _sources(found.sources, found.at)
            yield from _views(found.views)
            yield from _consumers(found.consumers)
        yield from _sampled(self._sample())
        if (jobs := self._project.observe.spark_jobs()) is not None:
            yield CounterMetricFamily(metrics.SPARK_JOBS.name, metrics.SPARK_JOBS.help, jobs)
        if self._lineage is not None:
            yield _lineage(self._lineage)

    def describe(self) -> Iterator[Family]:
        """Nothing needs to be read in order to register it."""
        return iter(())


def look_at(project: Project) -> tuple[ProjectState | None, str]:
    """The state of a project, if it can be read, and why it is not ready; empty if it is.

    It is ready if its catalog can be read, views are set up, and not all of them have stopped.
    """
    if project.is_new:
        return None, "the project was never set up: run `rollview setup`"
    try:
        found = project.observe.state()
    except (RollviewError, OSError) as error:
        return None, project.hide(str(error).splitlines()[0])
    if not found.views:
        return found, "no view is set up: run `rollview setup`"
    if all(view.halted for view in found.views):
        return found, "every view has stopped: `rollview status` says why"
    return found, ""


def _project(found: ProjectState) -> Iterator[Family]:
    yield _one(metrics.LAST_CSN, found.last_csn)
    if found.last_commit_time is not None:
        yield _one(metrics.LAST_COMMIT, found.last_commit_time)
    yield _one(metrics.WAITING, len(found.waiting))
    yield _one(metrics.WAITING_SECONDS, found.waiting_seconds)


def _sources(sources: tuple[SourceState, ...], at: float) -> Iterator[Family]:
    values: dict[Metric, Callable[[SourceState], Value]] = {
        metrics.SOURCE_VERSION: lambda each: each.version,
        metrics.SOURCE_MERGED: lambda each: each.merged,
        metrics.SOURCE_CAPTURED: lambda each: each.captured_at,
        metrics.SOURCE_LOOKED: lambda each: each.looked_at or None,
        metrics.SOURCE_LAG: lambda each: max(0.0, at - each.looked_at) if each.looked_at else None,
        metrics.SOURCE_REACHABLE: lambda each: each.is_reachable,
        metrics.SOURCE_HALTED: lambda each: each.halted is not None,
        metrics.SOURCE_TABLES_HALTED: lambda each: each.halted_tables,
    }
    for metric, value in values.items():
        yield _family(metric, [((each.site,), value(each)) for each in sources])


def _views(views: tuple[ViewState, ...]) -> Iterator[Family]:
    info = [((each.name, each.policy, each.algorithm, each.schedule), 1) for each in views]
    yield _family(metrics.VIEW_INFO, info)
    values: dict[Metric, Callable[[ViewState], Value]] = {
        metrics.VIEW_CSN: lambda each: each.materialized,
        metrics.VIEW_HIGH_WATER: lambda each: each.high_water,
        metrics.VIEW_OLDEST: lambda each: each.oldest,
        metrics.VIEW_LAG_CSN: lambda each: each.behind_csn,
        metrics.VIEW_LAG: lambda each: each.lag_seconds,
        metrics.VIEW_LATE: lambda each: each.is_late,
        metrics.VIEW_STALE: lambda each: each.stale_seconds,
        metrics.VIEW_HALTED: lambda each: each.halted is not None,
        metrics.VIEW_WAITING: lambda each: bool(each.waits_for),
    }
    for metric, value in values.items():
        yield _family(metric, [((each.name,), value(each)) for each in views])


def _consumers(consumers: tuple[ConsumerState, ...]) -> Iterator[Family]:
    values: dict[Metric, Callable[[ConsumerState], Value]] = {
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

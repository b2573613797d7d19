"""The sites that are captured: their sources, the transactions held back, and threads that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from shutil import rmtree
from typing import TypeVar

from rollview.config.project_file import ProjectFile
from rollview.errors import InputError, RollviewError
from rollview.runtime.scratch import Scratch
from rollview.runtime.session import Session
from rollview.sources.registry import open_source
from rollview.sources.source import Batch, KeepsLog, ReadsByWorkers, Source
from rollview.spark.workers import SparkWorkers, check_executors


@dataclass(frozen=True)
class Held:
    """Transactions of a site that wait for parts of other sites; they follow the log position `after`."""

    after: str
    batch: Batch


class Sites:
    """Every site of the project, through the source that it belongs to; opened when first needed."""

    def __init__(self, project: ProjectFile, session: Session) -> None:
        self.project = project
        self._session = session
        self.scratch = Scratch(project.lake / "scratch")
        self.held: dict[str, Held] = {}
        self.read_upto: dict[str, float] = {}
        """The commit time up to which each site was read; infinite where it had no more."""
        self.noted: set[str] = set()
        """The notes about sources that were logged."""

    @cached_property
    def sources(self) -> dict[str, Source]:
        """All sources of the project file."""
        folder, workers = self.project.folder, SparkWorkers(lambda: self._session.spark)
        return {
            entry.name: open_source(entry.name, entry.kind, entry.settings, folder, workers, self.scratch.new)
            for entry in self.project.sources
        }

    def source_at(self, site: str) -> Source:
        """The source that a site belongs to."""
        name = site.partition(".")[0]
        if name not in self.sources:
            hint = "restore its entry in the project file, or run `rollview setup`"
            raise InputError(f"the project file no longer has source `{name}`", subject=name, hint=hint)
        return self.sources[name]

    def check_executors(self) -> None:
        """Refuses a cluster whose executors cannot do what they will have to."""
        modules = {each.worker_module for each in self.sources.values() if isinstance(each, ReadsByWorkers)}
        folder = self.scratch.new()
        try:
            check_executors(self._session.spark, folder, sorted(modules))
        finally:
            rmtree(folder, ignore_errors=True)

    @cached_property
    def lookup_pool(self) -> ThreadPoolExecutor:
        """For sub-queries to several sites; apart from `work_pool`, whose workers wait for these."""
        return ThreadPoolExecutor(max_workers=8, thread_name_prefix="rollview-ask")

    @cached_property
    def capture_pool(self) -> ThreadPoolExecutor:
        """For capture from several sites; apart from the others, whose workers may all wait for capture."""
        return ThreadPoolExecutor(max_workers=8, thread_name_prefix="rollview-take")

    def close(self) -> None:
        """Closes the sources that were opened."""
        opened = self.__dict__
        for pool in ("lookup_pool", "capture_pool"):
            if pool in opened:
                opened[pool].shutdown(wait=False, cancel_futures=True)
        if "sources" in opened:
            for source in self.sources.values():
                source.close()
        self.scratch.close()


# Several actions at once, all of them over when the call returns.


T = TypeVar("T")
R = TypeVar("R")


def side_by_side(pool: Executor, action: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The results of an action for each item; if some fail, the first error, once all have ended.

    A caller that gives up a lease or retries must not meet an earlier attempt that still writes.
    """
    running = [pool.submit(action, item) for item in items]
    wait(running)
    return [each.result() for each in running]


# The logs that sources keep for rollview, which take disk at databases of others.


def kept_log_bytes(sites: Sites) -> dict[str, int]:
    """By source; those that cannot be asked now are left out."""
    found: dict[str, int] = {}
    for name, source in sites.sources.items():
        if not isinstance(source, KeepsLog):
            continue
        try:
            size = source.kept_log_bytes()
        except RollviewError:
            continue
        if size is not None:
            found[name] = size
    return found

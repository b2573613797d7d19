"""The sites that are captured: their sources, what is held back of them, and threads that wait for them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

from rollview.errors import InputError
from rollview.service.project_file import ProjectFile
from rollview.service.session import Session
from rollview.sources.registry import open_source
from rollview.sources.source import Batch, Source
from rollview.spark.workers import SparkWorkers


@dataclass(frozen=True)
class Held:
    """What a site gave that waits for parts of other sites; it came behind the log position `after`."""

    after: str
    batch: Batch


class Sites:
    """Every site of the project, through the source that it belongs to; opened when first needed."""

    def __init__(self, project: ProjectFile, session: Session) -> None:
        self.project = project
        self._session = session
        self.held: dict[str, Held] = {}

    @cached_property
    def sources(self) -> dict[str, Source]:
        """All sources of the project file."""
        folder, workers = self.project.folder, SparkWorkers(lambda: self._session.spark)
        return {
            entry.name: open_source(entry.name, entry.kind, entry.settings, folder, workers)
            for entry in self.project.sources
        }

    def source_at(self, site: str) -> Source:
        """The source that a site belongs to."""
        name = site.partition(".")[0]
        if name not in self.sources:
            hint = "restore its entry in the project file, or run `rollview setup`"
            raise InputError(f"the project file no longer has source `{name}`", subject=name, hint=hint)
        return self.sources[name]

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

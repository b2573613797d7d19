"""The warehouse: what all drivers share, opened when it is first needed.

Project file, catalog, lake tables, sources, Spark, and the views as they were set up. The catalog, not the
view files, says what is maintained: an edited file changes nothing until `setup`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from threading import Lock

from pyspark.sql import SparkSession

from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.catalog import Catalog, ViewRecord
from rollview.errors import InputError
from rollview.events import Events, SparkStarted, SparkStarting
from rollview.lake import LakeTable
from rollview.planning import parse_view, referenced_names
from rollview.service.definitions import ViewText, as_table, in_order
from rollview.service.interval_sizing import IntervalSizing
from rollview.service.layout import Layout
from rollview.service.project_file import ProjectFile
from rollview.sources.registry import open_source
from rollview.sources.source import Batch, Source
from rollview.spark.session import open_session
from rollview.spark.workers import SparkWorkers


@dataclass(frozen=True)
class Held:
    """What a site gave that waits for parts of other sites; it came behind the log position `after`."""

    after: str
    batch: Batch


Starting = Callable[[Mapping[str, str]], AbstractContextManager[None]]
"""What goes on around the start of Spark, given the project's settings for it."""


class Warehouse:
    """Everything that a driver needs. One per process; close it when done."""

    def __init__(
        self,
        project: ProjectFile,
        spark: SparkSession | None = None,
        starting: Starting = lambda _: nullcontext(),
    ) -> None:
        self.project = project
        self.events = Events()
        self._around_start = starting
        self._spark = spark
        self._owns_spark = spark is None
        self._starting = Lock()
        self.interval_sizing = IntervalSizing()
        self.held: dict[str, Held] = {}
        self._lake_tables: dict[Path, LakeTable] = {}
        self._checked: dict[Path, int] = {}
        self._parsed: tuple[dict[str, ViewRecord], dict[str, View]] | None = None

    @property
    def is_new(self) -> bool:
        """Whether the project was never set up: its catalog, if it is a file, is not there."""
        path = self.project.catalog.removeprefix("sqlite:///")
        return path != self.project.catalog and not Path(path).exists()

    @cached_property
    def catalog(self) -> Catalog:
        """The control tables; made if they are not there."""
        self.project.lake.mkdir(parents=True, exist_ok=True)
        return Catalog.open(self.project.catalog)

    def writer(self, name: str) -> str:
        """Who signs a lake commit: step ids are unique only together with their catalog."""
        return f"{self._identity}/{name}"

    @cached_property
    def _identity(self) -> str:
        return self.catalog.identity

    @property
    def spark(self) -> SparkSession:
        """The session that was given, or one made as the project file says; threads may ask at once."""
        with self._starting:
            if self._spark is None:
                self._spark = self._start_spark()
            return self._spark

    def _start_spark(self) -> SparkSession:
        started = time.monotonic()
        self.events.emit(SparkStarting())
        with self._around_start(self.project.spark):
            session = open_session(self.project.name, self.project.spark)
        self.events.emit(SparkStarted(time.monotonic() - started))
        return session

    @cached_property
    def work_pool(self) -> ThreadPoolExecutor:
        """For waiting on several sources and Spark jobs at once."""
        return ThreadPoolExecutor(max_workers=8, thread_name_prefix="rollview")

    @cached_property
    def lookup_pool(self) -> ThreadPoolExecutor:
        """For sub-queries to several sites; apart from `work_pool`, whose workers wait for these."""
        return ThreadPoolExecutor(max_workers=8, thread_name_prefix="rollview-ask")

    @cached_property
    def capture_pool(self) -> ThreadPoolExecutor:
        """For capture from several sites; apart from the others, whose workers may all wait for capture."""
        return ThreadPoolExecutor(max_workers=8, thread_name_prefix="rollview-take")

    @cached_property
    def sources(self) -> dict[str, Source]:
        """All sources of the project file."""
        folder, workers = self.project.folder, SparkWorkers(lambda: self.spark)
        return {
            entry.name: open_source(entry.name, entry.kind, entry.settings, folder, workers)
            for entry in self.project.sources
        }

    def source_at(self, site: str) -> Source:
        """The source that a site belongs to."""
        name = site.partition(".")[0]
        if name not in self.sources:
            hint = "restore its entry in the project file, or run `rollview setup`"
            raise InputError(f"the project file has no source `{name}` any more", subject=name, hint=hint)
        return self.sources[name]

    @property
    def views(self) -> dict[str, View]:
        """The views that have been set up, dependencies first."""
        return self._definitions()[1]

    def view(self, name: str) -> View:
        """A view by name."""
        if name not in self.views:
            raise unknown_view(name, self.views)
        return self.views[name]

    def record(self, name: str) -> ViewRecord:
        """What the catalog knows of a view."""
        self.view(name)
        return self.catalog.views()[name]

    def layout(self, name: str) -> Layout:
        """How a view is stored."""
        return Layout.of_record(self.view(name), self._definitions()[0][name])

    def change_log(self, table: Table) -> LakeTable:
        """`lake/changes/SOURCE/TABLE`."""
        return self._lake("changes", table.source, table.name)

    def delta_table(self, view: str) -> LakeTable:
        """`lake/deltas/VIEW`."""
        return self._lake("deltas", view)

    def view_table(self, view: str) -> LakeTable:
        """`lake/views/VIEW`."""
        return self._lake("views", view)

    def check_no_external_writes(self, table: LakeTable) -> None:
        """Refuses a lake table that somebody else has changed since this process looked last."""
        table.check_no_external_writes(self._checked.get(table.folder, 0))
        self._checked[table.folder] = table.version()

    def _lake(self, *parts: str) -> LakeTable:
        folder = self.project.lake.joinpath(*parts)
        return self._lake_tables.setdefault(folder, LakeTable(folder))

    def drop_table(self, table: LakeTable) -> None:
        """Removes a table from the lake; it vanishes at once, however long deleting its files takes."""
        self._lake_tables.pop(table.folder, None)
        self._checked.pop(table.folder, None)
        if table.folder.exists():
            trash = Path(mkdtemp(dir=self.project.lake, prefix=".dropped-"))
            table.folder.rename(trash / table.folder.name)
            rmtree(trash, ignore_errors=True)

    def _definitions(self) -> tuple[dict[str, ViewRecord], dict[str, View]]:
        """Parsed again only when the catalog's definitions have changed."""
        records = self.catalog.views()
        definitions = {name: record.digest for name, record in records.items()}
        if self._parsed is None or {n: r.digest for n, r in self._parsed[0].items()} != definitions:
            self._parsed = (records, _parse(records, self.catalog.tables()))
        return self._parsed

    def close(self) -> None:
        """Lets go of everything that was opened here; a session that was given stays."""
        opened = self.__dict__
        for pool in ("work_pool", "lookup_pool", "capture_pool"):
            if pool in opened:
                opened[pool].shutdown(wait=False, cancel_futures=True)
        if "sources" in opened:
            for source in self.sources.values():
                source.close()
        if "catalog" in opened:
            self.catalog.close()
        if self._spark is not None and self._owns_spark:
            self._spark.stop()


def unknown_view(name: str, views: Mapping[str, object]) -> InputError:
    """No such view: says which there are."""
    known = ", ".join(views) or "none is set up yet"
    return InputError(
        f"there is no view `{name}`", subject=name, hint=f"views: {known}; `rollview setup` adds new ones"
    )


def _parse(records: Mapping[str, ViewRecord], tables: Mapping[str, Table]) -> dict[str, View]:
    """The views of the catalog in normal form, dependencies first."""
    known = dict(tables)
    views: dict[str, View] = {}
    texts = {
        name: ViewText(Path(f"{name}.sql"), name, r.sql, referenced_names(r.sql))
        for name, r in records.items()
    }
    for name in in_order(texts):
        views[name] = replace(parse_view(records[name].sql, known.values(), name), name=name)
        known[name] = as_table(views[name], tuple(kind for _, kind in records[name].columns))
    return views

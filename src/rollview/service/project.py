"""`rollview.Project`: everything the command line does, from Python. Tables come back as Spark DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType

from pyspark.sql import DataFrame, SparkSession

from rollview.algebra.history import CSN
from rollview.service import apply as applying
from rollview.service import capture as capturing
from rollview.service import propagate as propagating
from rollview.service.condense import condense
from rollview.service.explain import Explanation, explain
from rollview.service.maintenance import maintain
from rollview.service.points_in_time import Covered, check_covered, resolve
from rollview.service.project_file import read_project_file
from rollview.service.query import Answered, query
from rollview.service.refresh import refresh
from rollview.service.run import Stop, run
from rollview.service.setup import SetupReport, define, remove, setup
from rollview.service.status import Status, status
from rollview.service.stored_view import StoredView, covered
from rollview.service.verify import Verification, verify
from rollview.service.warehouse import Warehouse, unknown_view
from rollview.spark.session import check_session

Progress = Callable[[str], None]


def _silent(_: str) -> None:
    """Progress that nobody watches."""


class Project:
    """A project: its sources, its views and its lake. Use it as a context manager, or close it."""

    def __init__(self, warehouse: Warehouse) -> None:
        """Use `Project.open`."""
        self._warehouse = warehouse

    @classmethod
    def open(cls, path: str | Path = ".", spark: SparkSession | None = None) -> Project:
        """Opens the project of a `rollview.yml`, or of the folder that holds one.

        Spark is started when it is first needed, unless a session is given; a given one is left running.
        """
        if spark is not None:
            check_session(spark)
        return cls(Warehouse(read_project_file(Path(path)), spark))

    def __enter__(self) -> Project:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of connections, and of the Spark session if it was started here."""
        self._warehouse.close()

    @property
    def spark(self) -> SparkSession:
        """The Spark session in use."""
        return self._warehouse.spark

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the views that are set up, dependencies first."""
        return tuple(self._warehouse.views)

    def setup(self, reload: Iterable[str] | None = None, progress: Progress = _silent) -> SetupReport:
        """Prepares sources for capture, loads new and changed views, drops removed ones.

        `reload` names views to load from scratch, or sources, for all views that read them; an empty list
        means all.
        """
        return setup(self._warehouse, reload, progress)

    def remove(self) -> dict[str, list[str]]:
        """Takes back all that setup left at the sources. The lake stays."""
        return remove(self._warehouse)

    def run(self, once: bool = False, stop: Stop | None = None, progress: Progress = _silent) -> None:
        """Captures, propagates and applies, by policy, until stopped; `once` until nothing is left."""
        run(self._warehouse, once, stop, progress)

    def capture(self) -> int:
        """Captures what is new at the sources; returns the number of transactions."""
        return capturing.capture(self._warehouse, 5.0)

    def propagate(self, view: str, to: str | int = "latest") -> int:
        """Makes the view's delta as far as its relations have been captured; returns the high-water mark."""
        catalog = self._warehouse.catalog
        name = self._warehouse.view(view).name
        propagating.propagate(self._warehouse, name, resolve(catalog, to, catalog.last_csn()), 5.0)
        return catalog.high_water(name)

    def apply(self, view: str, to: str | int = "latest") -> int:
        """Rolls the stored view along its delta, by default to the high-water mark; returns its csn."""
        catalog = self._warehouse.catalog
        name = self._warehouse.view(view).name
        csn = resolve(catalog, to, catalog.high_water(name))
        covered = Covered(catalog.views()[name].materialized_csn, catalog.high_water(name))
        check_covered(catalog, name, csn, covered, "rolled to")
        applying.apply(self._warehouse, {name: csn}, f"apply to csn {csn}", 5.0)
        return csn

    def refresh(self, *views: str, to: str | int = "latest", progress: Progress = _silent) -> int:
        """Rolls the views (all, if none is named) to one time; returns its csn."""
        return refresh(self._warehouse, views, to, progress)

    def status(self) -> Status:
        """Where sources and views stand."""
        return status(self._warehouse)

    def read(self, view: str, as_of: str | int | None = None) -> DataFrame:
        """The view's rows as they are stored, or as of any time that its delta covers."""
        stored = StoredView.open(self._warehouse, view)
        if as_of is None:
            return stored.layout.present(stored.shown_rows().frame)
        csn = self._covered_csn(stored, as_of, "read as of")
        return stored.layout.present(stored.rows_at(csn).frame)

    def deltas(self, view: str, start: str | int | None = None, to: str | int = "latest") -> DataFrame:
        """What each transaction did to the view after one time up to another: columns, `_count`, `_csn`."""
        stored = StoredView.open(self._warehouse, view)
        first = stored.record.oldest_csn if start is None else self._covered_csn(stored, start, "read from")
        last = self._covered_csn(stored, to, "read to")
        return stored.row_delta(first, last).frame.orderBy(CSN)

    def query(self, sql: str, max_staleness: float | None = None) -> Answered:
        """An answer from views and relations that are valid together, with its valid time."""
        return query(self._warehouse, sql, max_staleness)

    def explain(self, view: str) -> Explanation:
        """Normal form, join graph, algorithm and why, sub-queries per update, what would be full."""
        if not self._warehouse.is_new and view in self._warehouse.views:
            return explain(self._warehouse.view(view))
        defined = define(self._warehouse)
        if view not in defined:
            raise unknown_view(view, defined)
        return explain(defined[view].view)

    def verify(self, *views: str) -> list[Verification]:
        """Recomputes the views (all, if none is named) at the csn they show, and compares."""
        names = [self._warehouse.view(view).name for view in views] or list(self._warehouse.views)
        return [verify(self._warehouse, name) for name in names]

    def condense(self, view: str, start: str | int, to: str | int) -> int:
        """Replaces a range of the view delta by its net effect; returns how many rows that saved."""
        stored = StoredView.open(self._warehouse, view)
        first = self._covered_csn(stored, start, "condensed from")
        return condense(self._warehouse, view, first, self._covered_csn(stored, to, "condensed to"))

    def release(self, global_id: str) -> tuple[str, ...]:
        """Ends the wait for a global transaction; returns the sites of which no part had come."""
        return self._warehouse.catalog.release(global_id).missing

    def maintain(self) -> dict[str, int]:
        """Compacts and prunes the lake's logs now; `run` does it from time to time."""
        return maintain(self._warehouse)

    def _covered_csn(self, stored: StoredView, point: str | int, what: str) -> int:
        catalog, name = self._warehouse.catalog, stored.view.name
        possible = covered(self._warehouse, name)
        csn = resolve(catalog, point, possible.newest)
        check_covered(catalog, name, csn, possible, what)
        return csn

"""`rollview.Project`: everything the command line does, from Python. Tables come back as Spark DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rollview.algebra.view import View, is_stage
from rollview.catalog import Consumer
from rollview.errors import InputError
from rollview.events import Subscriber
from rollview.service.answer_server import serving
from rollview.service.backup import back_up, restore
from rollview.service.consumers import Subscription
from rollview.service.define import Defined, define, define_correct, define_one
from rollview.service.drivers import Drivers
from rollview.service.event_log import log_event
from rollview.service.explain import Explanation, explain
from rollview.service.explain_parts import Size
from rollview.service.figures import Figures
from rollview.service.figures_of_views import lag_figure, rolling_figure
from rollview.service.home import check_home, check_own_capture
from rollview.service.lake_fit import check_new_catalog
from rollview.service.meaning import check_all_by_invention
from rollview.service.mistakes import Mistakes
from rollview.service.notebook import project_html
from rollview.service.observer import Observer
from rollview.service.plan_setup import plan_setup
from rollview.service.points_in_time import Covered, check_covered
from rollview.service.prepare_sources import remove_from_sources
from rollview.service.project_file import OpenLineageEntry, read_project_file
from rollview.service.project_reading import ProjectReading
from rollview.service.recover import last_known, set_aside, why_recover
from rollview.service.results import (
    ApplyResult,
    CaptureResult,
    CondenseResult,
    PropagateResult,
    RecoverReport,
    RefreshResult,
    SetupReport,
)
from rollview.service.retry import Stop, follow
from rollview.service.session import Starting
from rollview.service.setup import keeping_columns, to_reload
from rollview.service.setup_plan import PrepareSource, SetupPlan
from rollview.service.status import Status, status, work_of
from rollview.service.verify import Verification
from rollview.service.views import unknown_view
from rollview.service.warehouse import Warehouse
from rollview.sources.source import GrantsSchemas
from rollview.spark.session import check_session

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import SparkSession


class Project(ProjectReading):
    """A project: its sources, its views and its lake. Use it as a context manager, or close it."""

    def __init__(self, warehouse: Warehouse) -> None:
        """Use `Project.open`."""
        self._warehouse = warehouse
        self._drivers = Drivers(warehouse)
        self.subscribe(log_event)

    @classmethod
    def open(
        cls,
        path: str | Path = ".",
        spark: SparkSession | None = None,
        *,
        starting: Starting = lambda _: nullcontext(),
    ) -> Project:
        """Opens the project of a `rollview.yml`, or of the folder that holds one.

        Spark is started when it is first needed, unless a session is given; a given one is left running.
        `starting` makes a context in which the start happens, from the project's Spark settings.
        """
        if spark is not None:
            check_session(spark)
        return cls(Warehouse(read_project_file(Path(path)), spark, starting))

    def __enter__(self) -> Project:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of connections, and of the Spark session if it was started here."""
        self._warehouse.close()

    def beside(self) -> Project:
        """The same project once more, for threads beside those of this one, in a session of the same Spark.

        Close it before this one.
        """
        return Project(self._warehouse.beside())

    @property
    def observe(self) -> Observer:
        """What a page shows of the project; needs no Spark and changes nothing."""
        return self._drivers.observer

    def _repr_html_(self) -> str:
        if self.is_new:
            return "<p>This project is not set up yet: <code>rollview setup</code></p>"
        return project_html(self.name, self.observe.overview())

    def plot_lag(self, *views: str) -> Figure:
        """How far views (all, if none is named) were behind in the last hour, as a figure of matplotlib."""
        return lag_figure(self.observe.lags(self._chosen(views)))

    def plot_rolling(self, view: str) -> Figure:
        """What of each relation has been propagated to a view, as a figure (salem2000 Figure 9)."""
        return rolling_figure(self.observe.rolling(view))

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Gives every event to a callable (see `rollview.events`); returns a function that ends this."""
        return self._warehouse.events.subscribe(subscriber)

    @property
    def name(self) -> str:
        """The project's name."""
        return self._warehouse.project.name

    @property
    def openlineage(self) -> OpenLineageEntry | None:
        """Where lineage goes, as the project file says; None if nowhere."""
        return self._warehouse.project.openlineage

    def hide(self, text: str) -> str:
        """The text without the passwords of the project's settings."""
        return self._warehouse.project.secrets.hide(text)

    @property
    def is_new(self) -> bool:
        """Whether the project was never set up."""
        return self._warehouse.is_new

    @property
    def spark(self) -> SparkSession:
        """The Spark session in use."""
        return self._warehouse.session.spark

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the views that are set up, dependencies first."""
        return self._warehouse.views.names

    def setup(self, reload: Iterable[str] | None = None) -> SetupReport:
        """Prepares sources for capture, loads new and changed views, drops removed ones.

        `reload` names views to load from scratch, or sources, for all views that read them; an empty list
        means all. What is going to be done is planned as a whole first: bad input changes nothing.
        """
        if not self.is_new:
            check_home(self._warehouse.catalog, self._warehouse.project)
        plan, defined = self._plan_setup(reload)
        return self._drivers.setup.run(plan, defined)

    def settle(self, is_copy: bool = False) -> SetupReport:
        """After the project was moved: it captures from here. A copy captures for itself, and is loaded anew.

        The sources of a copy need capture of their own, such as another replication slot.
        """
        parts = self._warehouse
        if is_copy:
            plan = self.plan_setup([])
            for planned in plan.all(PrepareSource):
                source = parts.sites.sources[planned.source]
                checked = source.check([plan.tables[name] for name in planned.tables])
                check_own_capture(parts.project, source, checked)
        parts.catalog.set_home(str(parts.project.path.resolve()))
        return self.setup([] if is_copy else None)

    def schema_statements(self, *schemas: str) -> list[str]:
        """What administrators run once so that all tables of `source.schema` can be captured."""
        sources = self._warehouse.sites.sources
        found: list[str] = []
        for each in schemas:
            name, _, schema = each.partition(".")
            source = sources.get(name)
            if source is None or not schema:
                hint = f"SOURCE.SCHEMA, with one of the sources {', '.join(sources)}"
                raise InputError(f"`{each}` is not a schema of a source", subject=each, hint=hint)
            if not isinstance(source, GrantsSchemas):
                hint = f"a source of type {source.kind} needs no rights but those to its files"
                raise InputError(f"source {name} has no schemas", subject=name, hint=hint)
            found += [*([f"-- source {name}"] if len(schemas) > 1 else []), *source.schema_statements(schema)]
        return found

    def plan_setup(self, reload: Iterable[str] | None = None) -> SetupPlan:
        """What `setup` would do; refuses what it would refuse. Sources, lake and catalog are not changed."""
        self._warehouse.check_up_to_date()
        plan, _ = self._plan_setup(reload)
        return plan

    def _plan_setup(self, reload: Iterable[str] | None) -> tuple[SetupPlan, dict[str, Defined]]:
        parts = self._warehouse
        mistakes = Mistakes(parts.project.folder)
        recorded, reload = parts.recorded(), None if reload is None else list(reload)
        records = keeping_columns(recorded.records, reload)
        defined = define_correct(parts.project, parts.sites, parts.session, records, mistakes)
        # Where views are missing because of mistakes, a name that is not known may be one of theirs.
        reloading = set() if mistakes.found else to_reload(defined, parts.sites.sources, reload)
        changed = [each for each in defined.values() if not recorded.has(each.view)]
        check_all_by_invention(parts.session, changed, mistakes)
        mistakes.check()
        views = {name: each.view for name, each in defined.items()}
        return plan_setup(views, reloading, recorded, parts.sites.sources), defined

    def recover(self) -> RecoverReport:
        """Where lake and catalog do not fit: sets what is there aside and loads every view anew."""
        parts = self._warehouse
        reason = why_recover(parts.project)
        # Bad input changes nothing.
        define(parts.project, parts.sites, parts.session, {})
        self._let_go()
        folder = set_aside(parts.project)
        parts.catalog.continue_from(*last_known(parts.project.lake))
        return RecoverReport(reason, str(folder), self.setup())

    def backup(self, folder: str | Path) -> int:
        """Copies lake and catalog, of one moment, to an empty folder; returns the bytes copied."""
        return back_up(self._warehouse.project, self._warehouse.catalog, Path(folder))

    def restore(self, folder: str | Path) -> str:
        """Puts a backup in the place of lake and catalog; returns where these were set aside, if anywhere."""
        self._let_go()
        aside = restore(self._warehouse.project, Path(folder))
        return str(aside or "")

    def _let_go(self) -> None:
        """Closes the catalog: another one takes its place."""
        self._warehouse.close_catalog()
        self._drivers = Drivers(self._warehouse)

    def remove(self) -> dict[str, list[str]]:
        """Removes everything that setup installed at the sources. The lake stays."""
        return remove_from_sources(self._warehouse.sites)

    @contextmanager
    def answering(self, warm: bool = True) -> Iterator[Path | None]:
        """Inside, this process answers `read`, `deltas` and `query` of others, by a private local socket.

        `warm` starts Spark at once, so that the first answer need not wait for it. Gives the socket's path.
        """
        parts = self._warehouse
        with serving(parts.project, self.beside, warm) as path:
            yield path

    def interrupt(self) -> None:
        """Interrupts what Spark computes for a project that was opened beside another one."""
        self._warehouse.session.interrupt()

    @property
    def is_replaced(self) -> bool:
        """Whether another catalog has taken the place of the one that was there when this was opened."""
        return self._warehouse.is_replaced

    def run(self, once: bool = False, stop: Stop | None = None) -> None:
        """Captures, propagates and applies, by policy, until stopped; `once` until nothing is left."""
        self._drivers.run.run(once, stop)

    def follow(self, action: Callable[[], bool], stop: Stop, what: str = "") -> None:
        """Repeats an action, such as one driver, until stopped; errors are retried as `run` does.

        The action returns whether it found anything to do; if not, there is a pause.
        """
        follow(stop, what, action, self._warehouse.events)

    def capture(self) -> CaptureResult:
        """Captures what is new at the sources."""
        catalog = self._warehouse.catalog
        before = catalog.last_csn()
        self._drivers.capture.run(5.0)
        csn = catalog.last_csn()
        return CaptureResult(csn - before, csn, self._commit_time(csn))

    def propagate(self, view: str, to: str | int = "latest") -> PropagateResult:
        """Makes the view's delta as far as its relations have been captured."""
        catalog = self._warehouse.catalog
        name = self._warehouse.views.named(view).name
        before = catalog.high_water(name)
        csn = self._drivers.points.resolve(to, catalog.last_csn())
        for part in self._warehouse.views.named(view).stored_parts:
            self._drivers.propagate.run(part.name, csn, 5.0)
            self._drivers.faults.check_reaches(part, csn)
        reached = catalog.high_water(name)
        return PropagateResult(name, before, reached, self._commit_time(reached))

    def apply(self, view: str, to: str | int = "latest") -> ApplyResult:
        """Rolls the stored view along its delta, by default to the high-water mark."""
        catalog = self._warehouse.catalog
        parts = self._warehouse.views.named(view).stored_parts
        name = parts[-1].name
        before = catalog.view(name).materialized_csn
        csn = self._drivers.points.resolve(to, catalog.high_water(name))
        check_covered(catalog, name, csn, Covered(before, catalog.high_water(name)), "rolled to")
        shown = {part.name: catalog.view(part.name).materialized_csn for part in parts}
        targets = {part: csn for part, materialized in shown.items() if materialized <= csn}
        self._drivers.apply.run(targets, f"apply to csn {csn}", 5.0)
        return ApplyResult(name, before, csn, self._commit_time(csn))

    def refresh(self, *views: str, to: str | int = "latest") -> RefreshResult:
        """Refreshes the views (all, if none is named) to the same point in time."""
        names = self._chosen(views)
        csn = self._drivers.refresh.run(names, to)
        return RefreshResult(names, csn, self._commit_time(csn))

    def status(self) -> Status:
        """Where sources and views stand."""
        parts = self._warehouse
        return status(parts.project, self._drivers.valid, self._drivers.faults, parts.sites)

    @property
    def figures(self) -> Figures:
        """Numbers and lineage for those who watch: metrics, health, OpenLineage."""
        parts = self._warehouse
        return Figures(parts.project, parts.catalog, parts.tables, parts.views, parts.sites, parts.session)

    def consumer(self, view: str, name: str, start: str | int | None = None) -> Subscription:
        """The consumer of this name: an iterator over what happened to the view that it has not acknowledged.

        A new one begins at `start`, by default at the oldest point in time that is kept.
        """
        return Subscription(self._drivers.consumers, self._warehouse.views.named(view).name, name, start)

    def consumers(self) -> tuple[Consumer, ...]:
        """All consumers, the one of each view that is furthest behind first."""
        return tuple(self._warehouse.catalog.consumers.of())

    def drop_consumer(self, view: str, name: str) -> bool:
        """Forgets a consumer, for which nothing is kept any more; whether there was one."""
        return self._warehouse.catalog.consumers.drop(view, name)

    def explain(self, view: str) -> Explanation:
        """Normal form, join graph, algorithm and why, sub-queries per update, what would be full."""
        parts = self._warehouse
        if not self.is_new and view in self.views:
            known = parts.views.named(view)
            return explain(known, self._sizes(known), work_of(parts.catalog, known))
        defined = define(parts.project, parts.sites, parts.session, {})
        if view not in defined:
            raise unknown_view(view, (name for name in defined if not is_stage(name)))
        return explain(defined[view].view)

    def explain_sql(self, path: str | Path) -> Explanation:
        """The same of a file with a view that is not a part of the project, or not yet."""
        parts = self._warehouse
        return explain(define_one(parts.project, parts.sites, parts.session, Path(path)).view)

    def _sizes(self, view: View) -> dict[str, Size]:
        """What is stored of a view's parts."""
        found = {}
        for name in [part.name for part in view.stored_parts]:
            tables = self._warehouse.tables.of_view(name, self._warehouse.catalog.view(name).generation)
            table = tables.state if tables.state.exists() else tables.rows
            files = table.files() if table.exists() else ()
            found[name] = Size(sum(each.rows for each in files), sum(each.size for each in files))
        return found

    def verify(self, *views: str) -> list[Verification]:
        """Recomputes the views (all, if none is named) at the csn they show, and compares."""
        return [self._drivers.verify.run(name) for name in self._chosen(views)]

    def condense(self, view: str, start: str | int, to: str | int) -> CondenseResult:
        """Replaces a range of the view delta by its net effect; the result is how many rows that saved."""
        catalog, covered = self._warehouse.catalog, self._drivers.stored.open(view).covered
        first, last = (self._drivers.points.resolve(point, covered.newest) for point in (start, to))
        check_covered(catalog, view, first, covered, "condensed from")
        check_covered(catalog, view, last, covered, "condensed to")
        return self._drivers.condense.run(view, first, last)

    def release(self, global_id: str) -> tuple[str, ...]:
        """Ends the wait for a global transaction; returns the sites of which no part had come."""
        return self._warehouse.catalog.global_transactions.release(global_id).missing

    def maintain(self) -> dict[str, int]:
        """Compacts and prunes the lake's logs now; `run` does it from time to time."""
        return self._drivers.maintain.run()

    def check_set_up(self) -> None:
        """Refuses a project without views, and leaves no empty catalog behind."""
        if self.is_new:
            check_new_catalog(self._warehouse.project.lake)
        if self.is_new or not self.views:
            hint = "run `rollview setup` first"
            raise InputError(f"project {self.name}: no view is set up", subject=self.name, hint=hint)

    def _chosen(self, names: Iterable[str]) -> tuple[str, ...]:
        """The named views, each once, or all of them; refuses an unknown name, and an empty project."""
        self.check_set_up()
        return tuple(self._warehouse.views.named(name).name for name in dict.fromkeys(names)) or self.views

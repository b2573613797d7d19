"""`rollview.Project`: everything the command line does, from Python. Tables come back as Spark DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rollview.algebra.view import View, is_stage, owner
from rollview.answer.requests import ExplainRequest, QueryRequest, Reply, Request
from rollview.config.project_file import OpenLineageEntry, read_project_file, typed_address
from rollview.errors import InputError, LeaseHeld, Overtaken, RollviewError, ViewError
from rollview.project.drivers import Drivers
from rollview.project.project_reading import ProjectReading
from rollview.project.warehouse import Warehouse
from rollview.runtime.event_log import log_event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rollview.answer.pool import AnswerPool
    from rollview.catalog import Consumer
    from rollview.config.results import (
        ApplyResult,
        CaptureResult,
        CondenseResult,
        MoveReport,
        PropagateResult,
        RecoverReport,
        RefreshResult,
        SetupReport,
    )
    from rollview.events import Subscriber
    from rollview.maintain.retry import Stop
    from rollview.observe.explain import Explanation
    from rollview.observe.explain_parts import Size
    from rollview.observe.observer import Observer
    from rollview.observe.status import Status
    from rollview.observe.svg import Charts
    from rollview.runtime.session import Starting
    from rollview.setup.plan import SetupPlan
    from rollview.upkeep.consumers import Subscription
    from rollview.upkeep.register import Registration
    from rollview.upkeep.verify import Verification
    from rollview.views.define import Defined
    from rollview.views.mistakes import Mistakes


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
        from rollview.spark.session import check_session

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
        """Closes connections, and the Spark session if it was started here."""
        if "answers" in self.__dict__:
            self.answers.close()
        self._warehouse.close()

    def clone(self) -> Project:
        """The same project, opened a second time for other threads, in a session of the same Spark.

        Close it before this one.
        """
        return Project(self._warehouse.clone())

    @property
    def observe(self) -> Observer:
        """The facts for pages, metrics and probes; needs no Spark and changes nothing."""
        return self._drivers.observer

    def _repr_html_(self) -> str:
        from rollview.observe.notebook import project_html

        if self.is_new:
            return "<p>This project is not set up yet: <code>rollview setup</code></p>"
        return project_html(self.name, self.observe.state())

    def plot_lag(self, *views: str) -> Charts:
        """How far views (all, if none is named) were behind in the last hour, a chart for each."""
        from rollview.observe.lag_chart import lag_chart
        from rollview.observe.svg import Charts

        series = self.observe.lags(self._chosen(views))
        return Charts(tuple((each.view, lag_chart(each)) for each in series))

    def plot_rolling(self, view: str) -> Charts:
        """The intervals of each relation that have been propagated to a view (salem2000 Figure 9)."""
        from rollview.observe.rolling_chart import rolling_chart
        from rollview.observe.svg import Charts

        picture = self.observe.rolling(view)
        return Charts(((picture.view, rolling_chart(picture, 0, {}, by_time=False)),))

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Gives every event to a callable (see `rollview.events`); returns a function that ends this."""
        return self._warehouse.events.subscribe(subscriber)

    @property
    def name(self) -> str:
        """The project's name."""
        return self._warehouse.project.name

    @property
    def openlineage(self) -> OpenLineageEntry | None:
        """The target of lineage events from the project file; None if there is none."""
        return self._warehouse.project.openlineage

    def hide(self, text: str) -> str:
        """The text without the passwords of the project's settings."""
        return self._warehouse.project.secrets.hide(text)

    def hide_foreign(self, text: str) -> str:
        """A text from elsewhere, such as a driver's message, without these and without parts of them."""
        return self._warehouse.project.secrets.hide_foreign(text)

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
        means all. Everything is planned first: bad input changes nothing. A view that Spark cannot compute,
        or understands differently, does not stop the others: at the end `SetupIncomplete` names these views,
        and has the report of all others.
        """
        from rollview.storage.lake_fit import check_home
        from rollview.views.mistakes import not_set_up

        if not self.is_new:
            check_home(self._warehouse.catalog, self._warehouse.project)
        plan, defined = self._plan_setup(reload)
        if plan.stopped and not defined:
            raise not_set_up(plan.stopped)
        return self._drivers.setup.run(plan, defined)

    def confirm_move(self, is_copy: bool = False) -> SetupReport:
        """After the project was moved: it captures from here. A copy gets its own capture and is reloaded.

        The sources of a copy need capture of their own, such as another replication slot.
        """
        from rollview.setup.plan import PrepareSource
        from rollview.storage.lake_fit import check_own_capture

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
        """The script that administrators run once so that all tables of `source.schema` can be captured."""
        from rollview.sources.source import GrantsSchemas

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
        """The plan of `setup`, or its refusal. Sources, lake and catalog are not changed."""
        self._warehouse.check_up_to_date()
        plan, _ = self._plan_setup(reload)
        return plan

    def _plan_setup(self, reload: Iterable[str] | None) -> tuple[SetupPlan, dict[str, Defined]]:
        from rollview.setup.planner import plan_setup
        from rollview.setup.setup import keeping_columns, to_reload
        from rollview.views.define import define_correct
        from rollview.views.equivalence_check import check_all_by_invention
        from rollview.views.mistakes import Mistakes

        parts = self._warehouse
        mistakes = Mistakes(parts.project.folder)
        recorded, reload = parts.recorded(), None if reload is None else list(reload)
        records = keeping_columns(recorded.records, reload)
        defined = define_correct(parts.project, parts.sites, parts.session, records, mistakes)
        # If views are missing because of mistakes, an unknown name may be one of theirs.
        reloading = set() if mistakes.found else to_reload(defined, parts.sites.sources, reload)
        changed = [each for each in defined.values() if not recorded.has(each.view)]
        if mistakes.found:
            check_all_by_invention(parts.session, changed, mistakes)
            mistakes.check()
        differing = Mistakes(parts.project.folder)
        check_all_by_invention(parts.session, changed, differing)
        stopped = _stopped(defined, differing)
        defined = self._with_former(defined, stopped, recorded.views)
        views = {name: each.view for name, each in defined.items()}
        plan = plan_setup(views, reloading - stopped.keys(), recorded, parts.sites.sources)
        return replace(plan, stopped={n: e for n, e in stopped.items() if not is_stage(n)}), defined

    def _with_former(
        self, defined: Mapping[str, Defined], stopped: Container[str], recorded: Mapping[str, View]
    ) -> dict[str, Defined]:
        """The views as defined, with those that stopped as they were set up before; or without them."""
        from rollview.views.define import Defined

        found: dict[str, Defined] = {}
        for name, each in defined.items():
            if name not in stopped:
                found[name] = each
                continue
            for part, view in recorded.items():
                if owner(part) == owner(name) and part not in found:
                    found[part] = Defined(view, self._warehouse.views.layout(part), each.path)
        return found

    def recover(self) -> RecoverReport:
        """If lake and catalog do not match: moves them aside and reloads every view."""
        from rollview.config.results import RecoverReport
        from rollview.setup.recover import last_known, set_aside, why_recover
        from rollview.views.define import define

        parts = self._warehouse
        reason = why_recover(parts.project)
        # Bad input changes nothing.
        define(parts.project, parts.sites, parts.session, {})
        self._let_go()
        folder = set_aside(parts.project)
        parts.catalog.history.continue_from(*last_known(parts.project.lake))
        return RecoverReport(reason, str(folder), self.setup())

    def backup(self, folder: str | Path) -> int:
        """Copies lake and catalog, of one moment, to an empty folder; returns the bytes copied."""
        from rollview.upkeep.backup import back_up

        parts = self._warehouse
        return back_up(parts.project, parts.catalog, parts.lake, Path(folder))

    def restore(self, folder: str | Path) -> str:
        """Puts a backup in the place of lake and catalog; returns where these were set aside, if anywhere."""
        from rollview.upkeep.backup import restore

        self._let_go()
        aside = restore(self._warehouse.project, self._warehouse.lake, Path(folder))
        return str(aside or "")

    def move_lake(self, to: str) -> MoveReport:
        """Moves the lake, with its history, to a folder or `s3://bucket/prefix`.

        It continues there once `lake` in the project file names the new place; the old one is no longer used.
        """
        from rollview.upkeep.backup import move

        parts = self._warehouse
        moved = move(parts.project, parts.catalog, parts.lake, parts.other_lake(to))
        self._let_go()
        return moved

    def move_catalog(self, old: str = "") -> int:
        """Moves the catalog from an address to that of the project file; returns how many rows it has.

        `old` may have `${NAME}` for variables of the environment; without it, the catalog was in the lake.
        """
        from rollview.upkeep.backup import move_catalog

        project = self._warehouse.project
        place = typed_address(old, project.folder) if old else f"sqlite:///{project.lake / 'catalog.db'}"
        self._let_go()
        return move_catalog(project, self._warehouse.lake, place)

    def register(self, schema: str, *views: str, dry_run: bool = False) -> tuple[Registration, ...]:
        """Makes the views (all, if none is named) known to Spark's catalog, as external tables of a schema.

        `dry_run` only says which tables and statements that would be, and needs no Spark.
        """
        from rollview.upkeep.register import plan_registrations, register

        tables = self._warehouse.tables
        rows = [(view, tables.of_view(view, 1).rows.address) for view in self._chosen(views)]
        planned = plan_registrations(schema, rows)
        return planned if dry_run else register(self.spark, planned)

    def _let_go(self) -> None:
        """Closes the catalog: another one takes its place."""
        self._warehouse.close_catalog()
        self._drivers = Drivers(self._warehouse)

    def remove(self) -> dict[str, list[str]]:
        """Removes everything that setup installed at the sources. The lake stays."""
        from rollview.setup.prepare_sources import remove_from_sources

        return remove_from_sources(self._warehouse.sites)

    def answer(self, request: Request) -> Reply:
        """The output of a command as data; no Spark is started unless needed."""
        from rollview.answer.answers import answer

        return answer(self, request)

    def answer_without_spark(self, request: Request) -> Reply | None:
        """The same without Spark; None if it needs Spark, as queries do."""
        from rollview.answer.answers import answer

        if isinstance(request, QueryRequest):
            # A refresh would be in vain if Spark is needed.
            return None
        if isinstance(request, ExplainRequest) and request.view not in self.views:
            # It may take Spark to define it.
            return None
        return self._drivers.stored.session.without_spark(lambda: answer(self, request))

    @contextmanager
    def answering(self, warm: bool = True) -> Iterator[Path | None]:
        """While the context lasts, this process answers `read`, `deltas` and `query` of other processes.

        `warm` starts Spark at once, so that the first answer need not wait for it. Yields the socket's path.
        """
        from rollview.answer.server import serving

        parts = self._warehouse
        with serving(parts.project, self.clone, self.answers, warm) as path:
            yield path

    @cached_property
    def answers(self) -> AnswerPool:
        """Computes answers by a Spark of their own, within the limits that the project sets."""
        from rollview.answer.pool import AnswerPool

        return AnswerPool(self._warehouse.project)

    def interrupt(self) -> None:
        """Interrupts what Spark computes for a clone of another project."""
        self._warehouse.session.interrupt()

    @property
    def is_replaced(self) -> bool:
        """Whether another catalog has taken the place of the one that was there when this was opened."""
        return self._warehouse.is_replaced

    def run(self, once: bool = False, stop: Stop | None = None, *, standby: bool = False) -> None:
        """Captures, propagates and applies, by policy, until stopped; `once` until nothing is left.

        With `standby` it waits, Spark ready, while another process runs, on this host or another one, and
        takes over when that one ends or fails; if it is overtaken itself, it stands by again.
        """
        from rollview.maintain.retry import Stop
        from rollview.run.run import RUN, stand_by

        stop, parts = stop or Stop(), self._warehouse
        while True:
            if standby:
                stand_by(parts.catalog, stop, parts.events, lambda: self.spark)
                if stop.asked():
                    return
                parts.refresh()
                self._drivers = Drivers(parts)
            try:
                self._drivers.run.run(once, stop)
                return
            except (LeaseHeld, Overtaken) as held:
                if not standby or held.subject != RUN:
                    raise
                # Its successor reads the sources' logs now.
                parts.sites.close()

    def follow(self, action: Callable[[], bool], stop: Stop, what: str = "") -> None:
        """Repeats an action, such as one driver, until stopped; errors are retried as `run` does.

        The action returns whether it found anything to do; if not, there is a pause.
        """
        from rollview.maintain.retry import follow

        follow(stop, what, action, self._warehouse.events)

    def capture(self) -> CaptureResult:
        """Captures what is new at the sources."""
        from rollview.config.results import CaptureResult

        catalog = self._warehouse.catalog
        before = catalog.history.last_csn()
        self._drivers.capture.run(5.0)
        csn = catalog.history.last_csn()
        return CaptureResult(csn - before, csn, self._commit_time(csn))

    def propagate(self, view: str, to: str | int = "latest") -> PropagateResult:
        """Makes the view's delta as far as its relations have been captured."""
        from rollview.config.results import PropagateResult

        catalog = self._warehouse.catalog
        name = self._warehouse.views.named(view).name
        before = catalog.views.high_water(name)
        csn = self._drivers.points.resolve(to, catalog.history.last_csn())
        for part in self._warehouse.views.named(view).stored_parts:
            self._drivers.propagate.run(part.name, csn, 5.0)
            self._drivers.faults.check_reaches(part, csn)
        reached = catalog.views.high_water(name)
        return PropagateResult(name, before, reached, self._commit_time(reached))

    def apply(self, view: str, to: str | int = "latest") -> ApplyResult:
        """Rolls the stored view along its delta, by default to the high-water mark."""
        from rollview.config.results import ApplyResult
        from rollview.storage.points_in_time import Covered, check_covered

        catalog = self._warehouse.catalog
        parts = self._warehouse.views.named(view).stored_parts
        name = parts[-1].name
        before = catalog.views.get(name).materialized_csn
        csn = self._drivers.points.resolve(to, catalog.views.high_water(name))
        check_covered(catalog, name, csn, Covered(before, catalog.views.high_water(name)), "rolled to")
        shown = {part.name: catalog.views.get(part.name).materialized_csn for part in parts}
        targets = {part: csn for part, materialized in shown.items() if materialized <= csn}
        self._drivers.apply.run(targets, f"apply to csn {csn}", 5.0)
        return ApplyResult(name, before, csn, self._commit_time(csn))

    def refresh(self, *views: str, to: str | int = "latest") -> RefreshResult:
        """Refreshes the views (all, if none is named) to the same point in time."""
        from rollview.config.results import RefreshResult

        names = self._chosen(views)
        csn = self._drivers.refresh.run(names, to)
        return RefreshResult(names, csn, self._commit_time(csn))

    def status(self) -> Status:
        """The state of sources and views."""
        from rollview.observe.status import status

        parts = self._warehouse
        return status(parts.project, self._drivers.valid, parts.sites)

    def consumer(self, view: str, name: str, start: str | int | None = None) -> Subscription:
        """The consumer of this name: an iterator over the changes of the view that it has not acknowledged.

        A new one begins at `start`, by default at the oldest point in time that is kept.
        """
        from rollview.upkeep.consumers import Subscription

        return Subscription(self._drivers.consumers, self._warehouse.views.named(view).name, name, start)

    def consumers(self) -> tuple[Consumer, ...]:
        """All consumers, the one of each view that is furthest behind first."""
        return tuple(self._warehouse.catalog.consumers.of())

    def drop_consumer(self, view: str, name: str) -> bool:
        """Drops a consumer, for which nothing is kept any more; whether there was one."""
        return self._warehouse.catalog.consumers.drop(view, name)

    def explain(self, view: str) -> Explanation:
        """Normal form, join graph, algorithm and why, sub-queries per update, what would be full."""
        from rollview.maintain.batches import batch_plan, staleness_bounds
        from rollview.observe.copies import copy_advice
        from rollview.observe.explain import explain
        from rollview.observe.status import measured_parts, work_of
        from rollview.views.define import define
        from rollview.views.views import unknown_view

        parts = self._warehouse
        if not self.is_new and view in self.views:
            known = parts.views.named(view)
            bound = staleness_bounds(parts.views.all()).get(known.name)
            batch = batch_plan(parts.catalog, known.name, bound) if bound else None
            copies = copy_advice(parts.catalog, parts.sites, known)
            measured, work = measured_parts(parts.catalog, known), work_of(parts.catalog, known)
            return explain(known, self._sizes(known), work, batch, copies, measured)
        defined = define(parts.project, parts.sites, parts.session, {})
        if view not in defined:
            raise unknown_view(view, (name for name in defined if not is_stage(name)))
        return explain(defined[view].view)

    def explain_sql(self, path: str | Path) -> Explanation:
        """The same for a file with a view that is not part of the project, or not yet."""
        from rollview.observe.explain import explain
        from rollview.views.define import define_one

        parts = self._warehouse
        return explain(define_one(parts.project, parts.sites, parts.session, Path(path)).view)

    def _sizes(self, view: View) -> dict[str, Size]:
        """The stored sizes of a view's parts."""
        from rollview.observe.explain_parts import Size

        found = {}
        for name in [part.name for part in view.stored_parts]:
            tables = self._warehouse.tables.of_view(name, self._warehouse.catalog.views.get(name).generation)
            table = tables.state if tables.state.exists() else tables.rows
            files = table.files() if table.exists() else ()
            found[name] = Size(sum(each.rows for each in files), sum(each.size for each in files))
        return found

    def verify(self, *views: str) -> list[Verification]:
        """Recomputes the views (all, if none is named) at the csn they show, and compares.

        If one differs, the others that read one of its tables are compared as well, last.
        """
        return self._drivers.verify.run_all(self._chosen(views))

    def condense(self, view: str, start: str | int, to: str | int) -> CondenseResult:
        """Replaces a range of the view delta by its net effect; the result is how many rows that saved."""
        from rollview.storage.points_in_time import check_covered

        catalog, covered = self._warehouse.catalog, self._drivers.stored.open(view).covered
        first, last = (self._drivers.points.resolve(point, covered.newest) for point in (start, to))
        check_covered(catalog, view, first, covered, "condensed from")
        check_covered(catalog, view, last, covered, "condensed to")
        return self._drivers.condense.run(view, first, last)

    def release(self, global_id: str) -> tuple[str, ...]:
        """Ends the wait for a global transaction; returns the sites whose part had not arrived."""
        return self._warehouse.catalog.global_transactions.release(global_id).missing

    def maintain(self) -> dict[str, int]:
        """Compacts and prunes the lake's logs now; `run` does it from time to time."""
        return self._drivers.maintain.run()

    def check_set_up(self) -> None:
        """Refuses a project without views, and leaves no empty catalog behind."""
        from rollview.storage.lake_fit import check_new_catalog

        if self.is_new:
            check_new_catalog(self._warehouse.lake)
        if self.is_new or not self.views:
            hint = "run `rollview setup` first"
            raise InputError(f"project {self.name}: no view is set up", subject=self.name, hint=hint)

    def _chosen(self, names: Iterable[str]) -> tuple[str, ...]:
        """The named views, each once, or all of them; refuses an unknown name, and an empty project."""
        self.check_set_up()
        return tuple(self._warehouse.views.named(name).name for name in dict.fromkeys(names)) or self.views


def _stopped(defined: Mapping[str, Defined], differing: Mistakes) -> dict[str, RollviewError]:
    """The views, stages included, that cannot be set up: they differ from Spark, or read one that does."""
    found: dict[str, RollviewError] = {}
    for name, each in defined.items():
        view, error = owner(name), differing.of(owner(name))
        reads = [owner(table.name) for table in each.view.tables if not table.source]
        unset = [read for read in reads if read in found and read != view]
        if error is None and unset and differing.concern([view]):
            error = ViewError(f"view {view} reads {unset[0]}, which was not set up", subject=view)
        if error is not None:
            found.setdefault(view, error)
    return {name: found[owner(name)] for name in defined if owner(name) in found}

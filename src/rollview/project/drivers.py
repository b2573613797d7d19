"""The drivers, made from the parts of a warehouse: the one place that wires them.

A driver is made when it is first used, so that what needs no catalog makes none.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rollview.answer.query import QueryDriver
    from rollview.answer.why import WhyDriver
    from rollview.maintain.apply import ApplyDriver
    from rollview.maintain.capture import CaptureDriver
    from rollview.maintain.faults import Faults
    from rollview.maintain.load import LoadDriver
    from rollview.maintain.propagate import PropagateDriver
    from rollview.maintain.refresh import RefreshDriver
    from rollview.maintain.relations import SiteReader
    from rollview.maintain.snapshot import SnapshotReader
    from rollview.observe.observer import Observer
    from rollview.project.warehouse import Warehouse
    from rollview.run.run import RunDriver
    from rollview.setup.prepare_sources import SourcePreparation
    from rollview.setup.setup import SetupDriver
    from rollview.storage.points_in_time import PointsInTime
    from rollview.storage.stored_view import StoredViews
    from rollview.upkeep.consumers import ConsumerDriver
    from rollview.upkeep.maintenance import CondenseDriver, ExclusiveAccess, MaintainDriver
    from rollview.upkeep.valid_times import ValidTimes
    from rollview.upkeep.verify import VerifyDriver


class Drivers:
    """The drivers of a project, each with the parts that it uses and no more."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._parts = warehouse

    @cached_property
    def faults(self) -> Faults:
        from rollview.maintain.faults import Faults

        return Faults(self._parts.catalog, self._parts.views, self._parts.events)

    @cached_property
    def capture(self) -> CaptureDriver:
        from rollview.maintain.capture import CaptureDriver

        parts = self._parts
        return CaptureDriver(
            parts.catalog, parts.tables, parts.sites, parts.session, self.faults, parts.events
        )

    @cached_property
    def points(self) -> PointsInTime:
        from rollview.storage.points_in_time import PointsInTime

        return PointsInTime(self._parts.catalog, self._parts.sites)

    @cached_property
    def stored(self) -> StoredViews:
        from rollview.storage.stored_view import StoredViews

        parts = self._parts
        return StoredViews(parts.catalog, parts.tables, parts.views, parts.session)

    @cached_property
    def valid(self) -> ValidTimes:
        from rollview.upkeep.valid_times import ValidTimes

        return ValidTimes(self._parts.catalog, self._parts.views, self.stored)

    @cached_property
    def _site_reader(self) -> SiteReader:
        from rollview.maintain.relations import SiteReader

        return SiteReader(self._parts.catalog, self._parts.sites, self.capture, self.faults)

    @cached_property
    def _snapshots(self) -> SnapshotReader:
        from rollview.maintain.snapshot import SnapshotReader

        parts = self._parts
        return SnapshotReader(parts.catalog, parts.tables, self.stored, self._site_reader, parts.session)

    @cached_property
    def propagate(self) -> PropagateDriver:
        from rollview.maintain.intervals import IntervalSizing, RefreshChoice
        from rollview.maintain.processes import Processes
        from rollview.maintain.propagate import PropagateDriver
        from rollview.maintain.relations import Relations
        from rollview.maintain.source_deltas import SourceDeltas

        parts = self._parts
        catalog, tables, session = parts.catalog, parts.tables, parts.session
        relations = Relations(catalog, tables, self.stored, self._site_reader, session)
        project = parts.project
        sizing = IntervalSizing(catalog, relations, project.step_seconds, project.lookup_seconds)
        deltas = SourceDeltas(catalog, tables, parts.sites, session)
        processes = Processes(catalog, relations, self._snapshots, deltas, session)
        choice = RefreshChoice(catalog, tables, parts.views, sizing)
        return PropagateDriver(catalog, tables, parts.views, choice, processes, self.faults)

    @cached_property
    def apply(self) -> ApplyDriver:
        from rollview.maintain.apply import ApplyDriver

        parts = self._parts
        return ApplyDriver(parts.catalog, parts.tables, self.stored, parts.session, parts.events)

    @cached_property
    def _load(self) -> LoadDriver:
        from rollview.maintain.load import LoadDriver

        parts = self._parts
        return LoadDriver(
            parts.catalog, parts.tables, parts.views, self._snapshots, parts.session, parts.events
        )

    @cached_property
    def setup(self) -> SetupDriver:
        from rollview.setup.setup import DropDriver, SetupDriver

        parts = self._parts
        catalog, tables, views = parts.catalog, parts.tables, parts.views
        drop = DropDriver(catalog, tables, views)
        return SetupDriver(catalog, views, self._sources, self.propagate, self._load, drop)

    @cached_property
    def _sources(self) -> SourcePreparation:
        from rollview.setup.prepare_sources import SourcePreparation

        parts = self._parts
        return SourcePreparation(parts.catalog, parts.tables, parts.sites, self.capture, parts.events)

    @cached_property
    def refresh(self) -> RefreshDriver:
        from rollview.maintain.refresh import RefreshDriver

        parts = self._parts
        return RefreshDriver(self.points, parts.views, self.capture, self.propagate, self.apply, self._load)

    @cached_property
    def _access(self) -> ExclusiveAccess:
        from rollview.upkeep.maintenance import ExclusiveAccess

        parts = self._parts
        return ExclusiveAccess(parts.catalog, parts.views, self.capture, self.propagate, self.apply)

    @cached_property
    def condense(self) -> CondenseDriver:
        from rollview.upkeep.maintenance import CondenseDriver

        parts = self._parts
        return CondenseDriver(parts.catalog, parts.tables, parts.views, self.stored, self._access)

    @cached_property
    def maintain(self) -> MaintainDriver:
        from rollview.upkeep.maintenance import MaintainDriver

        parts = self._parts
        retention = parts.project.retention
        return MaintainDriver(parts.catalog, parts.tables, parts.views, self._access, retention, parts.events)

    @cached_property
    def run(self) -> RunDriver:
        from rollview.maintain.batches import Batches
        from rollview.run.run import Round, RunDriver
        from rollview.run.upkeep import BackgroundVerify, Upkeep
        from rollview.setup.reload import ReloadDriver
        from rollview.views.define import ColumnWatch
        from rollview.views.view_files import FileWatch

        parts = self._parts
        reload = ReloadDriver(self.faults, self._load, self._sources)
        batches = Batches(parts.catalog, parts.views)
        each = Round(self.faults, self.capture, self.propagate, self.apply, reload, batches)
        columns = ColumnWatch(parts.catalog, parts.sites)
        upkeep = Upkeep(self.maintain, columns, self.condense, parts.events)
        verify = BackgroundVerify(parts.views, self.verify, parts.events)
        files = FileWatch(parts.project, parts.catalog, parts.events)
        return RunDriver(parts.catalog, each, upkeep, verify, files, parts.events)

    @cached_property
    def query(self) -> QueryDriver:
        from rollview.answer.query import QueryDriver
        from rollview.answer.query_plan import QueryPlanner

        parts = self._parts
        planner = QueryPlanner(self.points, self.valid, parts.session, parts.sites)
        return QueryDriver(planner, self._snapshots, parts.session, self.refresh)

    @cached_property
    def why(self) -> WhyDriver:
        from rollview.answer.why import WhyDriver

        return WhyDriver(self.points, self.stored, self.query, self._parts.session)

    @cached_property
    def consumers(self) -> ConsumerDriver:
        from rollview.upkeep.consumers import ConsumerDriver

        return ConsumerDriver(self.points, self.stored, self._access)

    @cached_property
    def verify(self) -> VerifyDriver:
        from rollview.upkeep.verify import VerifyDriver

        return VerifyDriver(self.stored, self._snapshots, self._parts.session, self._parts.events)

    @cached_property
    def observer(self) -> Observer:
        """Reads the state of the project and changes nothing."""
        from rollview.observe.observer import Observer
        from rollview.observe.transactions import Transactions

        parts = self._parts
        transactions = Transactions(parts.catalog, parts.tables, self.stored)
        return Observer(parts.catalog, self.valid, parts.sites, transactions, parts.session)

"""The drivers, made from the parts of a warehouse: the one place that says who uses what.

A driver is made when it is first used, so that what needs no catalog makes none.
"""

from __future__ import annotations

from functools import cached_property

from rollview.service.apply import ApplyDriver
from rollview.service.background_verify import BackgroundVerify
from rollview.service.capture import CaptureDriver
from rollview.service.condense import CondenseDriver
from rollview.service.consumers import ConsumerDriver
from rollview.service.drop import DropDriver
from rollview.service.exclusive_access import ExclusiveAccess
from rollview.service.faults import Faults
from rollview.service.file_notes import FileWatch
from rollview.service.interval_sizing import IntervalSizing
from rollview.service.load import LoadDriver
from rollview.service.maintenance import MaintainDriver
from rollview.service.new_columns import ColumnWatch
from rollview.service.observer import Observer
from rollview.service.points_in_time import PointsInTime
from rollview.service.prepare_sources import SourcePreparation
from rollview.service.processes import Processes
from rollview.service.propagate import PropagateDriver
from rollview.service.query import QueryDriver
from rollview.service.query_plan import QueryPlanner
from rollview.service.refresh import RefreshDriver
from rollview.service.refresh_choice import RefreshChoice
from rollview.service.relations import Relations
from rollview.service.reload import ReloadDriver
from rollview.service.run import Round, RunDriver
from rollview.service.setup import SetupDriver
from rollview.service.site_reader import SiteReader
from rollview.service.snapshot import SnapshotReader
from rollview.service.source_deltas import SourceDeltas
from rollview.service.stored_view import StoredViews
from rollview.service.transactions import Transactions
from rollview.service.upkeep import Upkeep
from rollview.service.valid_times import ValidTimes
from rollview.service.verify import VerifyDriver
from rollview.service.warehouse import Warehouse


class Drivers:
    """What a project can do, each part of it with what it uses and no more."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._parts = warehouse

    @cached_property
    def faults(self) -> Faults:
        """What has stopped."""
        return Faults(self._parts.catalog, self._parts.views, self._parts.events)

    @cached_property
    def capture(self) -> CaptureDriver:
        """Takes what sources committed."""
        parts = self._parts
        return CaptureDriver(
            parts.catalog, parts.tables, parts.sites, parts.session, self.faults, parts.events
        )

    @cached_property
    def points(self) -> PointsInTime:
        """What users mean by a point in time."""
        return PointsInTime(self._parts.catalog, self._parts.sites)

    @cached_property
    def stored(self) -> StoredViews:
        """Stored views, to be read."""
        parts = self._parts
        return StoredViews(parts.catalog, parts.tables, parts.views, parts.session)

    @cached_property
    def valid(self) -> ValidTimes:
        """When tables and views are valid."""
        return ValidTimes(self._parts.catalog, self._parts.views, self.stored)

    @cached_property
    def _site_reader(self) -> SiteReader:
        return SiteReader(self._parts.catalog, self._parts.sites, self.capture, self.faults)

    @cached_property
    def _snapshots(self) -> SnapshotReader:
        parts = self._parts
        return SnapshotReader(parts.catalog, parts.tables, self.stored, self._site_reader, parts.session)

    @cached_property
    def propagate(self) -> PropagateDriver:
        """Makes view deltas."""
        parts = self._parts
        catalog, tables, session = parts.catalog, parts.tables, parts.session
        relations = Relations(catalog, tables, self.stored, self._site_reader, session)
        sizing = IntervalSizing(catalog, relations, parts.project.step_seconds)
        deltas = SourceDeltas(catalog, tables, parts.sites, session)
        processes = Processes(catalog, relations, self._snapshots, deltas, session)
        choice = RefreshChoice(catalog, tables, parts.views, sizing)
        return PropagateDriver(catalog, tables, parts.views, choice, processes, self.faults)

    @cached_property
    def apply(self) -> ApplyDriver:
        """Rolls stored views."""
        parts = self._parts
        return ApplyDriver(parts.catalog, parts.tables, self.stored, parts.session, parts.events)

    @cached_property
    def _load(self) -> LoadDriver:
        parts = self._parts
        return LoadDriver(
            parts.catalog, parts.tables, parts.views, self._snapshots, parts.session, parts.events
        )

    @cached_property
    def setup(self) -> SetupDriver:
        """Brings the warehouse in line with the project file."""
        parts = self._parts
        catalog, tables, views = parts.catalog, parts.tables, parts.views
        drop = DropDriver(catalog, tables, views)
        return SetupDriver(catalog, views, self._sources, self.propagate, self._load, drop)

    @cached_property
    def _sources(self) -> SourcePreparation:
        parts = self._parts
        return SourcePreparation(parts.catalog, parts.tables, parts.sites, self.capture, parts.events)

    @cached_property
    def refresh(self) -> RefreshDriver:
        """Refreshes views to the same point in time."""
        parts = self._parts
        return RefreshDriver(self.points, parts.views, self.capture, self.propagate, self.apply, self._load)

    @cached_property
    def _access(self) -> ExclusiveAccess:
        parts = self._parts
        return ExclusiveAccess(parts.catalog, parts.views, self.capture, self.propagate, self.apply)

    @cached_property
    def condense(self) -> CondenseDriver:
        """Condenses view deltas."""
        parts = self._parts
        return CondenseDriver(parts.catalog, parts.tables, parts.views, self.stored, self._access)

    @cached_property
    def maintain(self) -> MaintainDriver:
        """Keeps the lake small."""
        parts = self._parts
        retention = parts.project.retention
        return MaintainDriver(parts.catalog, parts.tables, parts.views, self._access, retention, parts.events)

    @cached_property
    def run(self) -> RunDriver:
        """Does all of it by policy."""
        parts = self._parts
        reload = ReloadDriver(self.faults, self._load, self._sources)
        each = Round(self.faults, self.capture, self.propagate, self.apply, reload)
        columns = ColumnWatch(parts.catalog, parts.sites)
        upkeep = Upkeep(self.maintain, columns, self.condense, parts.events)
        verify = BackgroundVerify(parts.views, self.verify, parts.events)
        files = FileWatch(parts.project, parts.catalog, parts.events)
        return RunDriver(parts.catalog, each, upkeep, verify, files, parts.events)

    @cached_property
    def query(self) -> QueryDriver:
        """Answers queries."""
        parts = self._parts
        planner = QueryPlanner(self.points, self.valid, parts.session)
        return QueryDriver(planner, self._snapshots, parts.session, self.refresh)

    @cached_property
    def consumers(self) -> ConsumerDriver:
        """Hands view deltas over."""
        return ConsumerDriver(self.points, self.stored, self._access)

    @cached_property
    def verify(self) -> VerifyDriver:
        """Recomputes and compares."""
        return VerifyDriver(self.stored, self._snapshots, self._parts.session, self._parts.events)

    @cached_property
    def observer(self) -> Observer:
        """Looks at everything and changes nothing."""
        parts = self._parts
        transactions = Transactions(parts.catalog, parts.tables, self.stored)
        return Observer(parts.catalog, self.valid, parts.sites, transactions)

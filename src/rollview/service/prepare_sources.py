"""Sources made ready for capture, and the history of their sites begun, or begun again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.catalog import CaptureStep, Catalog, Lease, Step
from rollview.errors import RollviewError
from rollview.events import Events
from rollview.service.capture import LEASE as CAPTURE
from rollview.service.capture import CaptureDriver
from rollview.service.drop import DropDriver
from rollview.service.lake_tables import LakeTables
from rollview.service.plan_setup import needs_administrator, tables_by_source
from rollview.service.results import SetupReport
from rollview.service.setup_plan import PrepareSource, SetupPlan, StopCapture
from rollview.service.sites import Sites
from rollview.service.step_timer import timed_step

PATIENCE_SECONDS = 30.0


@dataclass(frozen=True)
class SourcePreparation:
    """Prepares the sources that views read; forgets sites whose history is of no use any more."""

    catalog: Catalog
    tables: LakeTables
    sites: Sites
    capture: CaptureDriver
    drop: DropDriver
    events: Events

    def finish_interrupted(self) -> None:
        """Finishes a capture that died, before the sources are touched: they may lose what it needs.

        If that is impossible, it is looked at again when the sites that start over are forgotten.
        """
        interrupted = [step for step in self.catalog.unfinished() if step.kind == CaptureStep.kind]
        if not interrupted:
            return
        with self.catalog.lease(CAPTURE, PATIENCE_SECONDS) as lease, suppress(RollviewError):
            self.capture.recover(lease)

    def prepare(self, planned: PrepareSource, tables: Mapping[str, Table]) -> list[str]:
        """Installs capture at a source; what it said when it was asked holds, or it refuses now."""
        with timed_step(self.events, "setup", planned.source):
            prepared = self.sites.sources[planned.source].setup([tables[name] for name in planned.tables])
        if prepared.needed:
            raise needs_administrator(planned.source, prepared.needed)
        return list(prepared.done)

    def begin_history(self, plan: SetupPlan, views: Iterable[View], report: SetupReport) -> None:
        """Begins the history of tables that are new; sources stop capturing what is no longer read."""
        released = {each.source for each in plan.all(StopCapture)}
        known = self.catalog.sites()
        for name, own in tables_by_source(views).items():
            self._create_change_logs(own)
            source = self.sites.sources[name]
            if name in released:
                report.sources[name] += source.setup(own).done
            origins = {t.site: (name, source.current_position(t.site)) for t in own if t.site not in known}
            self.catalog.register(own, origins)
        self.capture.run(PATIENCE_SECONDS)

    def _create_change_logs(self, tables: Iterable[Table]) -> None:
        registered = self.catalog.tables()
        for table in tables:
            if table.qualified not in registered:
                # What an earlier catalog captured belongs to another history.
                self.tables.drop(self.tables.change_log(table))
            columns = zip(table.columns, table.types, strict=True)
            self.tables.change_log(table).create((*columns, (COUNT, "bigint"), (CSN, "bigint")))

    def forget(self, sites: Set[str]) -> None:
        """Drops the views that read these sites, and all that was captured of them.

        A capture that died is finished first. Where that is impossible, it may only concern these sites.
        """
        catalog = self.catalog
        if not sites and not catalog.pending(CaptureStep):
            return
        with catalog.lease(CAPTURE, PATIENCE_SECONDS) as lease:
            for step in catalog.pending(CaptureStep):
                self._finish(lease, step, sites)
            self.drop.captured(
                {name: table for name, table in catalog.tables().items() if table.site in sites}
            )
            for step in catalog.pending(CaptureStep):
                catalog.abandon(lease, step)

    def _finish(self, lease: Lease, step: Step[CaptureStep], sites: Set[str]) -> None:
        known = self.catalog.sites().keys() & step.bounds.sites.keys()
        try:
            self.capture.recover(lease)
        except RollviewError:
            # What it wrote to the logs of the other sites could not be told from what comes next.
            if not known <= sites:
                raise


def remove_from_sources(sites: Sites) -> dict[str, list[str]]:
    """Removes what setup installed at the sources; lists what only administrators can. The lake stays."""
    removed = {name: source.remove() for name, source in sites.sources.items()}
    return {
        name: [*each.done, *(f"for the administrator: {statement}" for statement in each.needed)]
        for name, each in removed.items()
    }

"""Sources made ready for capture, and the history of their sites begun, or begun again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.catalog import CaptureStep, Catalog, Fault, Lease, Step
from rollview.config.results import SetupReport
from rollview.errors import RollviewError, UnrepresentableValue
from rollview.events import Events
from rollview.maintain.capture import LEASE as CAPTURE
from rollview.maintain.capture import CaptureDriver
from rollview.maintain.source_deltas import captured_tables, definitions_of, delta_tables
from rollview.runtime.progress import timed_step
from rollview.runtime.sites import Sites
from rollview.setup.plan import PrepareSource, RestartHistory, RestartTable, SetupPlan, StopCapture
from rollview.setup.planner import needs_administrator
from rollview.sources.deltas import MakesDeltas
from rollview.storage.lake_tables import LakeTables

PATIENCE_SECONDS = 30.0


@dataclass(frozen=True)
class SourcePreparation:
    """Prepares the sources that views read; restarts the history of sites where it is no longer usable."""

    catalog: Catalog
    tables: LakeTables
    sites: Sites
    capture: CaptureDriver
    events: Events

    def finish_interrupted(self) -> None:
        """Finishes an interrupted capture before the sources are touched: they may lose what it needs.

        If that is impossible, it is decided when the sites that start over are known.
        """
        interrupted = [step for step in self.catalog.steps.unfinished() if step.kind == CaptureStep.kind]
        if not interrupted:
            return
        with self.catalog.lease(CAPTURE, PATIENCE_SECONDS) as lease, suppress(RollviewError):
            self.capture.recover(lease)

    def prepare(self, planned: PrepareSource, tables: Mapping[str, Table]) -> list[str]:
        """Installs capture at a source, as it announced for the plan; else it refuses."""
        with timed_step(self.events, "setup", planned.source):
            prepared = self.sites.sources[planned.source].setup([tables[name] for name in planned.tables])
        if prepared.needed:
            raise needs_administrator(planned.source, prepared.needed)
        return list(prepared.done)

    def add_deltas(self, views: Sequence[View], report: SetupReport) -> None:
        """Installs the deltas that writers make for these views."""
        for name, definitions in definitions_of(views, self.sites.sources).items():
            source = self.sites.sources[name]
            assert isinstance(source, MakesDeltas)
            done = source.add_deltas(definitions)
            if done.needed:
                raise needs_administrator(name, done.needed)
            report.sources.setdefault(name, []).extend(done.done)

    def keep_deltas(self, before: Sequence[View], views: Sequence[View], report: SetupReport) -> None:
        """Removes all other such deltas, and what was captured of them."""
        sources = self.sites.sources
        kept = definitions_of(views, sources)
        here = {table.qualified for tables in delta_tables(views, sources).values() for table in tables}
        for name, tables in delta_tables(before, sources).items():
            source = sources[name]
            assert isinstance(source, MakesDeltas)
            gone = [table for table in tables if table.qualified not in here]
            if gone:
                report.sources.setdefault(name, []).extend(source.keep_deltas(kept.get(name, ())).done)
            known = self.catalog.captured.tables()
            self.catalog.captured.unregister([each.qualified for each in gone if each.qualified in known])
            for table in gone:
                self.tables.drop(self.tables.change_log(table))

    def begin_history(self, plan: SetupPlan, views: Sequence[View], report: SetupReport) -> None:
        """Begins the history of tables that are new, and that of sites that start over again.

        Sources stop capturing what is no longer read. An interrupted capture is finished first, or rolled
        back where that is impossible.
        """
        catalog, released = self.catalog, {each.source for each in plan.all(StopCapture)}
        again = {each.site for each in plan.all(RestartHistory)}
        restarted = {each.table for each in plan.all(RestartTable)}
        own: list[Table] = []
        origins: dict[str, tuple[str, str]] = {}
        with catalog.lease(CAPTURE, PATIENCE_SECONDS) as lease:
            for step in catalog.steps.pending(CaptureStep):
                self._finish(lease, step, again)
            captured = catalog.captured.tables()
            gone = [name for name, each in captured.items() if each.site in again or name in restarted]
            known = {table.site for name, table in captured.items() if name not in gone}
            for name, used in captured_tables(views, self.sites.sources).items():
                source = self.sites.sources[name]
                tables = [plan.tables[table.qualified] for table in used]
                if name in released:
                    report.sources[name] += source.setup(tables).done
                new = {table.site for table in tables} - known
                origins |= {site: (name, source.current_position(site)) for site in sorted(new)}
                own += tables
            # All at once: half a site could not be captured, and would look like a whole one.
            catalog.history.restart(gone, own, origins)
            for step in catalog.steps.pending(CaptureStep):
                catalog.steps.abandon(lease, step)
            self._create_change_logs(own)
        for fault in plan.settled:
            if catalog.faults.of("table").get(fault.name) == fault:
                self.capture.faults.resume("table", [fault.name])
        self.capture.run(PATIENCE_SECONDS)
        # Changes from before a table's history began are needed by no view.
        begun = {table.qualified for table in own} - (captured.keys() - set(gone))
        self.capture.faults.resume("table", begun)

    def fits(self, name: str, scratch: Path) -> bool:
        """Whether all rows that a captured table has now can be represented."""
        table = self.catalog.captured.tables()[name]
        try:
            self.sites.source_at(table.site).read({table: table.columns}, scratch)
        except UnrepresentableValue:
            return False
        return True

    def begin_again(self, names: Iterable[str], reloading: Sequence[Fault]) -> None:
        """Lets the history of captured tables begin again, as they are; their readers must be loaded.

        `reloading` are the faults to record for views that will be loaded.
        """
        catalog = self.catalog
        with catalog.lease(CAPTURE, PATIENCE_SECONDS) as lease:
            self.capture.take_back(lease)
            captured = catalog.captured.tables()
            gone = [name for name in names if name in captured]
            origins: dict[str, tuple[str, str]] = {}
            for source in {captured[name].source for name in gone}:
                own = [table for table in captured.values() if table.source == source]
                done = self.sites.sources[source].setup(own)
                if done.needed:
                    raise needs_administrator(source, done.needed)
                known = {table.site for table in own if table.qualified not in gone}
                for site in sorted({table.site for table in own} - known):
                    origins[site] = (source, self.sites.sources[source].current_position(site))
            tables = [captured[name] for name in gone]
            catalog.history.restart(gone, tables, origins, reloading)
            self._create_change_logs(tables)
        self.capture.run(PATIENCE_SECONDS, needed={table.site for table in tables})
        self.capture.faults.resume("table", gone)

    def _create_change_logs(self, tables: Iterable[Table]) -> None:
        captured = self.catalog.captured.lake_versions()
        for table in tables:
            if not captured[table.qualified]:
                # Nothing has been captured in this history, so existing rows belong to another one.
                self.tables.drop(self.tables.change_log(table))
            columns = tuple(zip(table.columns, table.types, strict=True))
            log = self.tables.change_log(table)
            log.create_if_missing((*columns, (COUNT, "bigint"), (CSN, "bigint")))
            log.add_columns(
                columns, self.tables.signed("add columns", 0, self.catalog.history.last_csn(), "add columns")
            )

    def _finish(self, lease: Lease, step: Step[CaptureStep], sites: Set[str]) -> None:
        known = self.catalog.captured.sites().keys() & step.bounds.sites.keys()
        try:
            self.capture.recover(lease)
        except RollviewError:
            # Its rows in the logs of other sites would be mistaken for those of the next capture.
            if not known <= sites:
                self.capture.take_back(lease, besides=sites)


def remove_from_sources(sites: Sites) -> dict[str, list[str]]:
    """Removes what setup installed at the sources; lists what only administrators can. The lake stays."""
    removed = {name: source.remove() for name, source in sites.sources.items()}
    return {
        name: [*each.done, *(f"for the administrator: {statement}" for statement in each.needed)]
        for name, each in removed.items()
    }

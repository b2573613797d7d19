"""Sources made ready for capture, and the history of their sites begun, or begun again."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.catalog import CaptureStep, Catalog, Lease, Step
from rollview.errors import NeedsAdministrator, RollviewError
from rollview.events import Events
from rollview.service.capture import LEASE as CAPTURE
from rollview.service.capture import CaptureDriver
from rollview.service.drop import DropDriver
from rollview.service.lake_tables import LakeTables
from rollview.service.results import SetupReport
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

        If that is impossible, it is looked at again when it is known which sites start over.
        """
        interrupted = [step for step in self.catalog.unfinished() if step.kind == CaptureStep.kind]
        if not interrupted:
            return
        with self.catalog.lease(CAPTURE, PATIENCE_SECONDS) as lease, suppress(RollviewError):
            self.capture.recover(lease)

    def prepare(self, views: Iterable[View], report: SetupReport) -> None:
        """Installs capture for every table that a view reads; whatever a source refuses is refused here.

        What has been captured so far goes on being captured.
        """
        present = _by_source(self.drop.views.all().values())
        for name, own in _by_source(views).items():
            source = self.sites.sources[name]
            there = {table.qualified for table in source.tables()} - {table.qualified for table in own}
            kept = [table for table in present.get(name, ()) if table.qualified in there]
            with timed_step(self.events, "setup", name):
                prepared = source.setup([*own, *kept])
            report.sources[name] = list(prepared.done)
            report.warnings += prepared.warnings
            if prepared.needed:
                raise _needs_administrator(name, prepared.needed)

    def begin_history(
        self, views: Iterable[View], no_longer_read: Container[str], report: SetupReport
    ) -> None:
        """Begins the history of tables that are new, after `prepare`.

        Sources of which a table is no longer read stop capturing it.
        """
        by_source = _by_source(views)
        tables = {table.qualified: table for own in by_source.values() for table in own}
        self._forget_changed(tables, report)
        known = self.catalog.sites()
        for name, own in by_source.items():
            self._create_change_logs(own)
            source = self.sites.sources[name]
            if name in no_longer_read:
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

    def forget_reloaded(self, views: Mapping[str, View], reloading: Container[str]) -> None:
        """A site that only views to be reloaded read forgets its past, which the source may have lost."""
        kept = {table.site for name, view in views.items() if name not in reloading for table in view.tables}
        tables = self.catalog.tables()
        read = {name for name in tables if any(view in views for view in self.drop.readers(name))}
        self._forget_sites({tables[name].site for name in read} - kept)

    def _forget_changed(self, tables: Mapping[str, Table], report: SetupReport) -> None:
        """A site with a table that has other columns than before starts over, and so do its views."""
        changed: dict[str, str] = {}
        for name, old in self.catalog.tables().items():
            new = tables.get(name)
            if new is not None and (new.columns, new.types, new.site) != (old.columns, old.types, old.site):
                changed[old.site] = name
        for site, name in changed.items():
            report.warnings.append(f"the columns of {name} have changed: the history of {site} starts over")
        self._forget_sites(set(changed))

    def _forget_sites(self, sites: set[str]) -> None:
        """Drops the views that read these sites, and all that was captured of them."""
        catalog = self.catalog
        if not sites and not catalog.pending(CaptureStep):
            return
        with catalog.lease(CAPTURE, PATIENCE_SECONDS) as lease:
            for step in catalog.pending(CaptureStep):
                sites = self._with_interrupted(lease, step, sites)
            self.drop.captured(
                {name: table for name, table in catalog.tables().items() if table.site in sites}
            )
            for step in catalog.pending(CaptureStep):
                catalog.abandon(lease, step)

    def _with_interrupted(self, lease: Lease, step: Step[CaptureStep], sites: set[str]) -> set[str]:
        """Finishes a capture that died. Where that is impossible, its sites are forgotten with the others."""
        own = set(step.bounds.sites)
        if own <= self.catalog.sites().keys():
            try:
                self.capture.recover(lease)
                return sites
            except RollviewError:
                # What it wrote to the logs of the other sites could not be told from what comes next.
                if not own <= sites:
                    raise
        return sites | own


def _by_source(views: Iterable[View]) -> dict[str, list[Table]]:
    """The base tables of views, each once, by source."""
    found: dict[str, dict[str, Table]] = {}
    for table in (table for view in views for table in view.tables if table.source):
        found.setdefault(table.source, {})[table.qualified] = table
    return {name: list(tables.values()) for name, tables in found.items()}


def _needs_administrator(source: str, statements: tuple[str, ...]) -> NeedsAdministrator:
    shown = "\n    ".join(statements)
    return NeedsAdministrator(
        f"source {source} needs its administrator:\n    {shown}",
        subject=source,
        hint="`rollview setup --statements FILE` writes this to a file for them",
        statements=statements,
    )


def remove_from_sources(sites: Sites) -> dict[str, list[str]]:
    """Removes what setup installed at the sources; lists what only administrators can. The lake stays."""
    removed = {name: source.remove() for name, source in sites.sources.items()}
    return {
        name: [*each.done, *(f"for the administrator: {statement}" for statement in each.needed)]
        for name, each in removed.items()
    }

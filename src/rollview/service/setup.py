"""setup: prepares sources for capture, loads new views, reloads changed ones, drops removed ones."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from rollview.algebra.view import View, is_stage
from rollview.catalog import Catalog, UnreadableStep
from rollview.service.apply import LEASE as APPLY
from rollview.service.capture import LEASE as CAPTURE
from rollview.service.define import Defined
from rollview.service.definitions import digest, is_full, notices
from rollview.service.drop import DropDriver
from rollview.service.load import LoadDriver
from rollview.service.prepare_sources import PATIENCE_SECONDS, SourcePreparation
from rollview.service.propagate import PropagateDriver
from rollview.service.refresh import with_dependencies
from rollview.service.results import SetupReport
from rollview.service.views import Views, unknown_view


@dataclass(frozen=True)
class SetupDriver:
    """Brings catalog, lake and sources in line with the views as they are defined."""

    catalog: Catalog
    views: Views
    sources: SourcePreparation
    propagate: PropagateDriver
    load: LoadDriver
    drop: DropDriver

    def changed(self, defined: Mapping[str, Defined]) -> list[Defined]:
        """The views that are new, or have another definition than the catalog knows."""
        records = self.catalog.views()
        known = {name: record.digest for name, record in records.items()}
        return [
            each
            for name, each in defined.items()
            if not is_stage(name) and known.get(name) != digest(each.view)
        ]

    def run(self, defined: Mapping[str, Defined], reloading: set[str]) -> SetupReport:
        """Sets up the defined views; those in `reloading` are reloaded even if they have not changed."""
        report = SetupReport()
        views = {name: each.view for name, each in defined.items()}
        own = [view for name, view in views.items() if not is_stage(name)]
        report.warnings += [notice for view in own for notice in notices(view)]
        former = self.views.all()
        known = set(former)
        dropped = [name for name in self.views.all() if name not in views]
        report.dropped += [name for name in dropped if not is_stage(name)]
        # What can be refused comes first; until then, all that there was stays, and is maintained.
        self._unreadable(reloading | set(dropped))
        self.sources.finish_interrupted()
        self.sources.prepare(views.values(), report)
        self._give_up_unreadable(reloading | set(dropped))
        for name in dropped:
            self.drop.with_readers(name)
        self.sources.forget_reloaded(views, reloading)
        self.sources.begin_history(views.values(), _left(former, views), report)
        loaded: dict[str, str] = {}
        for name, each in defined.items():
            if reason := self._reason_to_load(each.view, known, reloading, loaded):
                self._propagate_inputs(each.view)
                self.load.run(each.view, each.layout, reason, PATIENCE_SECONDS)
                loaded[name] = reason
            else:
                self.load.give_up_interrupted(name, PATIENCE_SECONDS)
        report.loaded |= {name: reason for name, reason in loaded.items() if not is_stage(name)}
        report.unchanged += [view.name for view in own if view.name not in loaded]
        return report

    def _give_up_unreadable(self, leaving: set[str]) -> None:
        """Ends steps that this release cannot finish, once the views that they may have changed are dropped.

        Refused unless all of these views are dropped or reloaded anyway.
        """
        catalog = self.catalog
        if not self._unreadable(leaving):
            return
        # Whoever could still be at work on such a step holds one of these, or that of a view, which dropping
        # the view takes.
        with catalog.lease(CAPTURE, PATIENCE_SECONDS) as lease, catalog.lease(APPLY, PATIENCE_SECONDS):
            steps = self._unreadable(leaving)
            for name in dict.fromkeys(name for step in steps for name in step.views):
                self.drop.with_readers(name)
            if any(step.concerns_all for step in steps):
                self.drop.captured(catalog.tables())
            for step in self._unreadable(leaving):
                catalog.abandon(lease, step)

    def _unreadable(self, leaving: set[str]) -> list[UnreadableStep]:
        found = [step for step in self.catalog.unfinished() if isinstance(step, UnreadableStep)]
        for step in found:
            if not leaving.issuperset(step.views):
                raise step.refusal
        return found

    def _reason_to_load(
        self, view: View, known: Container[str], reloading: Container[str], loaded: Container[str]
    ) -> str:
        """Why a view must be loaded; empty if it need not be."""
        if view.name not in known:
            return "first load"
        if view.name in reloading:
            return "asked for"
        # What a view reads has lost its past when it was loaded, so the reader has to begin there, too.
        inputs = [table.name for table in view.tables if not table.source and table.name in loaded]
        if others := [name for name in inputs if not is_stage(name)]:
            return f"{others[0]} was loaded"
        record = self.catalog.views().get(view.name)
        unchanged = record is not None and record.digest == digest(view) and not inputs
        return "" if unchanged else "the definition changed"

    def _propagate_inputs(self, view: View) -> None:
        """Views that this one reads must reach the present, where the new tables' history begins."""
        inputs = [table.name for table in view.tables if not table.source]
        present = self.catalog.last_csn()
        for name in with_dependencies(self.views, inputs):
            if not is_full(self.views.named(name)):
                self.propagate.run(name, present, PATIENCE_SECONDS)


def _left(former: Mapping[str, View], views: Mapping[str, View]) -> set[str]:
    """The sources of which a table was read that is read no more."""
    read = {table.qualified for view in views.values() for table in view.tables}
    tables = (table for view in former.values() for table in view.tables)
    return {table.source for table in tables if table.source and table.qualified not in read}


def to_reload(
    defined: Mapping[str, Defined], sources: Container[str], names: Iterable[str] | None
) -> set[str]:
    """The views that were named, and those that read a source that was named; all for an empty list."""
    if names is None:
        return set()
    reloading: set[str] = set()
    for name in list(names) or list(defined):
        if name in defined:
            reloading |= {part.name for part in defined[name].view.stored_parts}
        elif name in sources:
            reloading |= {
                view
                for view, each in defined.items()
                if any(table.source == name for table in each.view.named_tables)
            }
        else:
            raise unknown_view(name, (view for view in defined if not is_stage(view)))
    return reloading

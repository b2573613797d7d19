"""setup: executes the plan that brings sources, lake and catalog in line with the views as defined."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from rollview.algebra.view import View, is_stage
from rollview.catalog import Catalog, UnreadableStep, ViewRecord
from rollview.service.apply import LEASE as APPLY
from rollview.service.capture import LEASE as CAPTURE
from rollview.service.define import Defined
from rollview.service.definitions import digest, is_full, policy_of
from rollview.service.drop import DropDriver
from rollview.service.load import LoadDriver
from rollview.service.prepare_sources import PATIENCE_SECONDS, SourcePreparation
from rollview.service.propagate import PropagateDriver
from rollview.service.refresh import with_dependencies
from rollview.service.results import SetupReport
from rollview.service.setup_plan import (
    DeriveView,
    DropView,
    GiveUpStep,
    KeepView,
    LoadView,
    PrepareSource,
    SetupPlan,
)
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

    def run(self, plan: SetupPlan, defined: Mapping[str, Defined]) -> SetupReport:
        """Does what was planned. What can be refused comes first; until then, all that there was stays."""
        report = SetupReport(warnings=list(plan.warnings))
        views = [each.view for each in defined.values()]
        before = list(self.views.all().values())
        self.sources.finish_interrupted()
        self.sources.add_deltas(views, report)
        for source in plan.all(PrepareSource):
            done = report.sources.setdefault(source.source, [])
            done += self.sources.prepare(source, plan.tables)
        self._give_up_unreadable({view for step in plan.all(GiveUpStep) for view in step.views})
        self.sources.begin_history(plan, views, report)
        derived: set[str] = set()
        for action in plan.actions:
            match action:
                case LoadView(view=name):
                    if self._load(action, defined[name]):
                        derived.add(name)
                case KeepView(view=name):
                    self.load.give_up_interrupted(name, PATIENCE_SECONDS)
                    self._take_over(defined[name].view)
                case _:
                    continue
        # Last: whatever failed before, nobody misses them.
        for dropped in plan.all(DropView):
            self.drop.with_readers(dropped.view)
        self.sources.keep_deltas(before, views, report)
        # Whoever runs may try again what only this could mend.
        for scope in ("site", "view"):
            for name in self.catalog.faults(scope):
                self.catalog.clear_fault(scope, name)
        report.dropped += [each.view for each in plan.all(DropView) if each in plan.shown]
        report.loaded |= {each.view: each.reason for each in plan.all(LoadView) if each in plan.shown}
        report.from_stored += [name for name in report.loaded if name in derived]
        report.unchanged += [each.view for each in plan.all(KeepView) if each in plan.shown]
        return report

    def _take_over(self, view: View) -> None:
        """Notes how the definition of a view that stays is written now: its properties may be others."""
        if self.catalog.view(view.name).digest != digest(view):
            with self.catalog.lease(f"propagate:{view.name}", PATIENCE_SECONDS) as lease:
                self.catalog.redefine(lease, view.name, view.sql, digest(view), policy_of(view))

    def _load(self, action: LoadView, defined: Defined) -> bool:
        """Loads a view; true if it could be computed from what was stored."""
        view, layout, reason = defined.view, defined.layout, action.reason
        if isinstance(action, DeriveView) and self.load.derive(
            view, layout, reason, action.stored, PATIENCE_SECONDS
        ):
            return True
        self._propagate_inputs(view)
        self.load.run(view, layout, reason, PATIENCE_SECONDS)
        return False

    def _give_up_unreadable(self, leaving: set[str]) -> None:
        """Ends steps that this release cannot finish; what their views show stays until they are loaded.

        Refused unless all of these views are dropped or reloaded anyway.
        """
        catalog = self.catalog
        if not self._unreadable(leaving):
            return
        with ExitStack() as held:
            # Whoever could still be at work on such a step holds one of these, or that of a view.
            lease = held.enter_context(catalog.lease(CAPTURE, PATIENCE_SECONDS))
            held.enter_context(catalog.lease(APPLY, PATIENCE_SECONDS))
            for name in {view for step in self._unreadable(leaving) for view in step.views}:
                held.enter_context(catalog.lease(f"propagate:{name}", PATIENCE_SECONDS))
            for step in self._unreadable(leaving):
                catalog.give_up(lease, step)

    def _unreadable(self, leaving: set[str]) -> list[UnreadableStep]:
        found = [step for step in self.catalog.unfinished() if isinstance(step, UnreadableStep)]
        for step in found:
            if not leaving.issuperset(step.views):
                raise step.refusal
        return found

    def _propagate_inputs(self, view: View) -> None:
        """Views that this one reads must reach the present, where the new tables' history begins."""
        inputs = [table.name for table in view.tables if not table.source]
        present = self.catalog.last_csn()
        for name in with_dependencies(self.views, inputs):
            if not is_full(self.views.named(name)):
                self.propagate.run(name, present, PATIENCE_SECONDS)


def keeping_columns(records: Mapping[str, ViewRecord], names: Sequence[str] | None) -> dict[str, ViewRecord]:
    """The views whose `*` goes on to mean what it meant: all but those that are to be reloaded."""
    if names is None:
        return dict(records)
    again = set(names)
    return {
        name: record
        for name, record in records.items()
        if again and name not in again and again.isdisjoint(table.source for table in record.tables)
    }


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

"""setup: executes the plan that brings sources, lake and catalog in line with the views as defined."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from rollview.algebra.view import View, is_stage, owner
from rollview.catalog import (
    Catalog,
    CondenseStep,
    DropStep,
    LoadStep,
    MaintainStep,
    PropagateStep,
    UnreadableStep,
    ViewDropped,
    ViewRecord,
)
from rollview.config.results import SetupReport
from rollview.errors import (
    ComputationFailed,
    EvaluationError,
    LakeDamaged,
    LeaseHeld,
    RollviewError,
    SourceError,
    ViewError,
)
from rollview.maintain.apply import LEASE as APPLY
from rollview.maintain.capture import LEASE as CAPTURE
from rollview.maintain.faults import report_failure
from rollview.maintain.load import LoadDriver
from rollview.maintain.propagate import PropagateDriver
from rollview.maintain.refresh import with_dependencies
from rollview.setup.plan import (
    DeriveView,
    DropView,
    GiveUpStep,
    KeepView,
    LoadView,
    PrepareSource,
    SetupPlan,
)
from rollview.setup.planner import readers_of
from rollview.setup.prepare_sources import PATIENCE_SECONDS, SourcePreparation
from rollview.storage.lake_tables import LakeTables
from rollview.views.define import Defined
from rollview.views.mistakes import not_set_up
from rollview.views.properties import digest, is_full, policy_of
from rollview.views.uncomputable import naming
from rollview.views.views import Views, unknown_view

_CAPTURE_SECONDS = 5.0
_TRY_AGAIN = "correct the rows at their source, or change the view; then run `rollview setup` again"


@dataclass(frozen=True)
class SetupDriver:
    """Brings catalog, lake and sources in line with the view definitions."""

    catalog: Catalog
    views: Views
    sources: SourcePreparation
    propagate: PropagateDriver
    load: LoadDriver
    drop: DropDriver

    def run(self, plan: SetupPlan, defined: Mapping[str, Defined]) -> SetupReport:
        """Executes the plan. Actions that can be refused come first; until then nothing is removed."""
        report = SetupReport(warnings=list(plan.warnings))
        views = [each.view for each in defined.values()]
        before = list(self.views.all().values())
        self.sources.sites.check_executors()
        self.sources.finish_interrupted()
        self.sources.add_deltas(views, report)
        for source in plan.all(PrepareSource):
            done = report.sources.setdefault(source.source, [])
            done += self.sources.prepare(source, plan.tables)
        self._give_up_unreadable({view for step in plan.all(GiveUpStep) for view in step.views})
        self.sources.begin_history(plan, views, report)
        derived: set[str] = set()
        stopped = dict(plan.stopped)
        for action in plan.actions:
            match action:
                case LoadView(view=name):
                    if self._loaded(action, defined[name], stopped):
                        derived.add(name)
                case KeepView(view=name):
                    self.load.give_up_interrupted(name, PATIENCE_SECONDS)
                    self._take_over(defined[name])
                case _:
                    continue
        # Last: they are not needed, whatever failed before.
        for dropped in plan.all(DropView):
            self.drop.with_readers(dropped.view)
        self.sources.keep_deltas(before, views, report)
        self._clear_faults({each.view for each in plan.all(LoadView) if owner(each.view) not in stopped})
        report.dropped += [each.view for each in plan.all(DropView) if each in plan.shown]
        report.loaded |= {
            each.view: each.reason
            for each in plan.all(LoadView)
            if each in plan.shown and each.view not in stopped
        }
        report.from_stored += [name for name in report.loaded if name in derived]
        report.unchanged += [
            each.view for each in plan.all(KeepView) if each in plan.shown and each.view not in stopped
        ]
        if stopped:
            report.stopped = {name: error.message for name, error in stopped.items()}
            raise not_set_up(stopped, report)
        return report

    def _clear_faults(self, loaded: set[str]) -> None:
        """Clears the faults that only setup could repair, so that `run` tries again.

        A view that cannot be computed is repaired only by a load: its fault says from which csn on `run` has
        to look for a corrected row.
        """
        for scope in ("site", "view"):
            for name, fault in self.catalog.faults.of(scope).items():
                if fault.kind != EvaluationError.__name__ or name in loaded:
                    self.catalog.faults.clear(scope, name)

    def _take_over(self, defined: Defined) -> None:
        """Records the new text of a view that stays: its properties, or its table's, may have changed."""
        view = defined.view
        if self.catalog.views.get(view.name).digest != digest(view):
            with self.catalog.lease(f"propagate:{view.name}", PATIENCE_SECONDS) as lease:
                self.catalog.views.redefine(lease, view.name, view.sql, digest(view), policy_of(view))
        if not is_stage(view.name):
            # Nobody may roll the view's table meanwhile. Damage is reported where the table is needed.
            with suppress(LakeDamaged), self.catalog.lease(APPLY, PATIENCE_SECONDS):
                shown = self.catalog.views.get(view.name).materialized_csn
                self.load.tables.describe(view, defined.layout.columns, shown)

    def _loaded(self, action: LoadView, defined: Defined, stopped: dict[str, RollviewError]) -> bool:
        """Loads a view unless it, or what it reads, cannot be computed; true if it was derived."""
        view, name = defined.view, owner(defined.view.name)
        if name in stopped:
            return False
        try:
            for table in view.tables:
                if not table.source and owner(table.name) in stopped:
                    raise EvaluationError(
                        f"view {name} reads {owner(table.name)}, which was not set up", subject=name
                    )
            with naming(view, self.catalog.history.last_csn()):
                return self._load(action, defined)
        except (ComputationFailed, EvaluationError, ViewError) as error:
            stopped[name] = _at_setup(error)
            report_failure(self.load.events, f"set up {name}", error)
            self._leave_out(view.name)
            return False

    def _leave_out(self, part: str) -> None:
        """Rolls back a failed load; a new view loses its stages as well."""
        self.load.give_up_interrupted(part, PATIENCE_SECONDS)
        known = self.catalog.views.all()
        if owner(part) not in known:
            for name in [each for each in known if owner(each) == owner(part)]:
                self.drop.with_readers(name)

    def _load(self, action: LoadView, defined: Defined) -> bool:
        """Loads a view; true if it could be computed from stored rows."""
        view, layout, reason = defined.view, defined.layout, action.reason
        if isinstance(action, DeriveView) and self.load.derive(
            view, layout, reason, action.stored, PATIENCE_SECONDS
        ):
            return True
        self._propagate_inputs(view)
        self.load.run(view, layout, reason, PATIENCE_SECONDS)
        return False

    def _give_up_unreadable(self, leaving: set[str]) -> None:
        """Ends steps that this release cannot finish; the rows of their views stay until they are loaded.

        Refused unless all of these views are dropped or reloaded anyway.
        """
        catalog = self.catalog
        if not self._unreadable(leaving):
            return
        with ExitStack() as held:
            # A process that still works on such a step holds one of these leases, or that of a view.
            lease = held.enter_context(catalog.lease(CAPTURE, PATIENCE_SECONDS))
            held.enter_context(catalog.lease(APPLY, PATIENCE_SECONDS))
            for name in {view for step in self._unreadable(leaving) for view in step.views}:
                held.enter_context(catalog.lease(f"propagate:{name}", PATIENCE_SECONDS))
            for step in self._unreadable(leaving):
                catalog.steps.give_up(lease, step)

    def _unreadable(self, leaving: set[str]) -> list[UnreadableStep]:
        found = [step for step in self.catalog.steps.unfinished() if isinstance(step, UnreadableStep)]
        for step in found:
            if not leaving.issuperset(step.views):
                raise step.refusal
        return found

    def _propagate_inputs(self, view: View) -> None:
        """Views that this one reads must reach the present, where the new tables' history begins."""
        inputs = [table.name for table in view.tables if not table.source]
        if any(owner(name) != owner(view.name) for name in inputs):
            # For a view that reads no source nothing else looks for new commits.
            with suppress(LeaseHeld, SourceError):
                self.sources.capture.run(_CAPTURE_SECONDS)
        present = self.catalog.history.last_csn()
        for name in with_dependencies(self.views, inputs):
            if not is_full(self.views.named(name)):
                self.propagate.run(name, present, PATIENCE_SECONDS)


def _at_setup(error: RollviewError) -> RollviewError:
    """The error with the way out at setup: `run` does not know the view yet."""
    if isinstance(error, EvaluationError) and error.hint:
        error.hint = _TRY_AGAIN
    return error


def keeping_columns(records: Mapping[str, ViewRecord], names: Sequence[str] | None) -> dict[str, ViewRecord]:
    """The views whose `*` keeps its columns: all but those to be reloaded."""
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


# drop: forgets views, first in the catalog, then in the lake.


@dataclass(frozen=True)
class DropDriver:
    """Drops views."""

    catalog: Catalog
    tables: LakeTables
    views: Views

    def view(self, name: str) -> None:
        """Forgets a view and removes its tables from the lake."""
        catalog = self.catalog
        with catalog.lease(f"propagate:{name}", PATIENCE_SECONDS) as lease:
            catalog.steps.abandon_pending(
                lease, name, LoadStep, PropagateStep, DropStep, MaintainStep, CondenseStep
            )
            step = catalog.steps.begin(lease, name, DropStep())
            catalog.steps.finish(lease, step, ViewDropped(name))
            self.tables.drop_view(name)

    def with_readers(self, name: str) -> None:
        """Drops the views that read a table, or a view with those that read it."""
        for reader in readers_of(self.views.all(), name):
            self.view(reader)

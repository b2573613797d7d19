"""The plan of setup as data: `setup` executes it, `--dry-run` prints it.

Every action has `lines`, its text for people. Stages are unnamed parts of views. Their loads and drops are in
the plan; users do not see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, TypeVar

from rollview.algebra.relation import Table
from rollview.algebra.view import View, is_stage
from rollview.catalog import CaptureStep, Catalog, Fault, UnreadableStep, ViewRecord
from rollview.errors import RollviewError
from rollview.views.properties import algorithm_of, digest, is_full
from rollview.views.resumable import begun_again, detached
from rollview.views.views import Views


@dataclass(frozen=True)
class FinishCapture:
    """An interrupted capture of these sites is finished before the sources are touched."""

    action: ClassVar[str] = "finish_capture"
    sites: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        return (f"an interrupted capture of {', '.join(self.sites)} will be finished",)


@dataclass(frozen=True)
class PrepareSource:
    """Capture is installed for these tables; `changes` are those at the source, maybe none."""

    action: ClassVar[str] = "prepare_source"
    source: str
    tables: tuple[str, ...]
    changes: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        if not self.changes:
            return (f"source {self.source}: nothing to do",)
        return (f"source {self.source}, when done:", *(f"  {change}" for change in self.changes))


@dataclass(frozen=True)
class GiveUpStep:
    """A step that this release cannot finish is given up; these views may have been changed by it."""

    action: ClassVar[str] = "give_up_step"
    step: int
    kind: str
    views: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        return (f"the unfinished {self.kind} step {self.step} will be given up",)


@dataclass(frozen=True)
class DropView:
    """A view is dropped for good."""

    action: ClassVar[str] = "drop_view"
    view: str
    reason: str

    @property
    def lines(self) -> tuple[str, ...]:
        return (f"view {self.view}: will be dropped ({self.reason})",)


@dataclass(frozen=True)
class RestartHistory:
    """The history of a site begins again; until its views are loaded, they can be read as they are."""

    action: ClassVar[str] = "restart_history"
    site: str
    reason: str

    @property
    def lines(self) -> tuple[str, ...]:
        return (f"site {self.site}: its history will begin again ({self.reason})",)


@dataclass(frozen=True)
class RestartTable:
    """The history of one table begins again, that of the others at its site continues."""

    action: ClassVar[str] = "restart_table"
    table: str
    reason: str

    @property
    def lines(self) -> tuple[str, ...]:
        return (f"table {self.table}: its history will begin again ({self.reason})",)


@dataclass(frozen=True)
class StopCapture:
    """A source stops capturing tables that no view reads any more."""

    action: ClassVar[str] = "stop_capture"
    source: str
    tables: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        return (f"source {self.source}: {', '.join(self.tables)} will no longer be captured",)


@dataclass(frozen=True)
class BeginHistory:
    """The history of these tables of a site begins."""

    action: ClassVar[str] = "begin_history"
    site: str
    tables: tuple[str, ...]
    reason: str

    @property
    def lines(self) -> tuple[str, ...]:
        return (f"site {self.site}: history of {', '.join(self.tables)} will begin ({self.reason})",)


@dataclass(frozen=True)
class LoadView:
    """A view is loaded from its relations as they are now."""

    action: ClassVar[str] = "load_view"
    view: str
    reason: str

    @property
    def lines(self) -> tuple[str, ...]:
        return (f"view {self.view}: will be loaded ({self.reason})",)


@dataclass(frozen=True)
class DeriveView(LoadView):
    """A view is computed from the stored state of its former definition; loaded if that cannot be read."""

    action: ClassVar[str] = "derive_view"
    stored: str

    @property
    def lines(self) -> tuple[str, ...]:
        return (f"view {self.view}: will be computed from what is stored ({self.reason})",)


@dataclass(frozen=True)
class KeepView:
    """A view stays as it is, and continues from there."""

    action: ClassVar[str] = "keep_view"
    view: str

    @property
    def lines(self) -> tuple[str, ...]:
        return (f"view {self.view}: unchanged",)


Action = (
    FinishCapture
    | PrepareSource
    | GiveUpStep
    | DropView
    | RestartHistory
    | RestartTable
    | StopCapture
    | BeginHistory
    | LoadView
    | KeepView
)
A = TypeVar("A", bound=Action)


@dataclass(frozen=True)
class SetupPlan:
    """The actions in the order of execution, and notes for people.

    `tables` are those that sources capture for them, as they are captured from then on. `settled` are losses
    that concern no view. `stopped` are views that cannot be set up, and why; the rest of the plan is without
    them, or leaves them as they are.
    """

    actions: tuple[Action, ...]
    warnings: tuple[str, ...]
    tables: Mapping[str, Table] = field(default_factory=dict)
    settled: tuple[Fault, ...] = ()
    stopped: Mapping[str, RollviewError] = field(default_factory=dict)

    def all(self, kind: type[A]) -> tuple[A, ...]:
        """The actions of one kind."""
        return tuple(each for each in self.actions if isinstance(each, kind))

    @property
    def shown(self) -> tuple[Action, ...]:
        """The actions, without those of stages."""
        return tuple(each for each in self.actions if not is_stage(getattr(each, "view", "")))

    @property
    def lines(self) -> Iterator[str]:
        """The plan for people, a line for each thing."""
        for each in self.shown:
            yield from each.lines
        for name, error in self.stopped.items():
            yield f"view {name}: will not be set up: {error.message}"

    def as_data(self) -> dict[str, Any]:
        """The plan for programs."""
        actions = [{"action": each.action, **asdict(each)} for each in self.shown]
        stopped = {name: error.message for name, error in self.stopped.items()}
        return {"actions": actions, "warnings": list(self.warnings), "stopped": stopped}


# The content of the catalog when a setup is planned, read once. Empty for a new project.


@dataclass(frozen=True)
class Recorded:
    """Views with their records, captured tables, sites; unreadable steps, interrupted captures.

    `detached` are views that cannot continue, `lost` tables of which changes are missing, and why.
    `recomputed` are views without a delta whose rows contain the whole state, so that deltas can continue
    from them.
    """

    views: Mapping[str, View] = field(default_factory=dict)
    records: Mapping[str, ViewRecord] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    sites: frozenset[str] = frozenset()
    detached: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, Fault] = field(default_factory=dict)
    unreadable: tuple[UnreadableStep, ...] = ()
    interrupted: tuple[frozenset[str], ...] = ()
    recomputed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, catalog: Catalog, views: Views) -> Recorded:
        """As the catalog has it now."""
        unfinished = catalog.steps.unfinished()
        return cls(
            views=views.all(),
            records=catalog.views.all(),
            tables=catalog.captured.tables(),
            sites=frozenset(catalog.captured.sites()),
            detached={
                name: reason for name, view in views.all().items() if (reason := detached(catalog.now, view))
            },
            lost=catalog.faults.of("table"),
            unreadable=tuple(step for step in unfinished if isinstance(step, UnreadableStep)),
            interrupted=tuple(
                frozenset(step.bounds.sites)
                for step in unfinished
                if not isinstance(step, UnreadableStep) and isinstance(step.bounds, CaptureStep)
            ),
            recomputed=frozenset(
                name
                for name, view in views.all().items()
                if is_full(view) and views.layout(name).is_in_rows and not begun_again(catalog.now, view)
            ),
        )

    def has(self, view: View) -> bool:
        """Whether the view was set up with this definition, or with an equivalent one."""
        known, before = self.records.get(view.name), self.views.get(view.name)
        if known is None or before is None or known.digest == digest(view):
            return known is not None and known.digest == digest(view)
        # Another text for the same tree: storage and maintenance stay the same.
        is_maintained_alike = is_full(before) == is_full(view) and algorithm_of(view).continues(
            algorithm_of(before)
        )
        return known.digest == digest(before) and before.root == view.root and is_maintained_alike

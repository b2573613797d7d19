"""What setup is going to do, as data: the run executes it, `--dry-run` prints it.

Stages are parts of views that nobody named. Their loads and drops are in the plan, and users do not see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, TypeVar

from rollview.algebra.relation import Table
from rollview.algebra.view import is_stage
from rollview.catalog import Fault


@dataclass(frozen=True)
class FinishCapture:
    """A capture of these sites that died is finished before the sources are touched."""

    action: ClassVar[str] = "finish_capture"
    sites: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """For people."""
        return (f"an interrupted capture of {', '.join(self.sites)} will be finished",)


@dataclass(frozen=True)
class PrepareSource:
    """Capture is installed for these tables; `changes` are what the source says that takes, maybe nothing."""

    action: ClassVar[str] = "prepare_source"
    source: str
    tables: tuple[str, ...]
    changes: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """For people."""
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
        """For people."""
        return (f"the unfinished {self.kind} step {self.step} will be given up",)


@dataclass(frozen=True)
class DropView:
    """A view is dropped and does not come back."""

    action: ClassVar[str] = "drop_view"
    view: str
    reason: str

    @property
    def lines(self) -> tuple[str, ...]:
        """For people."""
        return (f"view {self.view}: will be dropped ({self.reason})",)


@dataclass(frozen=True)
class RestartHistory:
    """The history of a site begins again; until they are loaded, its views can be read as they are."""

    action: ClassVar[str] = "restart_history"
    site: str
    reason: str

    @property
    def lines(self) -> tuple[str, ...]:
        """For people."""
        return (f"site {self.site}: its history will begin again ({self.reason})",)


@dataclass(frozen=True)
class RestartTable:
    """The history of one table begins again, that of the others at its site goes on."""

    action: ClassVar[str] = "restart_table"
    table: str
    reason: str

    @property
    def lines(self) -> tuple[str, ...]:
        """For people."""
        return (f"table {self.table}: its history will begin again ({self.reason})",)


@dataclass(frozen=True)
class StopCapture:
    """A source stops capturing tables that no view reads any more."""

    action: ClassVar[str] = "stop_capture"
    source: str
    tables: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """For people."""
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
        """For people."""
        return (f"site {self.site}: history of {', '.join(self.tables)} will begin ({self.reason})",)


@dataclass(frozen=True)
class LoadView:
    """A view is loaded from its relations as they are now."""

    action: ClassVar[str] = "load_view"
    view: str
    reason: str

    @property
    def lines(self) -> tuple[str, ...]:
        """For people."""
        return (f"view {self.view}: will be loaded ({self.reason})",)


@dataclass(frozen=True)
class DeriveView(LoadView):
    """A view is computed from what a former part of it has stored; loaded if that cannot be read."""

    action: ClassVar[str] = "derive_view"
    stored: str

    @property
    def lines(self) -> tuple[str, ...]:
        """For people."""
        return (f"view {self.view}: will be computed from what is stored ({self.reason})",)


@dataclass(frozen=True)
class KeepView:
    """A view stays as it is, and goes on from there."""

    action: ClassVar[str] = "keep_view"
    view: str

    @property
    def lines(self) -> tuple[str, ...]:
        """For people."""
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
    """The actions in the order in which they are done, and what people should know before.

    `tables` are those that sources capture for them, as they are captured from then on. `settled` are losses
    that concern no view.
    """

    actions: tuple[Action, ...]
    warnings: tuple[str, ...]
    tables: Mapping[str, Table] = field(default_factory=dict)
    settled: tuple[Fault, ...] = ()

    def all(self, kind: type[A]) -> tuple[A, ...]:
        """The actions of one kind."""
        return tuple(each for each in self.actions if isinstance(each, kind))

    @property
    def shown(self) -> tuple[Action, ...]:
        """The actions, less those about stages."""
        return tuple(each for each in self.actions if not is_stage(getattr(each, "view", "")))

    @property
    def lines(self) -> Iterator[str]:
        """The plan for people, a line for each thing."""
        for each in self.shown:
            yield from each.lines

    def as_data(self) -> dict[str, Any]:
        """The plan for programs."""
        actions = [{"action": each.action, **asdict(each)} for each in self.shown]
        return {"actions": actions, "warnings": list(self.warnings)}

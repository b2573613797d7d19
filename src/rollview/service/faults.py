"""What has stopped, and why. One fault stops one thing: the views that need it, and no others.

A site that cannot be captured, a table that has lost changes, a view that cannot be computed: each is written
down in the catalog, where `status` finds it, and told once as an event. Everybody else goes on, and what goes
on again is told, too.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from rollview.algebra.relation import Table
from rollview.algebra.view import View, owner
from rollview.catalog import Catalog, Fault
from rollview.errors import (
    CatalogError,
    JavaMissing,
    LakeDamaged,
    LakeMisfit,
    LakeUnavailable,
    NotRegistered,
    RollviewError,
    SourceChanged,
    SparkFailed,
    is_retryable,
)
from rollview.events import Events, Failed, Halted, Resumed, Retry
from rollview.service.attached import WAY_ON, KnowsViews, detached
from rollview.service.event_log import log_traceback
from rollview.service.views import Views
from rollview.sources.source import Loss
from rollview.spark.data_errors import is_data_error

Scope = Literal["site", "table", "view"]
TRUNCATED = "Truncated"
"""The kind of fault of a table that was emptied by TRUNCATE, or whose partitions came or went."""

RELOADING = "Reloading"
"""The kind of fault of a view that `run` has to load. It is over when the view is loaded, not before."""


@dataclass(frozen=True)
class Faults:
    """The faults of a project."""

    catalog: Catalog
    views: Views
    events: Events

    def halt(self, scope: Scope, name: str, error: Exception, csn: int = 0) -> None:
        """Something cannot go on; `csn` is the first that it cannot have, if that is known."""
        known = self.catalog.faults(scope).get(name)
        if known is not None and known.kind == RELOADING:
            return
        told = error_fields(error)
        message, hint = self.events.hide(told["message"]), self.events.hide(told.get("hint", ""))
        fault = Fault(scope, name, told["kind"], message, hint, csn)
        if self.catalog.note_fault(fault):
            self._tell(fault, told.get("trace", ""))

    def lose(self, losses: Mapping[str, Loss], csn: int) -> None:
        """Changes of tables are missing from a csn on."""
        known = self.catalog.faults("table")
        new = as_faults(losses, csn, self.catalog.tables())
        if any(not _covers(known.get(each.name), each) for each in new):
            self.catalog.note_losses(new)
            self.tell_losses(known)

    def tell_losses(self, known: Mapping[str, Fault]) -> None:
        """Tells of tables that have lost changes since these were known."""
        for name, fault in self.catalog.faults("table").items():
            if name not in known or known[name].columns != fault.columns:
                self._tell(fault)

    def resume(self, scope: Scope, names: Iterable[str]) -> None:
        """These go on; what had stopped among them is told."""
        stopped = self.catalog.faults(scope)
        for name in names:
            if name not in stopped or stopped[name].kind == RELOADING:
                continue
            if self.catalog.clear_fault(scope, name):
                self.events.emit(Resumed(scope, owner(name)))

    def stopped(self) -> dict[str, Fault]:
        """The views that cannot go on, stages included, each with what keeps it, its own or another's."""
        return stopped_views(self.catalog, self.views.all())

    def check_complete(self, tables: Iterable[Table]) -> None:
        """Refuses tables that have lost changes: what is read from them cannot be rolled any more."""
        lost = self.catalog.faults("table")
        for table in tables:
            if (fault := lost.get(table.qualified)) and fault.concerns(table):
                raise SourceChanged(fault.message, subject=table.qualified, hint=fault.hint)

    def check_reaches(self, view: View, csn: int) -> None:
        """Refuses a csn that a view can never have, because a table of it has lost changes before."""
        limit = self.limit(view)
        if limit is not None and limit < csn:
            self.check_complete(table for table in view.tables if table.source)

    def limit(self, view: View) -> int | None:
        """The last csn that a view can have, because a table of it has lost changes; None without limit."""
        lost = self.catalog.faults("table")
        found = [(lost.get(table.qualified), table) for table in view.tables if table.source]
        ends = [fault.csn - 1 for fault, table in found if fault and fault.concerns(table)]
        return min(ends, default=None)

    def _tell(self, fault: Fault, trace: str = "") -> None:
        told = Halted(
            fault.scope, owner(fault.name), fault.message, fault.kind, fault.hint, fault.csn, trace=trace
        )
        self.events.emit(told)


class KnowsFaults(KnowsViews, Protocol):
    """What is known of views, tables and what keeps them."""

    def faults(self, scope: str) -> Mapping[str, Fault]:
        """What keeps sites, tables or views from going on, by name."""


def stopped_views(known: KnowsFaults, views: Mapping[str, View]) -> dict[str, Fault]:
    """The views that cannot go on, stages included, each with what keeps it, its own or another's."""
    tables, sites = known.faults("table"), known.faults("site")
    found = dict(known.faults("view"))
    for name, view in views.items():
        is_reloading = name in found and found[name].kind == RELOADING
        if not is_reloading and (reason := detached(known, view)):
            found[name] = Fault("view", name, "HistoryBroken", reason, WAY_ON)
        for table in view.tables:
            fault = tables.get(table.qualified) if table.source else found.get(table.name)
            if fault is not None and (not table.source or fault.concerns(table)):
                found.setdefault(name, fault)
            if table.source and table.site in sites:
                found.setdefault(name, sites[table.site])
    return found


def as_faults(losses: Mapping[str, Loss], csn: int, tables: Iterable[str]) -> tuple[Fault, ...]:
    """The losses of captured tables, as faults."""
    captured = set(tables)
    return tuple(
        Fault(
            "table",
            name,
            TRUNCATED if loss.is_truncate else SourceChanged.__name__,
            loss.message,
            loss.hint,
            csn,
            columns=loss.columns,
        )
        for name, loss in losses.items()
        if name in captured
    )


def _covers(known: Fault | None, new: Fault) -> bool:
    """Whether a loss that is known says all that a new one says."""
    if known is None or new.csn < known.csn:
        return False
    return not known.columns or bool(new.columns and set(new.columns) <= set(known.columns))


def concerns_all(error: Exception) -> bool:
    """Whether an error is about what all views share: catalog, disk, Spark."""
    if isinstance(error, NotRegistered):
        return False
    return isinstance(error, CatalogError | LakeMisfit | LakeUnavailable | JavaMissing | SparkFailed)


def is_lasting(error: Exception) -> bool:
    """Whether the same work would fail again, however often it is tried, until somebody acts."""
    if isinstance(error, LakeDamaged) or is_data_error(error):
        return True
    return not is_retryable(error) or getattr(error, "waits_for_setup", False)


def report_retry(events: Events, what: str, attempt: int, pause_seconds: float, error: Exception) -> None:
    """Tells that work failed and is tried again."""
    told = Retry(what, attempt, pause_seconds, **error_fields(error))
    events.emit(told)
    if not told.trace:
        log_traceback(what, error, events.hide)


def report_failure(events: Events, what: str, error: Exception) -> None:
    """Tells that work failed and ends."""
    told = Failed(what, **error_fields(error))
    events.emit(told)
    if not told.trace:
        log_traceback(what, error, events.hide)


def error_fields(error: Exception) -> dict[str, Any]:
    """What an event says of an error."""
    kind = type(error).__name__
    if isinstance(error, RollviewError):
        return {"message": error.message, "kind": kind, "subject": error.subject, "hint": error.hint}
    trace = "" if is_retryable(error) else "".join(traceback.format_exception(error))
    return {"message": str(error).strip() or kind, "kind": kind, "trace": trace}

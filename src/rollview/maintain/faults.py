"""Faults: what has stopped, and why. One fault stops one thing: the views that need it, and no others.

A site that cannot be captured, a table that has lost changes, a view that cannot be computed: each is written
down in the catalog, where `status` finds it, and reported once as an event. Everything else continues, and
what continues after a fault is reported, too.
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
    UnrepresentableValue,
)
from rollview.events import Events, Failed, Halted, Resumed, Retry
from rollview.retryable import is_retryable
from rollview.runtime.event_log import log_traceback
from rollview.sources.source import Loss
from rollview.spark.data_errors import is_data_error
from rollview.views.resumable import WAY_ON, KnowsViews, detached
from rollview.views.views import Views

Scope = Literal["site", "table", "view"]
TRUNCATED = "Truncated"
"""The kind of fault of a table that was emptied by TRUNCATE, or whose partitions came or went."""

MISFIT = UnrepresentableValue.__name__
"""The kind of fault of a table with a row that Spark cannot represent. It is over when all its rows fit."""

_CORRECT = "correct the row at its source: the views that read the table then continue automatically"

RELOADING = "Reloading"
"""The kind of fault of a view that `run` has to load. It is over when the view is loaded, not before."""


@dataclass(frozen=True)
class Faults:
    """The faults of a project."""

    catalog: Catalog
    views: Views
    events: Events

    def halt(self, scope: Scope, name: str, error: Exception, csn: int = 0) -> None:
        """Something cannot continue; `csn` is the first that it cannot have, if that is known."""
        known = self.catalog.faults.of(scope).get(name)
        if known is not None and known.kind == RELOADING:
            return
        fields = error_fields(error)
        hide = self.events.hide if isinstance(error, RollviewError) else self.events.hide_foreign
        message, hint = hide(fields["message"]), hide(fields.get("hint", ""))
        fault = Fault(scope, name, fields["kind"], message, hint, csn)
        if self.catalog.faults.note(fault):
            self._report(fault, fields.get("trace", ""))

    def lose(self, losses: Mapping[str, Loss], csn: int) -> None:
        """Changes of tables are missing from a csn on."""
        known = self.catalog.faults.of("table")
        new = as_faults(losses, csn, self.catalog.captured.tables())
        if any(not _covers(known.get(each.name), each) for each in new):
            self.catalog.faults.note_losses(new)
            self.report_losses(known)

    def report_losses(self, known: Mapping[str, Fault]) -> None:
        """Reports tables that have lost changes since these were known."""
        for name, fault in self.catalog.faults.of("table").items():
            before = known.get(name)
            if before is None or (before.kind, before.columns) != (fault.kind, fault.columns):
                self._report(fault)

    def resume(self, scope: Scope, names: Iterable[str]) -> None:
        """These continue; those that had stopped are reported."""
        stopped = self.catalog.faults.of(scope)
        for name in names:
            if name not in stopped or stopped[name].kind == RELOADING:
                continue
            if self.catalog.faults.clear(scope, name):
                self.events.emit(Resumed(scope, owner(name)))

    def stopped(self) -> dict[str, Fault]:
        """The stopped views, stages included, each with the fault that stops it, its own or another's."""
        return stopped_views(self.catalog.now, self.views.all())

    def check_complete(self, tables: Iterable[Table]) -> None:
        """Refuses tables that have lost changes: what is read from them cannot be rolled any more."""
        lost = self.catalog.faults.of("table")
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
        lost = self.catalog.faults.of("table")
        found = [(lost.get(table.qualified), table) for table in view.tables if table.source]
        ends = [fault.csn - 1 for fault, table in found if fault and fault.concerns(table)]
        return min(ends, default=None)

    def _report(self, fault: Fault, trace: str = "") -> None:
        self.events.emit(
            Halted(
                fault.scope, owner(fault.name), fault.message, fault.kind, fault.hint, fault.csn, trace=trace
            )
        )


class KnowsFaults(KnowsViews, Protocol):
    """The views, their tables and faults."""

    def faults(self, scope: str) -> Mapping[str, Fault]:
        """The faults of sites, tables or views, by name."""


def stopped_views(known: KnowsFaults, views: Mapping[str, View]) -> dict[str, Fault]:
    """The stopped views, stages included, each with the fault that stops it, its own or another's."""
    tables, sites = known.faults("table"), known.faults("site")
    found = dict(known.faults("view"))
    for name, view in views.items():
        is_reloading = name in found and found[name].kind == RELOADING
        if not is_reloading and (reason := detached(known, view)):
            found[name] = Fault("view", name, "HistoryBroken", reason, WAY_ON)
        for table in view.tables:
            fault = tables.get(table.qualified) if table.source else found.get(table.name)
            if fault is not None and (not table.source or fault.concerns(table)):
                # A view that is to be loaded waits for its tables, too.
                if is_reloading and table.source:
                    found[name] = fault
                found.setdefault(name, fault)
            if table.source and table.site in sites:
                found.setdefault(name, sites[table.site])
    return found


def as_faults(losses: Mapping[str, Loss], csn: int, tables: Iterable[str]) -> tuple[Fault, ...]:
    """The losses of captured tables, as faults."""
    captured = set(tables)
    return tuple(_as_fault(name, loss, csn) for name, loss in losses.items() if name in captured)


def _as_fault(name: str, loss: Loss, csn: int) -> Fault:
    if loss.is_misfit:
        # The csn distinguishes one transaction with such a row from the next.
        return Fault("table", name, MISFIT, f"{loss.message} (csn {csn})", _CORRECT, csn)
    kind = TRUNCATED if loss.is_truncate else SourceChanged.__name__
    return Fault("table", name, kind, loss.message, loss.hint, csn, columns=loss.columns)


def _covers(known: Fault | None, new: Fault) -> bool:
    """Whether a loss that is known says all that a new one says."""
    if known is None or new.csn < known.csn or (known.kind == MISFIT and new.kind != MISFIT):
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
    """Reports that work failed and is retried."""
    event = Retry(what, attempt, pause_seconds, **error_fields(error))
    events.emit(event)
    if not event.trace:
        log_traceback(what, error, events.hide_foreign)


def report_failure(events: Events, what: str, error: Exception) -> None:
    """Reports that work failed and ends."""
    event = Failed(what, **error_fields(error))
    events.emit(event)
    if not event.trace:
        log_traceback(what, error, events.hide_foreign)


def error_fields(error: Exception) -> dict[str, Any]:
    """The fields of an error in an event."""
    kind = type(error).__name__
    if isinstance(error, RollviewError):
        return {"message": error.message, "kind": kind, "subject": error.subject, "hint": error.hint}
    trace = "" if is_retryable(error) else "".join(traceback.format_exception(error))
    return {"message": str(error).strip() or kind, "kind": kind, "trace": trace}

"""reload: views that cannot go on from where they stand are loaded anew, by `run` itself.

A view that met a row that it cannot compute goes on once the row is corrected, at the first csn at which it
can be computed again. Views that cannot pass a TRUNCATE, those over a table whose partitions came or went,
and those that ask for it (`rollview.on_loss`) over a table or a site that has lost changes, are loaded as
soon as that is noticed. What they were before can still be read; the gap in between cannot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from rollview.algebra.view import View, owner
from rollview.catalog import Fault
from rollview.errors import EvaluationError, LeaseHeld, LogLost, RollviewError, SourceChanged, TableTruncated
from rollview.service.definitions import is_full, reloads_on_loss
from rollview.service.faults import RELOADING, TRUNCATED, Faults, concerns_all, report_retry
from rollview.service.load import LoadDriver
from rollview.service.prepare_sources import SourcePreparation
from rollview.service.retry import Backoff

PATIENCE_SECONDS = 30.0


@dataclass(frozen=True)
class ReloadDriver:
    """Loads views again, with those that read them.

    `_tried` is how far it was tried in vain, by view; `_due` says when to try again.
    """

    faults: Faults
    load: LoadDriver
    sources: SourcePreparation
    _tried: dict[str, int] = field(default_factory=dict)
    _due: Backoff = field(default_factory=Backoff)

    def repair(self) -> None:
        """Loads views that could not be computed, where something has changed since."""
        for name, fault in self.faults.catalog.faults("view").items():
            if fault.kind != EvaluationError.__name__ or not self._has_changed(name, fault):
                continue
            self._tried[name] = self.faults.catalog.last_csn()
            with self._trying(("view", name), f"load {owner(name)}"):
                self.run([name], f"csn {fault.csn} could not be computed", fault.csn)
                del self._tried[name]
                self.faults.resume("view", [name])

    def after_truncations(self, failed: Mapping[str, Exception]) -> dict[str, Exception]:
        """Loads views that need what was there before a TRUNCATE; which of all that failed still stand."""
        stopped = {name: error for name, error in failed.items() if isinstance(error, TableTruncated)}
        for name, error in stopped.items():
            loss = Fault("table", error.subject, TRUNCATED, error.message, csn=error.csn)
            for fault in self._reloading([name], loss):
                self.faults.catalog.note_fault(fault)
        if stopped:
            self._load_begun()
        left = self._to_load()
        return {name: error for name, error in failed.items() if name not in stopped or name in left}

    def after_losses(self) -> None:
        """Loads views whose tables have lost changes, where it may be done without being asked."""
        views = self.faults.views
        for fault, tables in self._lost():
            readers = [name for name, view in views.all().items() if _reads(view, tables)]
            loaded = {
                name
                for name in readers
                if fault.kind == TRUNCATED or reloads_on_loss(views.named(owner(name)))
            }
            if loaded and self._due.is_due((fault.scope, fault.name)):
                with self._trying((fault.scope, fault.name), f"begin {fault.name} again"):
                    self.sources.begin_again(tables, self._reloading(loaded, fault))
        self._load_begun()

    def _reloading(self, names: Collection[str], loss: Fault) -> list[Fault]:
        """What is written down of views that are going to be loaded, with those that read them.

        Whatever happens then, whoever runs knows what is left to load.
        """
        views, hint = self.faults.views.all(), "`rollview run` loads it; until then it can be read as it is"
        found: dict[str, Fault] = {}
        for name, view in views.items():
            inputs = [table.name for table in view.tables if not table.source and table.name in found]
            if name in names or (inputs and not is_full(view)):
                why = loss.message if name in names else f"{owner(inputs[0])} is loaded anew"
                found[name] = Fault("view", name, RELOADING, why, hint, loss.csn)
        return list(found.values())

    def _load_begun(self) -> None:
        """Loads the views that are to be loaded, dependencies first; a load takes the fault away."""
        left = self._to_load()
        for name, view in self.faults.views.all().items():
            waits = any(table.name in left for table in view.tables if not table.source)
            if name in left and not waits and self._due.is_due(("load", name)):
                with self._trying(("load", name), f"load {owner(name)}"):
                    self._load(view, left[name].message)
                    del left[name]

    def _to_load(self) -> dict[str, Fault]:
        return {n: f for n, f in self.faults.catalog.faults("view").items() if f.kind == RELOADING}

    @contextmanager
    def _trying(self, key: tuple[str, str], what: str) -> Iterator[None]:
        """What fails is told, and tried again later; the fault stands until then."""
        try:
            yield
        except RollviewError as error:
            if concerns_all(error) and not isinstance(error, LeaseHeld):
                raise
            attempt, pause = self._due.failed(key, error)
            if pause < inf:
                report_retry(self.faults.events, what, attempt, pause, error)

    def _lost(self) -> Iterator[tuple[Fault, set[str]]]:
        """What has lost changes: tables, each for itself, or all of a site."""
        catalog = self.faults.catalog
        for name, fault in catalog.faults("table").items():
            yield fault, {name}
        for site, fault in catalog.faults("site").items():
            if fault.kind in (LogLost.__name__, SourceChanged.__name__):
                yield fault, {name for name, table in catalog.tables().items() if table.site == site}

    def run(self, names: Collection[str], reason: str, since: int | None = None) -> None:
        """Loads views, dependencies first; those that read them have to begin there, too."""
        loaded: set[str] = set()
        for name, view in self.faults.views.all().items():
            inputs = [table.name for table in view.tables if not table.source and table.name in loaded]
            if name not in names and not inputs:
                continue
            why = reason if name in names else f"{owner(inputs[0])} was loaded"
            self._load(view, why, since if name in names else None)
            loaded.add(name)

    def _load(self, view: View, reason: str, since: int | None = None) -> None:
        layout = self.faults.views.layout(view.name)
        self.load.run(view, layout, reason, PATIENCE_SECONDS, since=since)

    def _has_changed(self, name: str, fault: Fault) -> bool:
        catalog, view = self.faults.catalog, self.faults.views.named(name)
        after, last = max(self._tried.get(name, 0), fault.csn), catalog.last_csn()
        tables = [table for table in view.tables if table.source]
        return any(catalog.touched(table.qualified, after, last) for table in tables)


def _reads(view: View, tables: Collection[str]) -> bool:
    return not is_full(view) and any(table.qualified in tables for table in view.tables)

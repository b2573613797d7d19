"""reload: `run` reloads views that cannot continue.

A view with a row that it cannot compute continues once the row is corrected, at the first csn at which it can
be computed again. Views that cannot pass a TRUNCATE, those over a table whose partitions came or went,
and those that ask for it (`rollview.on_loss`) over a table or a site that has lost changes, are loaded as
soon as that is noticed. So are views over a table with a row that Spark could not represent, once all its
rows fit. Their former states can still be read; the gap in between cannot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from rollview.algebra.view import View, is_stage, owner
from rollview.catalog import Fault
from rollview.errors import EvaluationError, LeaseHeld, LogLost, RollviewError, SourceChanged, TableTruncated
from rollview.maintain.faults import MISFIT, RELOADING, TRUNCATED, Faults, concerns_all, report_retry
from rollview.maintain.load import LoadDriver
from rollview.maintain.retry import Backoff
from rollview.setup.prepare_sources import SourcePreparation
from rollview.views.properties import is_full, reloads_on_loss

PATIENCE_SECONDS = 30.0


@dataclass(frozen=True)
class ReloadDriver:
    """Loads views again, with those that read them.

    `_tried` has the csn of the last failed attempt, by view; `_misfits` the state of a table when its rows
    did not fit; `_due` when to try again.
    """

    faults: Faults
    load: LoadDriver
    sources: SourcePreparation
    _tried: dict[str, int] = field(default_factory=dict)
    _misfits: dict[str, str] = field(default_factory=dict)
    _due: Backoff = field(default_factory=Backoff)

    def repair(self) -> set[str]:
        """Loads views that could not be computed, if something has changed; returns the repaired ones."""
        repaired: set[str] = set()
        failed = dict[str, Fault]()
        for name, fault in self.faults.catalog.faults.of("view").items():
            if fault.kind == EvaluationError.__name__:
                failed.setdefault(owner(name), fault)
        for name, fault in failed.items():
            if not self._has_changed(fault):
                continue
            self._tried[name] = self._reach(name)
            parts = [part for part in self.faults.views.all() if owner(part) == name]
            with self._trying(("view", name), f"load {name}"):
                self.run(parts, f"csn {fault.csn} could not be computed", fault.csn)
                del self._tried[name]
                self.faults.resume("view", parts)
                repaired |= set(parts)
        return repaired

    def after_truncations(self, failed: Mapping[str, Exception]) -> dict[str, Exception]:
        """Loads views that need rows from before a TRUNCATE; returns the failures that remain."""
        stopped = {name: error for name, error in failed.items() if isinstance(error, TableTruncated)}
        for name, error in stopped.items():
            loss = Fault("table", error.subject, TRUNCATED, error.message, csn=error.csn)
            for fault in self._reloading([name], loss):
                self.faults.catalog.faults.note(fault)
        if stopped:
            self._load_begun()
        left = self._to_load()
        return {name: error for name, error in failed.items() if name not in stopped or name in left}

    def after_losses(self) -> None:
        """Loads views whose tables have lost changes, where that is allowed without a command."""
        views = self.faults.views
        for fault, tables in self._lost():
            if fault.kind == MISFIT:
                continue
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

    def after_misfits(self) -> None:
        """Loads the views of tables with a row that could not be represented, where all rows fit now.

        Their rows are read only if they may have changed: the change that corrects such a row is lost like
        the row itself, because it contains the old row, or it is a TRUNCATE. The views first reach the csn
        before.
        """
        catalog, views = self.faults.catalog, self.faults.views
        for name, fault in catalog.faults.of("table").items():
            state = f"{fault.message} {len(catalog.history.truncations([name], fault.csn))}"
            if fault.kind != MISFIT or self._misfits.get(name) == state:
                continue
            readers = {each for each, view in views.all().items() if _reads(view, {name})}
            behind = readers - catalog.faults.of("view").keys()
            if any(catalog.views.high_water(each) < fault.csn - 1 for each in behind):
                continue
            if self._due.is_due(("table", name)):
                with self._trying(("table", name), f"read {name}"), self.load.snapshots.scratch() as folder:
                    if self.sources.fits(name, folder):
                        self.sources.begin_again([name], self._reloading(readers, fault))
                        self._load_begun()
                    self._misfits[name] = state

    def _reloading(self, names: Collection[str], loss: Fault) -> list[Fault]:
        """The faults to record for views that are going to be loaded, with their readers.

        After a crash, the next `run` knows from them what is left to load.
        """
        views, hint = self.faults.views.all(), "`rollview run` loads it; until then it can be read as it is"
        found: dict[str, Fault] = {}
        for name, view in views.items():
            inputs = [table.name for table in view.tables if not table.source and table.name in found]
            if name in names or (inputs and not is_full(view)):
                why = loss.message if name in names else f"{owner(inputs[0])} is reloaded"
                found[name] = Fault("view", name, RELOADING, why, hint, loss.csn)
        return list(found.values())

    def _load_begun(self) -> None:
        """Loads the views that are to be loaded, dependencies first; a load takes the fault away."""
        left = self._to_load()
        for name, view in self.faults.views.all().items():
            waits = any(table.name in left for table in view.tables if not table.source)
            if name in left and not waits and not self._has_misfit(view) and self._due.is_due(("load", name)):
                with self._trying(("load", name), f"load {owner(name)}"):
                    self._load(view, left[name].message)
                    del left[name]

    def _has_misfit(self, view: View) -> bool:
        """Whether a table has a row that does not fit: until that is repaired the view cannot be loaded."""
        found = self.faults.catalog.faults.of("table")
        known = [(found.get(table.qualified), table) for table in view.tables if table.source]
        return any(fault and fault.kind == MISFIT and fault.concerns(table) for fault, table in known)

    def _to_load(self) -> dict[str, Fault]:
        return {n: f for n, f in self.faults.catalog.faults.of("view").items() if f.kind == RELOADING}

    @contextmanager
    def _trying(self, key: tuple[str, str], what: str) -> Iterator[None]:
        """Reports failures, to be retried later; the fault remains until then."""
        try:
            yield
        except RollviewError as error:
            if concerns_all(error) and not isinstance(error, LeaseHeld):
                raise
            attempt, pause = self._due.failed(key, error)
            if pause < inf:
                report_retry(self.faults.events, what, attempt, pause, error)

    def _lost(self) -> Iterator[tuple[Fault, set[str]]]:
        """The tables that have lost changes, one by one, or all of a site."""
        catalog = self.faults.catalog
        for name, fault in catalog.faults.of("table").items():
            yield fault, {name}
        for site, fault in catalog.faults.of("site").items():
            if fault.kind in (LogLost.__name__, SourceChanged.__name__):
                yield fault, {name for name, table in catalog.captured.tables().items() if table.site == site}

    def run(self, names: Collection[str], reason: str, since: int | None = None) -> None:
        """Loads views, dependencies first, with their readers.

        A stage is loaded as it is now: its rows at a csn that could not be computed are of no use to the
        view, and cannot be rolled over.
        """
        loaded: set[str] = set()
        for name, view in self.faults.views.all().items():
            inputs = [table.name for table in view.tables if not table.source and table.name in loaded]
            if name not in names and not inputs:
                continue
            why = reason if name in names else f"{owner(inputs[0])} was loaded"
            self._load(view, why, since if name in names and not is_stage(name) else None)
            loaded.add(name)

    def _load(self, view: View, reason: str, since: int | None = None) -> None:
        layout = self.faults.views.layout(view.name)
        self.load.run(view, layout, reason, PATIENCE_SECONDS, since=since)

    def _has_changed(self, fault: Fault) -> bool:
        """Whether the tables of a view, through stages and other views as well, have changed since."""
        catalog, name = self.faults.catalog, owner(fault.name)
        after, last = max(self._tried.get(name, 0), fault.csn), self._reach(name)
        tables = self.faults.views.base_tables(fault.name)
        return any(catalog.history.touched(table, after, last) for table in tables)

    def _reach(self, name: str) -> int:
        """How far a view can be loaded: the views that it reads may lag behind."""
        catalog, views = self.faults.catalog, self.faults.views.all()
        parts = [view for part, view in views.items() if owner(part) == name]
        read = [table.name for view in parts for table in view.tables if not table.source]
        reached = [catalog.views.high_water(each) for each in read if owner(each) != name]
        return min([catalog.history.last_csn(), *reached])


def _reads(view: View, tables: Collection[str]) -> bool:
    return not is_full(view) and any(table.qualified in tables for table in view.tables)

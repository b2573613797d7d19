"""Keeping the lake small: logs are compacted and pruned, ranges of view deltas condensed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from rollview.algebra.history import CSN
from rollview.algebra.net_effect import Range
from rollview.algebra.net_effect import condense as net_effect_of_range
from rollview.catalog import Catalog, Condensed, CondenseStep, Lease, MaintainStep, Retained
from rollview.config.project_file import Retention
from rollview.config.results import CondenseResult
from rollview.errors import InputError, RollviewError
from rollview.events import Events, Maintained
from rollview.lake import Commit, FileLayout, LakeTable
from rollview.maintain.apply import LEASE as APPLY
from rollview.maintain.apply import ApplyDriver
from rollview.maintain.capture import LEASE as CAPTURE
from rollview.maintain.capture import CaptureDriver
from rollview.maintain.faults import concerns_all
from rollview.maintain.propagate import PropagateDriver
from rollview.storage.lake_tables import LakeTables
from rollview.storage.stored_view import StoredViews
from rollview.upkeep.valid_times import needed_by_views, passed_by
from rollview.views.views import Views

# Exclusive access to logs, after unfinished steps in them were finished.

PATIENCE_SECONDS = 5.0


@dataclass(frozen=True)
class ExclusiveAccess:
    """Takes leases and finishes the steps that were begun under them."""

    catalog: Catalog
    views: Views
    capture: CaptureDriver
    propagate: PropagateDriver
    apply: ApplyDriver

    @contextmanager
    def to_change_logs(self) -> Iterator[Lease]:
        """Keeps others from capturing."""
        with self.catalog.lease(CAPTURE, PATIENCE_SECONDS) as lease:
            self.capture.recover(lease)
            yield lease

    @contextmanager
    def to_view(self, name: str) -> Iterator[Lease]:
        """Keeps others from propagating or applying the view, and finishes interrupted steps."""
        catalog = self.catalog
        with (
            catalog.lease(f"propagate:{name}", PATIENCE_SECONDS) as lease,
            catalog.lease(APPLY, PATIENCE_SECONDS) as applying,
        ):
            self.apply.recover(applying)
            self.propagate.recover(lease, self.views.named(name))
            yield lease


CHANGES = "(changes)"
"""The subject of steps that maintain all change logs; no view can have this name."""

MANY_FILES = 32
"""A log with more small files than this is compacted."""


@dataclass(frozen=True)
class MaintainDriver:
    """Compacts and prunes change logs and view deltas."""

    catalog: Catalog
    tables: LakeTables
    views: Views
    access: ExclusiveAccess
    retention: Retention
    events: Events

    def run(self) -> dict[str, int]:
        """Compacts and prunes whatever is due; returns what was done, by table.

        A failure for one view does not stop the others; the first error is raised at the end.
        """
        now = self.catalog.watched_time()
        done: dict[str, int] = {}
        failed: list[RollviewError] = []
        works: list[Callable[[float], dict[str, int]]]
        works = [self._maintain_changes, *(partial(self._maintain_view, name) for name in self.views.all())]
        for work in works:
            try:
                done |= work(now)
            except RollviewError as error:
                if concerns_all(error):
                    raise
                failed.append(error)
        if failed:
            raise failed[0]
        return done

    def _maintain_changes(self, now: float) -> dict[str, int]:
        catalog = self.catalog
        done: dict[str, int] = {}
        with self.access.to_change_logs() as lease:
            for unfinished in catalog.steps.pending(MaintainStep, CHANGES):
                catalog.steps.abandon(lease, unfinished)
            tables = catalog.captured.tables()
            kept_since = catalog.history.csn_at(now - self.retention.changes)
            upto = min(kept_since, needed_by_views(catalog, self.views))
            step = catalog.steps.begin(lease, CHANGES, MaintainStep(upto))
            for name, table in tables.items():
                log = self.tables.change_log(table)
                commit = self.tables.signed("prune", step.id, catalog.history.last_csn(), "prune")
                done |= self._shrink(log, f"changes/{name}", upto, commit)
                log.vacuum(self.retention.files, now)
            catalog.steps.finish(lease, step)
            records = catalog.views.all()
            oldest = [record.oldest_csn for record in records.values()]
            oldest += [span.record.oldest_csn for name in records for span in catalog.views.spans(name)]
            catalog.history.prune(min([upto, *oldest]))
        return done

    def _maintain_view(self, name: str, now: float) -> dict[str, int]:
        catalog = self.catalog
        with self.access.to_view(name) as lease:
            for unfinished in catalog.steps.pending(MaintainStep, name):
                catalog.steps.abandon(lease, unfinished)
            for interrupted in catalog.steps.pending(CondenseStep, name):
                catalog.steps.abandon(lease, interrupted)
            record = catalog.views.get(name)
            kept_since = catalog.history.csn_at(now - self.retention.deltas)
            passed = [passed_by(catalog, each) for each in (name, *self._readers(name))]
            for each in catalog.consumers.of(name):
                is_here = each.generation == record.generation
                passed.append(each.csn if is_here else record.oldest_csn)
            upto = min([kept_since, *passed])
            oldest = max(upto, record.oldest_csn)
            step = catalog.steps.begin(lease, name, MaintainStep(oldest))
            # First the range becomes unreadable, then its rows are deleted.
            catalog.steps.finish(lease, step, Retained(name, oldest))
            tables = self.tables.of_view(name, record.generation)
            commit = self.tables.signed("prune", step.id, catalog.views.high_water(name), "prune")
            done = {}
            if tables.deltas.exists():
                done = self._shrink(tables.deltas, f"deltas/{name}", oldest, commit)
            self._clear(name, record.generation, now)
        return done

    def _clear(self, name: str, generation: int, now: float) -> None:
        """Deletes files and tables that no readable version needs, neither now nor from before a reload."""
        self.catalog.views.forget_spans(name, now - self.retention.deltas)
        spans = self.catalog.views.spans(name)
        rows, *others = self.tables.of_view(name, generation)
        if rows.exists():
            rows.vacuum(self.retention.files, now, [span.record.lake_version for span in spans])
        for table in others:
            if table.exists():
                table.vacuum(self.retention.files, now)
        kept = [generation, *(span.record.generation for span in spans)]
        self.tables.drop_generations(name, kept, before=now - self.retention.files)

    def _shrink(self, table: LakeTable, name: str, upto: int, pruning: Commit) -> dict[str, int]:
        """Prunes a log up to a csn, and compacts it if it has many files; what was done."""
        done: dict[str, int] = {}
        if dropped := table.prune(upto, pruning):
            done[f"{name}: rows pruned"] = dropped
            self.events.emit(Maintained(name, "rows pruned", dropped))
        if len(table.files()) > MANY_FILES:
            before = len(table.files())
            compacting = replace(pruning, writer=self.tables.writer("compact"), operation="compact")
            if table.compact(compacting) is not None:
                fewer = done[f"{name}: files compacted"] = before - len(table.files())
                self.events.emit(Maintained(name, "files compacted", fewer))
        return done

    def _readers(self, name: str) -> list[str]:
        return [
            other
            for other, view in self.views.all().items()
            if any(table.qualified == name for table in view.tables)
        ]


# condense: a range of the view delta, replaced by its net effect (beyer2000 §5: condensing).
#
# All changes after the range's start up to its end get the csn of its end; changes that cancel are gone.
# States strictly inside the range can then no longer be read, so no position may be there.


@dataclass(frozen=True)
class CondenseDriver:
    """Condenses view deltas."""

    catalog: Catalog
    tables: LakeTables
    views: Views
    stored: StoredViews
    access: ExclusiveAccess

    def run(self, name: str, after: int, upto: int) -> CondenseResult:
        """Condenses the view delta for after < csn ≤ upto."""
        catalog = self.catalog
        if upto <= after:
            message = f"csn {after} to {upto} is not a valid range"
            raise InputError(message, subject=name, hint="--from comes before --to")
        with self.access.to_view(name) as lease:
            self._check_free(name, after, upto)
            table = self.tables.of_view(name, catalog.views.get(name).generation).deltas
            files = table.files(csn=(after, upto))
            before = sum(file.rows for file in files)
            if not files:
                return CondenseResult(name, 0, 0, 0, 0)
            stored = self.stored.open(name)
            rows = stored.delta_of(files)
            condensed = net_effect_of_range(stored.view.root, rows, Range(after, upto), CSN)
            total = stored.layout.typed(condensed, CSN).materialized()
            step = catalog.steps.begin(lease, name, CondenseStep(after, upto))
            catalog.steps.finish(lease, step, Condensed(name, after, upto))
            reason = f"condense csn {after} to {upto}"
            commit = self.tables.signed("condense", step.id, catalog.views.high_water(name), reason)
            size = sum(file.size for file in table.files())
            table.replace(files, [total.rows()], commit, FileLayout((CSN,), expected_rows=before))
            left = sum(file.size for file in table.files())
            return CondenseResult(name, before, int(total.table().num_rows), size, left)

    def _check_free(self, name: str, after: int, upto: int) -> None:
        """Refuses if the view is strictly inside the range, or a view that reads it has not passed it."""
        catalog = self.catalog
        shown = catalog.views.get(name).materialized_csn
        if after < shown < upto:
            hint = f"condense up to csn:{shown}, or from there on"
            raise InputError(f"the stored view is at csn {shown}, inside the range", subject=name, hint=hint)
        for consumer in catalog.consumers.of(name):
            if after < consumer.csn < upto:
                message = f"consumer {consumer.name} is at csn {consumer.csn}, inside the range"
                hint = f"condense up to csn:{consumer.csn}, or from there on"
                raise InputError(message, subject=consumer.name, hint=hint)
        for other, reader in self.views.all().items():
            if not any(table.qualified == name for table in reader.tables):
                continue
            # `propagate` makes its delta inside the range, and `verify` recomputes it there, from this one.
            passed = min(
                [*catalog.views.positions(other).values(), catalog.views.get(other).materialized_csn]
            )
            if passed < upto:
                message = f"view {other}, which reads {name}, is at csn {passed}, before the end of the range"
                hint = f"refresh {other}, or condense up to csn:{passed}"
                raise InputError(message, subject=other, hint=hint)

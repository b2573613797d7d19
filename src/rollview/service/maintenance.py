"""Keeping the lake small: logs are compacted, and pruned once no view needs them and their time is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from rollview.catalog import Catalog, CondenseStep, MaintainStep, Retained
from rollview.errors import RollviewError
from rollview.events import Events, Maintained
from rollview.lake import Commit, LakeTable
from rollview.service.exclusive_access import ExclusiveAccess
from rollview.service.faults import concerns_all
from rollview.service.lake_tables import LakeTables
from rollview.service.project_file import Retention
from rollview.service.views import Views

CHANGES = "(changes)"
"""The subject of steps that look after all change logs; no view can have this name."""

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

        What fails for one view keeps the others from nothing; the first error comes out at the end.
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
            for unfinished in catalog.pending(MaintainStep, CHANGES):
                catalog.abandon(lease, unfinished)
            tables = catalog.tables()
            kept_since = catalog.csn_at(now - self.retention.changes)
            upto = min(kept_since, needed_by_views(catalog, self.views))
            step = catalog.begin(lease, CHANGES, MaintainStep(upto))
            for name, table in tables.items():
                log = self.tables.change_log(table)
                commit = self.tables.signed("prune", step.id, catalog.last_csn(), "prune")
                done |= self._shrink(log, f"changes/{name}", upto, commit)
                log.vacuum(self.retention.files, now)
            catalog.finish(lease, step)
            records = catalog.views()
            oldest = [record.oldest_csn for record in records.values()]
            oldest += [span.record.oldest_csn for name in records for span in catalog.spans(name)]
            catalog.prune_history(min([upto, *oldest]))
        return done

    def _maintain_view(self, name: str, now: float) -> dict[str, int]:
        catalog = self.catalog
        with self.access.to_view(name) as lease:
            for unfinished in catalog.pending(MaintainStep, name):
                catalog.abandon(lease, unfinished)
            for interrupted in catalog.pending(CondenseStep, name):
                catalog.abandon(lease, interrupted)
            record = catalog.view(name)
            kept_since = catalog.csn_at(now - self.retention.deltas)
            passed = [_passed(catalog, each) for each in (name, *self._readers(name))]
            for each in catalog.consumers.of(name):
                is_here = each.generation == record.generation
                passed.append(each.csn if is_here else record.oldest_csn)
            upto = min([kept_since, *passed])
            oldest = max(upto, record.oldest_csn)
            step = catalog.begin(lease, name, MaintainStep(oldest))
            # First nobody may ask for what is about to go, then it goes.
            catalog.finish(lease, step, Retained(name, oldest))
            tables = self.tables.of_view(name, record.generation)
            commit = self.tables.signed("prune", step.id, catalog.high_water(name), "prune")
            done = {}
            if tables.deltas.exists():
                done = self._shrink(tables.deltas, f"deltas/{name}", oldest, commit)
            self._clear(name, record.generation, now)
        return done

    def _clear(self, name: str, generation: int, now: float) -> None:
        """Deletes files and tables that no version needs which can be read, of now or of an earlier span."""
        self.catalog.forget_spans(name, now - self.retention.deltas)
        spans = self.catalog.spans(name)
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
        """The views that read a view."""
        return [
            other
            for other, view in self.views.all().items()
            if any(table.qualified == name for table in view.tables)
        ]


def needed_by_views(catalog: Catalog, views: Views) -> int:
    """No change log may lose what a position of any view has not passed, or what a view shows."""
    return min((_passed(catalog, name) for name in views.all()), default=0)


def _passed(catalog: Catalog, name: str) -> int:
    """What a view has behind it: neither its propagation nor a recomputation of what it shows reads it."""
    return min([*catalog.positions(name).values(), catalog.view(name).materialized_csn])

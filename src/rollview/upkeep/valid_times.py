"""The valid time of stored views and of base tables (beyer2000 §6), for `status`, `query` and the API alike.

A state of a view is valid from the last change that affected it until the next one. The change log has the
changes of its tables; its own delta says more precisely when it changed. Inside a condensed range the delta
says nothing; where a history was pruned or began again, nothing is known about earlier times, and where
changes of a table are missing, nothing about later ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rollview.algebra.history import CSN
from rollview.algebra.valid_time import Readable, ValidTime
from rollview.storage.points_in_time import Covered
from rollview.views.properties import is_full
from rollview.views.resumable import histories_of

if TYPE_CHECKING:
    from rollview.algebra.net_effect import Range
    from rollview.algebra.relation import Table
    from rollview.catalog import Catalog
    from rollview.storage.stored_view import StoredViews
    from rollview.views.views import Views


@dataclass(frozen=True)
class ValidTimes:
    """Intervals of csn in which tables and views stay as they are."""

    catalog: Catalog
    views: Views
    stored: StoredViews

    def of_tables(self, tables: Sequence[str], csn: int) -> ValidTime:
        """From the last change of any of the tables up to a csn to the first one after it."""
        last, lost = self.catalog.history.last_csn(), self.catalog.faults.of("table")
        since = self.catalog.history.last_csn_touching(tables, csn) if tables else 0
        ends = [lost[table].csn for table in tables if table in lost]
        if since is None or any(end <= csn for end in ends):
            return ValidTime(csn, csn + 1)
        if any(self.catalog.history.touched(table, csn, last) for table in tables):
            ends.append(self.catalog.history.next_csn_touching(tables, csn, 1))
        return ValidTime(since, min(ends, default=None))

    def of_view(self, name: str, csn: int) -> ValidTime:
        """The same for a view at a readable csn; more precise where its delta covers it."""
        if not self._continues(name):
            return ValidTime(csn, csn + 1)
        around, covered = self.of_tables(self.views.base_tables(name), csn), self.stored.covered(name)
        if is_full(self.views.named(name)) or not covered.oldest <= csn <= covered.newest:
            return around
        condensed = self.catalog.views.condensed(name)
        since = max([self._since(name, csn, covered), *(each.upto for each in condensed if each.upto <= csn)])
        until = self._until(name, csn, covered)
        ends = [each.after + 1 for each in condensed if each.after >= csn]
        end = min([each for each in (until, *ends) if each is not None], default=None)
        open_end = end is None or around.end is None
        return ValidTime(min(since, around.start), None if open_end else max(end or 0, around.end or 0))

    def _since(self, name: str, csn: int, covered: Covered) -> int:
        """The last change up to a csn in the delta of a view."""
        files = self.stored.delta_files(name, covered.oldest, csn)
        if not files:
            return self.of_tables(self.views.base_tables(name), covered.oldest).start
        # A file that ends later may contain the last change; more is not known about it.
        return max(min(int(file.maximum.get(CSN, csn)), csn) for file in files)

    def _until(self, name: str, csn: int, covered: Covered) -> int | None:
        """The first change after a csn in the delta of a view, or of its tables behind that."""
        files = self.stored.delta_files(name, csn, covered.newest)
        if not files:
            return self.of_tables(self.views.base_tables(name), covered.newest).end
        return min(max(int(file.minimum.get(CSN, csn + 1)), csn + 1) for file in files)

    def readable(self, name: str) -> tuple[Readable, ...]:
        """The readable csn ranges of a view, each with the valid time around it."""
        covered, record = self.stored.covered(name), self.views.record(name)
        condensed = [] if is_full(self.views.named(name)) else self.catalog.views.condensed(name)
        found = [self._stretch(name, each) for each in _stretches(covered, condensed)]
        for span in self.catalog.views.spans(name):
            # The same definition, before a reload.
            if (span.record.digest, span.record.columns) == (record.digest, record.columns):
                then = Covered(span.record.oldest_csn, min(span.upto_csn, covered.oldest - 1))
                found += [_only(each) for each in _stretches(then, condensed)]
        return tuple(sorted(found, key=lambda each: each.first))

    def _stretch(self, name: str, each: Covered) -> Readable:
        if not self._continues(name):
            return _only(each)
        tables = self.views.base_tables(name)
        valid = ValidTime(self.of_tables(tables, each.oldest).start, self.of_tables(tables, each.newest).end)
        return Readable(each.oldest, each.newest, valid)

    def of_relation(self, table: Table, known_since: int | None = None) -> Readable:
        """A base table is readable from the csn on from which all its changes are known and kept.

        Those are changes that views may still need. Where its columns are known to be captured since a csn,
        changes that no view needs and that are kept all the same count as well.
        """
        records, name = self.catalog.views.all(), table.qualified
        if known_since is not None:
            began = max(known_since, self.catalog.captured.histories()[name].origin_csn)
            since = self.stored.tables.changes_kept_since(table, began)
            return Readable(since, self.catalog.history.last_csn(), ValidTime(since))
        readers = [
            record.loaded_csn
            for each, record in records.items()
            if any(read.qualified == name for read in self.views.named(each).tables)
        ]
        kept = max(needed_by_views(self.catalog, self.views), min(readers, default=0))
        since = max(kept, self.catalog.captured.histories()[name].origin_csn)
        return Readable(since, self.catalog.history.last_csn(), ValidTime(since))

    def _continues(self, name: str) -> bool:
        """Whether the tables of a view still have the history that it was computed from."""
        view, record = self.views.named(name), self.views.record(name)
        now = histories_of(view, self.catalog.now)
        is_same = all(record.histories.get(each, history) == history for each, history in now.items())
        below = [table.name for table in view.tables if not table.source]
        return is_same and all(now.values()) and all(self._continues(each) for each in below)


def _only(each: Covered) -> Readable:
    """A range from before a reload: its valid time is not known beyond it."""
    return Readable(each.oldest, each.newest, ValidTime(each.oldest, each.newest + 1))


def _stretches(covered: Covered, condensed: Sequence[Range]) -> list[Covered]:
    """The covered range, without the csn strictly inside condensed ranges."""
    found, oldest = [], covered.oldest
    for each in condensed:
        if each.upto <= oldest or each.after >= covered.newest:
            continue
        if each.after >= oldest:
            found.append(Covered(oldest, each.after))
        oldest = each.upto
    return [*found, Covered(oldest, covered.newest)] if oldest <= covered.newest else found


def needed_by_views(catalog: Catalog, views: Views) -> int:
    """The csn up to which change logs may be pruned: no view needs their changes up to it."""
    return min((passed_by(catalog, name) for name in views.all()), default=0)


def passed_by(catalog: Catalog, name: str) -> int:
    """The csn that a view has passed: neither its propagation nor a recomputation needs changes up to it."""
    return min([*catalog.views.positions(name).values(), catalog.views.get(name).materialized_csn])

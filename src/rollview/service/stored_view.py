"""A stored view, read at any csn that its delta covers.

The state at a csn is the stored one, less what was applied too far, plus what has not been applied yet:
the one idea again. What is read is pinned by the catalog's record, so that an apply in between changes
nothing for the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rollview.algebra.bag import keep
from rollview.algebra.expression import Column
from rollview.algebra.history import CSN
from rollview.algebra.view import View
from rollview.catalog import Catalog, ViewRecord
from rollview.lake import LakeFile, LakeTable
from rollview.service.definitions import is_full
from rollview.service.lake_rows import read_files, read_range
from rollview.service.lake_tables import LakeTables
from rollview.service.layout import Layout
from rollview.service.points_in_time import Covered, check_covered
from rollview.service.session import Session
from rollview.service.views import Views
from rollview.spark import SparkBag


@dataclass(frozen=True)
class StoredViews:
    """All stored views, to be opened by name."""

    catalog: Catalog
    tables: LakeTables
    views: Views
    session: Session

    def open(self, name: str) -> StoredView:
        """The view as it is stored now."""
        view, record = self.views.named(name), self.views.record(name)
        for table in (self.tables.view_table(name), self.tables.delta_table(name)):
            self.tables.check_no_external_writes(table)
        return StoredView(self, view, record, Layout.of_record(view, record))

    def covered(self, name: str) -> Covered:
        """The csn that a view can be read at; a view without a delta only at the one it shows."""
        record = self.views.record(name)
        if is_full(self.views.named(name)):
            return Covered(record.materialized_csn, record.materialized_csn)
        return Covered(record.oldest_csn, self.catalog.high_water(name))


@dataclass(frozen=True)
class StoredView:
    """A view as the catalog recorded it at one moment."""

    stored: StoredViews
    view: View
    record: ViewRecord
    layout: Layout

    def files(self, holding: tuple[str, Sequence[Any]] | None = None) -> tuple[LakeFile, ...]:
        """The files of the stored state; with `holding` those that may have one of the values."""
        version = self._table.same_rows(self.record.lake_version)
        return self._table.files(holding=holding, version=version)

    def rows(self, files: Sequence[LakeFile] | None = None) -> SparkBag:
        """The stored rows, with all columns of the table."""
        return read_files(self.stored.session, self._table, self.files() if files is None else files)

    def state(self, files: Sequence[LakeFile] | None = None) -> SparkBag:
        """The stored state."""
        return self.layout.to_state(self.rows(files))

    def delta(self, after: int, upto: int) -> SparkBag:
        """The view delta for after < csn ≤ upto: the state's columns and `_csn`."""
        return read_range(self.stored.session, self._delta_table, after, upto)

    def delta_of(self, files: Sequence[LakeFile]) -> SparkBag:
        """The part of the view delta that whole files hold."""
        names = [name for name, _ in self.layout.state]
        return read_files(self.stored.session, self._delta_table, files).project(keep((*names, CSN)))

    def state_at(self, csn: int) -> SparkBag:
        """The state at any csn that the view covers."""
        shown = self.record.materialized_csn
        if csn == shown:
            return self.state()
        self.check_covered(csn)
        delta = self.delta(min(shown, csn), max(shown, csn))
        return self.view.root.roll(self.state(), delta if csn > shown else delta.negate())

    def check_covered(self, csn: int) -> None:
        """Refuses a csn that the view cannot be rolled to: whatever came out would not be a state of it."""
        name = self.view.name
        check_covered(self.stored.catalog, name, csn, self.stored.covered(name), "rolled to")

    def rows_at(self, csn: int) -> SparkBag:
        """What a reader sees at a csn, as a bag."""
        return self.view.root.present(self.layout.typed(self.state_at(csn)))

    def shown_rows(self) -> SparkBag:
        """What a reader sees now, as a bag: the reader's columns of the table, where it has them."""
        if self.layout.shows_rows:
            return self.rows().project(keep([name for name, _ in self.layout.columns]))
        return self.rows_at(self.record.materialized_csn)

    def row_delta(self, after: int, upto: int) -> SparkBag:
        """What each transaction did to the rows that a reader sees: the reader's columns and `_csn`."""
        delta = self.delta(after, upto)
        changed = self.view.root.row_delta(self.state_at(after), delta, after)
        names = [name for name, _ in self.layout.columns]
        return changed.project((*keep(names), (CSN, Column(CSN))))

    @property
    def _table(self) -> LakeTable:
        return self.stored.tables.view_table(self.view.name)

    @property
    def _delta_table(self) -> LakeTable:
        return self.stored.tables.delta_table(self.view.name)

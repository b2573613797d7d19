"""A stored view, read at any csn that its delta covers.

The state at a csn is the stored one, less what was applied too far, plus what has not been applied yet:
the one idea again. What is read is pinned by the catalog's record, so that an apply in between changes
nothing for the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rollview.algebra.bag import COUNT, keep
from rollview.algebra.expression import Column
from rollview.algebra.history import CSN
from rollview.algebra.view import View
from rollview.catalog import ViewRecord
from rollview.lake import LakeFile, LakeTable
from rollview.service.definitions import is_full
from rollview.service.layout import Layout
from rollview.service.points_in_time import Covered, check_covered
from rollview.service.warehouse import Warehouse
from rollview.spark import SparkBag
from rollview.spark.bag import DRIVER_ROWS


@dataclass(frozen=True)
class StoredView:
    """A view as the catalog recorded it at one moment."""

    warehouse: Warehouse
    view: View
    record: ViewRecord
    layout: Layout

    @classmethod
    def open(cls, warehouse: Warehouse, name: str) -> StoredView:
        """The view as it is stored now."""
        view, record = warehouse.view(name), warehouse.record(name)
        for table in (warehouse.view_table(name), warehouse.delta_table(name)):
            warehouse.check_no_external_writes(table)
        return cls(warehouse, view, record, Layout.of_record(view, record))

    def files(self, holding: tuple[str, Sequence[Any]] | None = None) -> tuple[LakeFile, ...]:
        """The files of the stored state; with `holding` those that may have one of the values."""
        table = self.warehouse.view_table(self.view.name)
        return table.files(holding=holding, version=self.record.lake_version)

    def rows(self, files: Sequence[LakeFile] | None = None) -> SparkBag:
        """The stored rows, with all columns of the table."""
        table = self.warehouse.view_table(self.view.name)
        return read_files(self.warehouse, table, self.files() if files is None else files)

    def state(self, files: Sequence[LakeFile] | None = None) -> SparkBag:
        """The stored state."""
        return self.layout.to_state(self.rows(files))

    def delta(self, after: int, upto: int) -> SparkBag:
        """The view delta for after < csn ≤ upto: the state's columns and `_csn`."""
        table = self.warehouse.delta_table(self.view.name)
        return read_range(self.warehouse, table, after, upto)

    def state_at(self, csn: int) -> SparkBag:
        """The state at any csn that the view covers."""
        shown = self.record.materialized_csn
        if csn == shown:
            return self.state()
        self.check_covered(csn)
        delta = self.delta(min(shown, csn), max(shown, csn))
        return self.view.root.roll(self.state(), delta if csn > shown else delta.negate())

    def check_covered(self, csn: int) -> None:
        """Refuses a csn that the view cannot be rolled to: whatever came out would be no state of it."""
        name = self.view.name
        check_covered(self.warehouse.catalog, name, csn, covered(self.warehouse, name), "rolled to")

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


def covered(warehouse: Warehouse, name: str) -> Covered:
    """The csn that a view can be read at; a view without a delta only at the one it shows."""
    record = warehouse.record(name)
    if is_full(warehouse.view(name)):
        return Covered(record.materialized_csn, record.materialized_csn)
    return Covered(record.oldest_csn, warehouse.catalog.high_water(name))


def read_files(warehouse: Warehouse, table: LakeTable, files: Sequence[LakeFile]) -> SparkBag:
    """Whole files of a lake table: at the driver if they are small."""
    if sum(file.rows for file in files) <= DRIVER_ROWS:
        return SparkBag.of_rows(warehouse.spark, table.load(files))
    return SparkBag.of_rows(warehouse.spark, table.scan(files))


def read_range(warehouse: Warehouse, table: LakeTable, after: int, upto: int) -> SparkBag:
    """The rows of a log with after < csn ≤ upto: its columns, `_csn` last."""
    names = [name for name, _ in table.columns if name not in (COUNT, CSN)]
    if upto <= after:
        files: tuple[LakeFile, ...] = ()
    else:
        files = table.files(csn=(after, upto))
    if sum(file.rows for file in files) <= DRIVER_ROWS:
        rows = SparkBag.of_rows(warehouse.spark, table.load(files, csn=(after, upto)))
    else:
        rows = SparkBag.of_rows(warehouse.spark, table.scan(files, csn=(after, upto)))
    return rows.project(keep((*names, CSN)))

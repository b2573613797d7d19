"""A bag in a table of the lake: read at a version, and changed by rewriting only the files that lose rows.

Rows that are only added become a small file of their own, a *tail*. When there are many of these, the next
change puts them together. A row that is written again goes to a file with the range of the one it came from,
so that a change of few keys keeps touching few files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from rollview.algebra.bag import COUNT
from rollview.bags import PlacedBag
from rollview.errors import CorruptView
from rollview.imports import deferred
from rollview.lake import Commit, FileLayout, LakeFile, LakeTable
from rollview.lake.data_files import holding
from rollview.runtime.session import Session
from rollview.storage.lake_rows import read_files
from rollview.views.layout import Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as f
else:
    f = deferred("pyspark.sql.functions")

FEW_FILES = 64
"""Files grow with the table, so that there are not many more than this, within these bounds."""
SMALLEST_FILE, LARGEST_FILE = 50_000, 250_000

SMALL = 5_000
"""A file with fewer rows belongs to the tail."""
MOST_SMALL = 16
"""With more small files than this, they are put together."""


@dataclass(frozen=True)
class StoredBag:
    """The table of a view's rows, or of its state, at the version that the catalog names.

    Where `columns` has no `_count`, a row is repeated as often as it occurs.
    """

    session: Session
    table: LakeTable
    view: str
    columns: tuple[tuple[str, str], ...]
    order: tuple[str, ...]
    version: int = 0

    def files(self) -> tuple[LakeFile, ...]:
        """The data files; others may have put them together since."""
        return self.table.files(version=self._version)

    def rows(self) -> PlacedBag:
        """The whole bag."""
        return self._read(self.files())

    def rows_with(self, values: Sequence[Any]) -> PlacedBag:
        """At least the rows that have one of these values in the first column of the order."""
        holding = (self.order[0], values)
        files = self.table.files(holding=holding, version=self._version)
        return read_files(self.session, self.table, files, self.columns, holding)

    @property
    def _version(self) -> int:
        """The newest version with the rows of the one that the catalog names."""
        return self.table.same_rows(self.version)

    def _read(self, files: Sequence[LakeFile]) -> PlacedBag:
        return read_files(self.session, self.table, files, self.columns)

    def replace(self, rows: PlacedBag, commit: Commit) -> int:
        """Makes this the whole content, whatever columns there were; returns the version that has it."""
        self.table.create_if_missing(self.columns)
        number = rows.table().num_rows if rows.place == "driver" else rows.frame.count()
        layout = FileLayout(self.order, _file_rows(number), number)
        return self.table.overwrite(self.columns, self._written(rows), commit, layout)

    def change(self, changed: PlacedBag, commit: Commit) -> int:
        """Adds a net change, once however often it is tried; returns the version that has it."""
        if self.table.last_step(commit.writer) >= commit.step:
            return self.table.version()
        files = self.files()
        touched = self._touched(files, changed)
        rows = self._checked(self._read(touched).plus(changed).net_effect())
        total = sum(file.rows for file in files)
        layout = FileLayout(self.order, _file_rows(total), sum(file.rows for file in touched))
        written = self._written(rows)
        parts = [written]
        if isinstance(written, pa.Table) and self.order:
            parts = list(_by_range(written, self.order[0], touched))
        version = self.table.replace(touched, parts, commit, layout)
        # Nobody else may have written between the last look and this.
        self.table.check_no_external_writes(self.version)
        return version

    def _touched(self, files: Sequence[LakeFile], changed: PlacedBag) -> tuple[LakeFile, ...]:
        """The files that may lose a row, and all small ones if these are many. A small table is one file."""
        if not self.order or changed.place != "driver" or sum(file.rows for file in files) < SMALL:
            return tuple(files)
        table = changed.table()
        lost = table.filter(pc.less(table[COUNT], 0))
        values = pc.unique(lost[self.order[0]]).to_pylist()
        touched = {file.path for file in holding(files, self.order[0], values)} if values else set()
        small = [file.path for file in files if file.rows < SMALL]
        if len(small) > MOST_SMALL:
            touched.update(small)
        return tuple(file for file in files if file.path in touched)

    def _checked(self, rows: PlacedBag) -> PlacedBag:
        """The rows to write; a count below one means that the view is not what its delta was made for."""
        rows.collect_if_small()
        if rows.place == "driver":
            table = rows.table()
            wrong = table.filter(pc.less(table[COUNT], 1))
            if wrong.num_rows:
                _refuse(self.view, wrong.slice(0, 1).to_pylist()[0])
            return rows
        count = f.when(f.col(COUNT) >= 1, f.col(COUNT)).otherwise(f.raise_error(f.lit(self.view)))
        return PlacedBag(rows.frame.withColumn(COUNT, count))

    def _written(self, rows: PlacedBag) -> pa.Table | DataFrame:
        return rows.rows() if COUNT in dict(self.columns) else rows.expanded()


def rows_bag(session: Session, layout: Layout, table: LakeTable, version: int = 0) -> StoredBag:
    """The rows of a view."""
    return StoredBag(session, table, layout.view.name, layout.columns, layout.rows_order, version)


def state_bag(session: Session, layout: Layout, table: LakeTable, version: int = 0) -> StoredBag:
    """The state of a view."""
    return StoredBag(session, table, layout.view.name, layout.state_table, layout.state_order, version)


def _file_rows(total: int) -> int:
    return min(LARGEST_FILE, max(SMALLEST_FILE, total // FEW_FILES))


def _by_range(rows: pa.Table, column: str, files: Sequence[LakeFile]) -> Iterator[pa.Table]:
    """The rows by the ranges of the files that they replace; what lies in none of them is a tail."""
    rest = rows
    for low, high in _ranges(column, files):
        values = rest[column]
        inside = pc.and_(
            pc.greater_equal(values, pa.scalar(low, values.type)),
            pc.less_equal(values, pa.scalar(high, values.type)),
        )
        inside = pc.fill_null(inside, False)
        yield rest.filter(inside)
        rest = rest.filter(pc.invert(inside))
    yield rest


def _ranges(column: str, files: Sequence[LakeFile]) -> list[tuple[Any, Any]]:
    """The ranges of files that are not small, those that overlap as one."""
    known = sorted(
        (file.minimum[column], file.maximum[column])
        for file in files
        if file.rows >= SMALL and column in file.minimum and column in file.maximum
    )
    ranges: list[tuple[Any, Any]] = []
    for low, high in known:
        if ranges and low <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], high))
        else:
            ranges.append((low, high))
    return ranges


def _refuse(name: str, row: dict[str, Any]) -> None:
    message = f"view {name}: rolling it would leave {row[COUNT]} of a row: {row}"
    hint = f"run `rollview verify {quote(name)}`; `rollview setup --reload {quote(name)}` recomputes it"
    raise CorruptView(message, subject=name, hint=hint)

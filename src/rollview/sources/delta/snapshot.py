"""The newest version of a Delta table: its files with their statistics, followed from commit to commit.

Opening a table reads its whole log; following it reads only what is new. A table that was deleted and made
again under the same name is noticed by the commit file of the version we are at.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from rollview.errors import CaptureRefused, SourceMissing
from rollview.rows import ScanFile
from rollview.sources.delta.log import Definition, check_features, definition, stamp_of
from rollview.sources.delta.place import TablePlace
from rollview.sources.files.key_filter import KeyFilter
from rollview.sources.files.state import FileState

# Which files can hold a wanted value, by the smallest and largest value that the log states of each.
#
# With the wanted values sorted, a file takes two binary searches however many values there are.


_EXACT_DIGITS = 15
"""Decimals are written to the log as floating-point numbers, which keep this many digits."""

_LOST_BY_ROUNDING = timedelta(milliseconds=1)
"""Times are cut to milliseconds in the log, so the largest may be almost one later."""


@dataclass(frozen=True)
class Bounds:
    """For each file its least and greatest value. A missing one says nothing, unless all are NULL."""

    least: list[Any]
    greatest: list[Any]
    all_null: list[bool]


def bounds_of(actions: pa.Table, column: str, is_partition: bool) -> Bounds | None:
    """The statistics of a column in the log; None if they cannot be relied on."""
    if is_partition:
        values = actions[f"partition.{column}"]
        listed = values.to_pylist()
        return Bounds(listed, listed, pc.is_null(values).to_pylist())
    if f"min.{column}" not in actions.column_names or f"max.{column}" not in actions.column_names:
        return None
    least, greatest = actions[f"min.{column}"], actions[f"max.{column}"]
    if not _reliable(least.type):
        return None
    nulls = pc.equal(actions[f"null_count.{column}"], actions["num_records"])
    latest = greatest.to_pylist()
    if pa.types.is_timestamp(greatest.type):
        latest = [None if value is None else value + _LOST_BY_ROUNDING for value in latest]
    return Bounds(least.to_pylist(), latest, pc.fill_null(nulls, False).to_pylist())


def _reliable(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= _EXACT_DIGITS)
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )


def may_match(key: KeyFilter, bounds: Bounds, files: Iterable[int]) -> list[int]:
    """Of these files, by position, those that may hold a wanted value."""
    values = key.listed
    kept = []
    for position in files:
        if bounds.all_null[position]:
            continue
        low, high = bounds.least[position], bounds.greatest[position]
        first = 0 if low is None else bisect_left(values, low)
        last = len(values) if high is None else bisect_right(values, high)
        if first < last:
            kept.append(position)
    return kept


@dataclass(frozen=True, eq=False)
class TableSnapshot:
    """A table at a version. `actions` describes its files, a row each, as `deltalake` gives them.

    `has_feed` says that commits have their changes in a change data feed.
    """

    place: TablePlace
    version: int
    definition: Definition
    actions: pa.Table
    has_feed: bool

    @cached_property
    def files(self) -> tuple[ScanFile, ...]:
        """All files with their partition values."""
        names = self.definition.partitions
        values = [self.actions[f"partition.{name}"].to_pylist() for name in names]
        return tuple(
            ScanFile(self.place.located(path), dict(zip(names, row, strict=True)))
            for path, row in zip(
                self.logged, zip(*values, strict=True) if names else [()] * len(self.logged), strict=True
            )
        )

    @cached_property
    def logged(self) -> list[str]:
        """All files, as the log names them."""
        paths: list[str] = self.actions["path"].to_pylist()
        return paths

    @cached_property
    def _sizes(self) -> list[int]:
        sizes: list[int] = self.actions["size_bytes"].to_pylist()
        return sizes

    @cached_property
    def rows(self) -> list[int | None]:
        """The number of rows of each file, where it is known."""
        rows: list[int | None] = self.actions["num_records"].to_pylist()
        return rows

    @cached_property
    def state(self) -> FileState:
        """The files that sub-queries are answered from."""
        return FileState(self.definition.types, self._prune)

    @cached_property
    def _bounds(self) -> dict[str, Bounds | None]:
        return {}

    def _prune(self, filters: Sequence[KeyFilter]) -> tuple[tuple[ScanFile, ...], int | None]:
        """The files whose statistics do not exclude the wanted values, and their rows, if all are known.

        They are there to be read.
        """
        kept: Sequence[int] = range(len(self.files))
        for each in filters:
            if each.column not in self._bounds:
                partition = each.column in self.definition.partitions
                self._bounds[each.column] = bounds_of(self.actions, each.column, partition)
            bounds = self._bounds[each.column]
            if bounds is not None:
                kept = may_match(each, bounds, kept)
        self.place.fetch({self.logged[position]: self._sizes[position] for position in kept})
        counts = [self.rows[position] for position in kept]
        known = [count for count in counts if count is not None]
        total = sum(known) if len(known) == len(counts) else None
        return tuple(self.files[position] for position in kept), total


class FollowedTable:
    """One Delta table, kept open and up to date; may be used from several threads."""

    def __init__(self, name: str, place: TablePlace) -> None:
        """`name` is `source.table`, for messages."""
        self.name = name
        self.place = place
        self._lock = threading.Lock()
        self._table: DeltaTable | None = None
        self._mark: tuple[int, ...] | None = None
        self._snapshot: TableSnapshot | None = None
        self._stamp: tuple[tuple[int, ...], str] | None = None

    def definition(self) -> Definition:
        """The definition as it is now, whether or not the table can be captured."""
        with self._lock:
            self.place.refresh()
            return defined_by(open_table(self.name, self.place))

    def snapshot(self) -> TableSnapshot:
        with self._lock:
            table = self._follow()
            if self._snapshot is None or self._snapshot.version != table.version():
                self._snapshot = take_snapshot(self.name, self.place, table)
            return self._snapshot

    def at(self, version: int) -> TableSnapshot:
        """The table as it was; for the rare cases in which the log says too little."""
        with self._lock:
            self.place.reach(version)
            return take_snapshot(self.name, self.place, open_table(self.name, self.place, version))

    def stamp(self, version: int) -> str:
        """The stamp of a version's commit (`log.stamp_of`); empty if its file is not there."""
        mark = self.place.mark(version)
        try:
            with self._lock:
                if mark is not None and (self._stamp is None or self._stamp[0] != mark):
                    self._stamp = mark, stamp_of(self.place.commit(version).read_bytes())
                return self._stamp[1] if mark is not None and self._stamp is not None else ""
        except FileNotFoundError:
            return ""

    def _follow(self) -> DeltaTable:
        self.place.refresh()
        if self._table is not None and self._mark == self.place.mark(self._table.version()):
            try:
                self._table.update_incremental()
            except DeltaError:
                self._table = None
        else:
            self._table = None
        if self._table is None:
            self._snapshot = None
            self._table = open_table(self.name, self.place)
        self._mark = self.place.mark(self._table.version())
        return self._table


def open_table(name: str, place: TablePlace, version: int | None = None) -> DeltaTable:
    """The table from its log, or a refusal that says what is wrong."""
    try:
        return DeltaTable(str(place.folder), version=version)
    except TableNotFoundError:
        raise SourceMissing(
            f"there is no Delta table {name}: {name.partition('.')[2]} holds no _delta_log",
            subject=name,
            hint="was it dropped or moved? Put it back, or take it out of the views",
        ) from None
    except DeltaError as error:
        raise CaptureRefused(f"Delta table {name} cannot be opened: {error}", subject=name) from error


def take_snapshot(name: str, place: TablePlace, table: DeltaTable) -> TableSnapshot:
    """The table as `deltalake` has it loaded."""
    protocol, configuration = table.protocol(), table.metadata().configuration
    check_features(name, protocol.reader_features, configuration)
    feed = configuration.get("delta.enableChangeDataFeed") == "true"
    actions = pa.table(table.get_add_actions(flatten=True))
    return TableSnapshot(place, table.version(), defined_by(table), actions, feed)


def defined_by(table: DeltaTable) -> Definition:
    """The definition of a table as it is loaded, whether or not it can be captured."""
    metadata = table.metadata()
    return definition(str(metadata.id), table.schema().to_json(), metadata.partition_columns)

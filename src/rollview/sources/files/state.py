"""A table at one state, as Parquet files with what is known about them, or as rows already in memory."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from rollview.errors import DumpError
from rollview.rows import FileScan, Rows, ScanFile, arrow_schema, arrow_type
from rollview.sources.files.key_filter import KeyFilter
from rollview.sources.source import COUNT

# Parquet files read by Arrow: declared types, constants per file, row groups skipped by statistics.


# Spark's older timestamps (INT96) would be read in nanoseconds, which end in the year 2262.
_FORMAT = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")


def read_files(scan: FileScan, filters: Sequence[KeyFilter] = ()) -> pa.Table:
    """The rows of a scan as an Arrow table; with `filters`, those that pass them all."""
    schema = arrow_schema(scan.schema)
    local = fs.LocalFileSystem()
    fragments = [
        _FORMAT.make_fragment(file.path, local, partition_expression=_constants(file, schema))
        for file in scan.files
    ]
    dataset = ds.FileSystemDataset(fragments, schema, _FORMAT, local)
    condition = None
    for each in filters:
        condition = each.filter() if condition is None else condition & each.filter()
    return dataset.to_table(columns=schema.names, filter=condition)


def _constants(file: ScanFile, schema: pa.Schema) -> pc.Expression:
    """The guarantee for all rows of a file, as an expression of Arrow's datasets."""
    known = pc.scalar(True)
    for name, value in file.constants.items():
        if name not in schema.names:
            continue
        field = pc.field(name)
        fact = field.is_null() if value is None else field == pa.scalar(value, schema.field(name).type)
        known = known & fact
    return known


def count_rows(paths: Iterable[str]) -> int:
    """How many rows files have, by their footers."""
    return sum(pq.read_metadata(path).num_rows for path in paths)


def has_types(paths: Iterable[str], columns: Iterable[tuple[str, str]]) -> bool:
    """Whether files hold columns in the very types that Spark gives them, so that it can read them itself."""
    wanted = dict(columns)
    return all(
        field.name not in wanted or field.type == arrow_type(wanted[field.name])
        for path in paths
        for field in pq.read_schema(path)
    )


# Matches found row group by row group: statistics first, then the key column, then whatever else is wanted.
#
# A row group whose statistics exclude the wanted values is not touched. Of the others the key column is
# read alone, and the remaining columns only where it had a match. So a few keys cost a few row groups where
# the table is sorted by them, and one column of it where it is not.


_KNOWN_FOOTERS = 4096


@dataclass(frozen=True)
class RowGroup:
    """A row group that may hold wanted values: those from `first` to before `last` of the sorted ones."""

    file: ScanFile
    number: int
    rows: int
    first: int
    last: int


def candidates(files: Sequence[ScanFile], key: KeyFilter) -> list[RowGroup]:
    """The row groups whose statistics do not exclude the wanted values."""
    return [group for file in files for group in _of_file(file, key)]


def read_matches(scan: FileScan, groups: Sequence[RowGroup], filters: Sequence[KeyFilter]) -> pa.Table:
    """The rows of the row groups that have one of the wanted values in each column."""
    schema = arrow_schema(scan.schema)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as readers:
        pieces = list(readers.map(lambda group: _matches(group, schema, filters), groups))
    found = [piece for piece in pieces if piece is not None]
    return pa.concat_tables(found) if found else schema.empty_table()


def _matches(group: RowGroup, schema: pa.Schema, filters: Sequence[KeyFilter]) -> pa.Table | None:
    key = filters[0]
    values = key.values[group.first : group.last]
    with _opened(group.file.path) as file:
        column = file.read_row_group(group.number, columns=[key.column], use_threads=False)[key.column]
        column = column.combine_chunks().cast(key.values.type)
        mask = pc.is_in(column, value_set=values)
        if not pc.any(mask).as_py():
            return None
        stored = [name for name in schema.names if name not in group.file.constants]
        rest = [name for name in stored if name != key.column]
        table = file.read_row_group(group.number, columns=rest, use_threads=False)
    columns = {name: table[name] for name in rest} | {key.column: column}
    columns = {name: _plain(values, schema.field(name).type) for name, values in columns.items()}
    rows = pa.table({name: columns[name] for name in stored}).filter(mask)
    for name, value in group.file.constants.items():
        if name in schema.names:
            kind = schema.field(name).type
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, kind), rows.num_rows))
    for other in filters[1:]:
        rows = rows.filter(pc.is_in(rows[other.column], value_set=other.values))
    return rows.select(schema.names).cast(schema)


def _plain(values: Any, kind: pa.DataType) -> Any:
    """Views of strings cannot be filtered everywhere, and dictionaries not be put together."""
    return values if values.type == kind else values.cast(kind)


def _of_file(file: ScanFile, key: KeyFilter) -> Iterator[RowGroup]:
    values = key.listed
    for number, (rows, low, high) in enumerate(_statistics(file.path, _stamp(file.path), key.column)):
        first = 0 if low is None else bisect_left(values, low)
        last = len(values) if high is None else bisect_right(values, high)
        if first < last:
            yield RowGroup(file, number, rows, first, last)


def _stamp(path: str) -> int:
    return Path(path).stat().st_mtime_ns


def _opened(path: str) -> pq.ParquetFile:
    footer = _footer(path, _stamp(path))
    # Spark's older timestamps (INT96) would be read in nanoseconds, which end in the year 2262.
    return pq.ParquetFile(path, metadata=footer, coerce_int96_timestamp_unit="us")


@lru_cache(maxsize=_KNOWN_FOOTERS)
def _footer(path: str, _: int) -> pq.FileMetaData:
    return pq.read_metadata(path)


@lru_cache(maxsize=_KNOWN_FOOTERS)
def _statistics(path: str, stamp: int, column: str) -> tuple[tuple[int, Any, Any], ...]:
    """For each row group its rows, least and greatest value; None where the footer does not say."""
    footer = _footer(path, stamp)
    position = next((i for i in range(footer.num_columns) if footer.schema.column(i).path == column), None)
    found = []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        statistics = None if position is None else group.column(position).statistics
        bounds: tuple[Any, Any] = (None, None)
        if statistics is not None and statistics.has_min_max and _is_ordered(statistics.min):
            bounds = statistics.min, statistics.max
        found.append((group.num_rows, *bounds))
    return tuple(found)


def _is_ordered(value: Any) -> bool:
    """Whole numbers only: for texts and decimals a footer may say less than it seems to."""
    return isinstance(value, int) and not isinstance(value, bool)


FEW_ROWS = 30_000_000
"""Up to this many rows in row groups that may match, Arrow finds the matches faster than a Spark job."""

Prune = Callable[[Sequence[KeyFilter]], tuple[tuple[ScanFile, ...], int | None]]
"""The files that may hold wanted values, and how many rows they have, if that is known."""


@dataclass(frozen=True)
class FileState:
    """A table that lies in Parquet files."""

    types: Mapping[str, str]
    prune: Prune

    def everything(self, columns: Sequence[str]) -> Rows:
        """All files."""
        files, _ = self.prune(())
        return FileScan(_each_once(files), self._schema(columns))

    def matching(self, columns: Sequence[str], filters: Sequence[KeyFilter], now: bool) -> Rows:
        """The matches, read now if that is wanted or cheap; otherwise a scan that skips what it can."""
        files, rows = self.prune(filters)
        schema = self._schema(columns)
        if not files or not all(len(each.values) for each in filters):
            return arrow_schema(schema).empty_table()
        scan = FileScan(_each_once(files), schema)
        keyed = self._with_keys(scan, filters)
        partitions = {name for file in files for name in file.constants}
        # Partitions have been looked at; of the other columns the one with the fewest values goes first.
        stored = sorted((f for f in filters if f.column not in partitions), key=lambda each: len(each.values))
        groups = candidates(scan.files, stored[0]) if stored else []
        number = sum(group.rows for group in groups) if stored else rows
        if now or (number is not None and number <= FEW_ROWS):
            found = read_matches(keyed, groups, stored) if stored else read_files(keyed, filters)
            return found.select([name for name, _ in schema])
        return FileScan(scan.files, schema, tuple(each.column_ranges() for each in filters))

    def _schema(self, columns: Sequence[str]) -> tuple[tuple[str, str], ...]:
        return (*((name, self.types[name]) for name in columns), (COUNT, "bigint"))

    def _with_keys(self, scan: FileScan, filters: Sequence[KeyFilter]) -> FileScan:
        """Key columns are needed for the filter, even where nobody wants to see them."""
        names = {name for name, _ in scan.schema}
        keys = tuple((each.column, self.types[each.column]) for each in filters if each.column not in names)
        return FileScan(scan.files, (*scan.schema, *dict.fromkeys(keys)))


@dataclass(frozen=True, eq=False)
class MemoryState:
    """A table that has been read as a whole, because its format allows nothing else."""

    types: Mapping[str, str]
    rows: pa.Table

    def everything(self, columns: Sequence[str]) -> Rows:
        return counted(self.rows.select(list(columns)), 1)

    def matching(self, columns: Sequence[str], filters: Sequence[KeyFilter], now: bool) -> Rows:  # noqa: ARG002
        """The matches, which always are there at once."""
        rows = self.rows
        for each in filters:
            rows = rows.filter(each.filter()) if len(each.values) else rows.slice(0, 0)
        return counted(rows.select(list(columns)), 1)


def _each_once(files: Sequence[ScanFile]) -> tuple[ScanFile, ...]:
    return tuple(ScanFile(file.path, {**file.constants, COUNT: 1}) for file in files)


# The snapshot differential: what changed from one dump to the next.
#
# It is the bag difference of the two, which is one and the same whether rows are compared whole or matched by
# a key: a row that is in both is no change, an update is a deletion and an insertion. A declared key is
# checked, because a dump in which it occurs twice was written wrongly, and views may rely on it.

# The net effect of Arrow rows: counts added up per row, zeros dropped.
#
# NULL equals NULL and NaN equals NaN here, as rows are compared whole. Zeros of either sign stay apart,
# which costs a row more and changes nothing: adding the counts up treats them as one.


def counted(table: pa.Table, count: int) -> pa.Table:
    """The rows with this count each."""
    return table.append_column(COUNT, pa.repeat(pa.scalar(count, pa.int64()), table.num_rows))


def net_effect(table: pa.Table) -> pa.Table:
    """One row per distinct row whose counts do not cancel."""
    names = [name for name in table.column_names if name != COUNT]
    if any(pa.types.is_nested(table.schema.field(name).type) for name in names):
        return _of_nested(table)
    total = table.group_by(names).aggregate([(COUNT, "sum")]).rename_columns([*names, COUNT])
    return total.filter(pc.not_equal(total[COUNT], 0)).select([*names, COUNT]).cast(table.schema)


def _of_nested(table: pa.Table) -> pa.Table:
    """The same row by row: Arrow does not compare arrays and structs."""
    rows: dict[str, list[int]] = {}
    counted_rows = zip(table.drop_columns([COUNT]).to_pylist(), table[COUNT].to_pylist(), strict=True)
    for number, (row, count) in enumerate(counted_rows):
        rows.setdefault(repr(row), [number, 0])[1] += count
    left = [(number, count) for number, count in rows.values() if count]
    taken = table.take(pa.array([number for number, _ in left], pa.int64()))
    counts = pa.array([count for _, count in left], pa.int64())
    return taken.set_column(taken.schema.get_field_index(COUNT), COUNT, counts).cast(table.schema)


def differential(before: pa.Table, after: pa.Table) -> pa.Table:
    """The rows that came (+) and went (−), with `_count`."""
    return net_effect(pa.concat_tables([counted(after, 1), counted(before, -1)]))


def check_key(table: str, dump: str, rows: pa.Table, key: Sequence[str]) -> None:
    """Refuses a dump in which the key is NULL or occurs twice, with the offending value."""
    if not key:
        return
    groups = rows.select(list(key)).group_by(list(key)).aggregate([([], "count_all")])
    wrong = pc.greater(groups["count_all"], 1)
    for name in key:
        wrong = pc.or_(wrong, pc.is_null(groups[name]))
    offending = groups.filter(wrong).slice(0, 1).to_pylist()
    if not offending:
        return
    count = offending[0].pop("count_all")
    value = ", ".join(f"{name} = {'NULL' if part is None else part}" for name, part in offending[0].items())
    raise DumpError(
        f"({', '.join(key)}) is not a key of dump {dump} of {table}: {value} occurs {count} "
        f"time{'s' if count > 1 else ''}",
        subject=f"{table}/{dump}",
        hint="correct the dump, or declare another key or none",
    )

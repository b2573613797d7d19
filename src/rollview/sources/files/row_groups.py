"""Matches found row group by row group: statistics first, then the key column, then whatever else is wanted.

A row group whose statistics exclude the wanted values is not touched. Of the others the key column is read
alone, and the remaining columns only where it had a match. So a few keys cost a few row groups where the
table is sorted by them, and one column of it where it is not.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rollview.rows import FileScan, ScanFile, arrow_schema
from rollview.sources.files.key_filter import KeyFilter

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

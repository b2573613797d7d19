"""A table at one state, as Parquet files with what is known about them, or as rows already in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from rollview.rows import FileScan, Rows, ScanFile, arrow_schema
from rollview.sources.files.key_filter import KeyFilter
from rollview.sources.files.net import counted
from rollview.sources.files.parquet import read_files
from rollview.sources.files.row_groups import candidates, read_matches
from rollview.sources.source import COUNT

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
        """All rows."""
        return counted(self.rows.select(list(columns)), 1)

    def matching(self, columns: Sequence[str], filters: Sequence[KeyFilter], now: bool) -> Rows:  # noqa: ARG002
        """The matches, which always are there at once."""
        rows = self.rows
        for each in filters:
            rows = rows.filter(each.filter()) if len(each.values) else rows.slice(0, 0)
        return counted(rows.select(list(columns)), 1)


def _each_once(files: Sequence[ScanFile]) -> tuple[ScanFile, ...]:
    return tuple(ScanFile(file.path, {**file.constants, COUNT: 1}) for file in files)

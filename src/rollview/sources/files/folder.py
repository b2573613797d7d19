"""One table of a file source: its folder, its columns, its dumps and their rows."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from rollview.ascii_text import number_of
from rollview.errors import OptionError, SourceMissing
from rollview.rows import FileScan, Rows, ScanFile
from rollview.sources.bucket import Bucket
from rollview.sources.files.dumps import (
    Columns,
    CsvFormat,
    Dump,
    check_parquet,
    columns_of_dump,
    complete_dumps,
    declared_columns,
    empty_rows,
    read_dump,
    readable,
)
from rollview.sources.files.key_filter import State
from rollview.sources.files.place import DumpPlace, dump_places
from rollview.sources.files.state import (
    FileState,
    MemoryState,
    check_key,
    count_rows,
    differential,
    has_types,
    read_files,
)
from rollview.sources.settings import declared_key
from rollview.sources.source import COUNT, Table

FEW_ROWS = 2_000_000
"""Two dumps with up to this many rows are compared here; larger Parquet dumps are left to Spark."""

_KEPT_DUMPS = 2


class TableFolder:
    """The dumps of one table; may be used from several threads."""

    def __init__(self, source: str, place: DumpPlace, options: Mapping[str, Any]) -> None:
        self.site = f"{source}.{place.name}"
        self.place = place
        self._source = source
        self._options = options
        self._settle_seconds = _settle_seconds(source, options)
        self._csv = CsvFormat(
            str(options.get("delimiter", CsvFormat.delimiter)),
            str(options.get("encoding", CsvFormat.encoding)),
        )
        self._lock = threading.Lock()
        # The same dump is asked about again and again, and CSV can only be read as a whole.
        self._kept: dict[tuple[str, str, Columns], pa.Table] = {}

    def dumps(self) -> list[Dump]:
        """The complete dumps, oldest first."""
        try:
            return complete_dumps(self.place, self._settle_seconds)
        except (FileNotFoundError, NotADirectoryError):
            raise SourceMissing(
                f"the folder of {self.site} is gone", subject=self.site, hint="put it back with its dumps"
            ) from None

    def columns(self) -> Columns:
        """The declared columns, or those of the first dump there is; none without a dump."""
        declared = self._options.get(f"schema.{self.place.name}")
        if declared is not None:
            return declared_columns(self.place.name, str(declared))
        dumps = self.dumps()
        return columns_of_dump(self.site, dumps[0], self._csv) if dumps else ()

    def table(self) -> Table | None:
        """The table as views see it; None while nothing is known of its columns."""
        columns = self.columns()
        if not columns:
            return None
        names = tuple(name for name, _ in columns)
        kinds = tuple(kind for _, kind in columns)
        key = declared_key(self._source, self.place.name, self._options, names)
        return Table(self._source, self.place.name, names, key, types=kinds, own_log=True)

    def check(self, dump: Dump, columns: Columns) -> None:
        """Reads a dump and checks its key."""
        self._check_key(dump, columns, self._rows(dump, columns))

    def state(self, dump: Dump | None, columns: Columns) -> State:
        """A dump to answer sub-queries from; nothing before the first one."""
        types = dict(columns)
        if dump is None:
            return MemoryState(types, empty_rows(columns))
        if self._is_plain(dump, columns):
            check_parquet(self.site, dump, columns)
            files = tuple(ScanFile(str(path)) for path in dump.files)
            rows = count_rows(file.path for file in files)
            return FileState(types, lambda wanted: (files, rows))
        return MemoryState(types, self._rows(dump, columns))

    def changes(self, before: Dump | None, after: Dump, columns: Columns) -> Rows:
        """The changed rows from one dump to the next, with `_count`."""
        given = [dump for dump in (before, after) if dump is not None]
        if all(self._is_plain(dump, columns) for dump in given):
            total = sum(count_rows(str(path) for path in dump.files) for dump in given)
            if total > FEW_ROWS:
                return self._scan_of_both(before, after, columns)
        rows = self._rows(after, columns)
        self._check_key(after, columns, rows)
        return differential(empty_rows(columns) if before is None else self._rows(before, columns), rows)

    def _scan_of_both(self, before: Dump | None, after: Dump, columns: Columns) -> FileScan:
        for dump in (before, after):
            if dump is not None:
                check_parquet(self.site, dump, columns)
        key = self._key(columns)
        if key:
            keys = tuple((name, kind) for name, kind in columns if name in key)
            files = tuple(ScanFile(str(path)) for path in after.files)
            check_key(self.site, after.name, read_files(FileScan(files, keys)), key)
        signed = [(after, 1)] if before is None else [(after, 1), (before, -1)]
        files = tuple(ScanFile(str(path), {COUNT: count}) for dump, count in signed for path in dump.files)
        return FileScan(files, (*columns, (COUNT, "bigint")))

    def _rows(self, dump: Dump, columns: Columns) -> pa.Table:
        name = (dump.name, dump.signature, columns)
        with self._lock:
            if name not in self._kept:
                self._kept[name] = read_dump(self.site, dump, columns, self._csv)
                for oldest in list(self._kept)[:-_KEPT_DUMPS]:
                    del self._kept[oldest]
            return self._kept[name]

    def _check_key(self, dump: Dump, columns: Columns, rows: pa.Table) -> None:
        check_key(self.site, dump.name, rows, self._key(columns))

    def _key(self, columns: Columns) -> tuple[str, ...]:
        names = [name for name, _ in columns]
        return declared_key(self._source, self.place.name, self._options, names)

    def _is_plain(self, dump: Dump, columns: Columns) -> bool:
        """Whether Spark can read the files as they are."""
        with readable(self.site, dump):
            return dump.format == "parquet" and has_types((str(path) for path in dump.files), columns)


def table_folders(source: str, place: Path | Bucket, options: Mapping[str, Any]) -> dict[str, TableFolder]:
    """The tables of a file source, by name."""
    return {name: TableFolder(source, each, options) for name, each in dump_places(source, place).items()}


def _settle_seconds(source: str, options: Mapping[str, Any]) -> float:
    given = options.get("settle_seconds", 1)
    seconds = number_of(str(given))
    if seconds is None:
        message = f"source {source}: settle_seconds is not a number of seconds: {given}"
        raise OptionError(message, subject="settle_seconds", hint="for example 1 or 2.5; 0 to not wait")
    return seconds

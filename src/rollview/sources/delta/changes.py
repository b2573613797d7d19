"""What a commit did to the rows of a Delta table.

With a change data feed the commit has change files, and those alone tell the changes. Otherwise every row
of an added file is new and every row of a removed one is gone; an UPDATE or MERGE rewrites whole files, so
most of that cancels and is netted out here unless there are too many rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rollview.errors import LogLost
from rollview.rows import FileScan, Rows, ScanFile, arrow_type
from rollview.sources.delta.definition import Definition
from rollview.sources.delta.log import DataFile, DeltaCommit
from rollview.sources.delta.snapshot import FollowedTable
from rollview.sources.files.net import net_effect
from rollview.sources.files.parquet import count_rows, read_files
from rollview.sources.reload_hint import reload_hint
from rollview.sources.source import COUNT

FEW_ADDED_ROWS = 100_000
"""Up to this many rows that were only added (or only removed) are handed over at once, more as files."""

FEW_REWRITTEN_ROWS = 2_000_000
"""Up to this many rows of rewritten files are netted out here: what is left is most often very little."""

_KIND = "_change_type"
_COUNTS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}


def changes_of(commit: DeltaCommit, defined: Definition, table: FollowedTable) -> tuple[Rows, int] | None:
    """The changed rows of a commit and how many they are; None if it changed nothing."""
    schema = (*defined.columns, (COUNT, "bigint"))
    try:
        if commit.changes:
            rows = _from_change_files(commit.changes, schema, defined)
            return (rows, rows.num_rows) if rows.num_rows else None
        if not commit.added and not commit.removed:
            return None
        files = tuple(
            ScanFile(file.path, {**_constants(file, defined, table, commit), COUNT: count})
            for count, given in ((1, commit.added), (-1, commit.removed))
            for file in given
        )
        return _from_data_files(commit, FileScan(files, schema))
    except FileNotFoundError as error:
        raise LogLost(
            f"{table.name} version {commit.version} cannot be captured: a file of it has been vacuumed",
            subject=table.name,
            hint=f"{reload_hint(table.name)}; then capture more often than files are vacuumed",
        ) from error


def _from_data_files(commit: DeltaCommit, scan: FileScan) -> tuple[Rows, int] | None:
    given = (*commit.added, *commit.removed)
    known = sum(file.rows for file in given if file.rows is not None)
    total = known + count_rows(file.path for file in given if file.rows is None)
    few = FEW_REWRITTEN_ROWS if commit.added and commit.removed else FEW_ADDED_ROWS
    if total > few:
        for file in given:
            # Spark would only find out later that one is gone.
            Path(file.path).stat()
        return scan, total
    rows = net_effect(read_files(scan))
    return (rows, rows.num_rows) if rows.num_rows else None


def _from_change_files(
    files: Sequence[DataFile], schema: Sequence[tuple[str, str]], defined: Definition
) -> pa.Table:
    columns = tuple((name, kind) for name, kind in schema if name != COUNT)
    scans = tuple(ScanFile(file.path, partition_values(file.partition or {}, defined)) for file in files)
    found = read_files(FileScan(scans, (*columns, (_KIND, "string"))))
    kinds = pa.array(list(_COUNTS), pa.string())
    counts = pa.array(list(_COUNTS.values()), pa.int64())
    position = pc.index_in(found[_KIND], value_set=kinds)
    rows = found.drop_columns([_KIND]).append_column(COUNT, pc.take(counts, position))
    return net_effect(rows)


def _constants(
    file: DataFile, defined: Definition, table: FollowedTable, commit: DeltaCommit
) -> Mapping[str, Any]:
    if file.partition is None and (defined.partitions or commit.definition is not None):
        # A remove action need not repeat the partition values; the version before has the file.
        before = {each.path: each.constants for each in table.at(commit.version - 1).files}
        return {name: value for name, value in before[file.path].items() if name in defined.types}
    return partition_values(file.partition or {}, defined)


def partition_values(texts: Mapping[str, str | None], defined: Definition) -> dict[str, Any]:
    """Partition values by their columns' types; an empty text is NULL, as the protocol has it.

    They are those of the file. One that was written when the table had other partitions has other ones.
    """
    return {
        name: _partition_value(text, arrow_type(defined.types[name])) if text else None
        for name, text in texts.items()
        if name in defined.types
    }


def _partition_value(text: str, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        # Written as `2020-01-01 00:00:00.5` or with T and a zone; without one it is in UTC.
        instant = pa.scalar(text.replace(" ", "T").removesuffix("Z"), pa.string())
        naive = instant.cast(pa.timestamp("us")).as_py()
        return pa.scalar(naive, pa.timestamp("us")).cast(kind).as_py()
    if pa.types.is_binary(kind):
        return text.encode("utf-8")
    return pa.scalar(text, pa.string()).cast(kind).as_py()

"""Writes data files: Arrow tables with pyarrow, DataFrames with Spark. Nobody sees them until a commit does.

Spark writes into a folder of its own below `_staging`, which Delta readers ignore; the finished files are
moved from there. All of them are on disk, name and content, before they are handed on to be committed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rollview.algebra.expression import Column, to_sql
from rollview.deferred_import import deferred
from rollview.errors import LakeError, LakeUnavailable
from rollview.lake.disk import discard, explained, hint_for, sync
from rollview.lake.statistics import statistics_of
from rollview.rows import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as f
else:
    f = deferred("pyspark.sql.functions")

STAGING = "_staging"
"""The folder inside a table's folder in which Spark writes."""

_ROW_GROUP = 131_072
_TASK_ROWS = 500_000
_PARQUET = {
    "compression": "snappy",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


@dataclass(frozen=True)
class DataFile:
    """A finished file that no commit names yet."""

    path: Path
    rows: int
    statistics: str


@dataclass(frozen=True)
class FileLayout:
    """How rows lie in files: the order, the rows of a file, and about how many there will be (0: unknown)."""

    sort_by: tuple[str, ...] = ()
    file_rows: int = 1_000_000
    expected_rows: int = 0

    @property
    def tasks(self) -> int:
        """How many tasks write the files; a task may write several."""
        return -(-self.expected_rows // max(self.file_rows, _TASK_ROWS))


def write_rows(
    folder: Path, columns: Sequence[tuple[str, str]], rows: pa.Table | DataFrame, layout: FileLayout
) -> list[DataFile]:
    """Rows as Parquet files in a table's folder, none of them empty."""
    names = rows.column_names if isinstance(rows, pa.Table) else rows.columns
    wanted = [name for name, _ in columns]
    if sorted(names) != sorted(wanted):
        raise LakeError(
            f"{folder.name}: the rows have the columns {', '.join(names)}, the table {', '.join(wanted)}",
            subject=folder.name,
            hint="rows and table must have the same columns",
        )
    written = _write_arrow if isinstance(rows, pa.Table) else _write_frame
    paths: list[Path] = []
    try:
        with explained(folder.name, "writing data files"):
            for path in written(folder, columns, rows, layout):
                paths.append(path)
                sync(path)
            if paths:
                sync(folder)
            files = [DataFile(path, *statistics_of(path)) for path in paths]
    except BaseException:
        discard(paths)
        raise
    discard(file.path for file in files if file.rows == 0)
    return [file for file in files if file.rows > 0]


def _new_name(folder: Path) -> Path:
    return folder / f"part-{uuid4().hex}.parquet"


def _write_arrow(
    folder: Path, columns: Sequence[tuple[str, str]], rows: pa.Table, layout: FileLayout
) -> Iterator[Path]:
    schema = arrow_schema(columns)
    table = rows.select(schema.names).cast(schema)
    if layout.sort_by:
        keys = [(name, "ascending") for name in layout.sort_by]
        table = table.take(pc.sort_indices(table, sort_keys=keys))
    count = -(-table.num_rows // layout.file_rows)
    for number in range(count):
        start, end = (table.num_rows * place // count for place in (number, number + 1))
        path = _new_name(folder)
        try:
            part = table.slice(start, end - start)
            pq.write_table(part, path, row_group_size=_ROW_GROUP, write_page_index=True)
        except BaseException:
            discard([path])
            raise
        yield path


def _write_frame(
    folder: Path, columns: Sequence[tuple[str, str]], rows: DataFrame, layout: FileLayout
) -> Iterator[Path]:
    typed = rows.select(*(f.col(to_sql(Column(name))).cast(kind).alias(name) for name, kind in columns))
    writer = _arranged(typed, layout).write.options(**_PARQUET)
    with _staging(folder) as staged:
        try:
            writer.option("maxRecordsPerFile", layout.file_rows).parquet(f"file://{staged.absolute()}")
        except Exception as error:
            # Spark reports a full disk as a failed job; errors of the rows themselves pass as they are.
            if "No space left on device" not in str(error):
                raise
            raise LakeUnavailable(
                f"{folder.name}: writing data files failed: the disk is full",
                subject=folder.name,
                hint=hint_for(error),
            ) from error
        if not staged.is_dir():
            raise LakeError(
                f"{folder.name}: Spark wrote files that cannot be found at {staged}",
                subject=folder.name,
                hint="Spark and rollview must see the lake under the same path",
            )
        for part in sorted(staged.glob("part-*.parquet")):
            yield part.rename(_new_name(folder))


def _arranged(rows: DataFrame, layout: FileLayout) -> DataFrame:
    """One shuffle where it is known that one file is enough; otherwise Spark finds the ranges itself."""
    if not layout.sort_by:
        return rows
    order = [f.col(to_sql(Column(name))) for name in layout.sort_by]
    count = layout.tasks
    if count == 0:
        return rows.sort(*order)
    spread = rows.repartition(1) if count == 1 else rows.repartitionByRange(count, *order)
    return spread.sortWithinPartitions(*order)


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    staged = folder / STAGING / uuid4().hex
    try:
        yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)

"""Writes data files: Arrow tables with pyarrow, DataFrames with Spark. Nobody sees them until a commit does.

Spark writes into a folder of its own below `_staging`, which Delta readers ignore; the finished files are
moved from there. All of them are on disk, name and content, before they are handed on to be committed.
"""

from __future__ import annotations

import datetime
import json
import shutil
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rollview.algebra.expression import Column, to_sql
from rollview.errors import LakeError, LakeUnavailable
from rollview.imports import deferred
from rollview.lake.disk import discard, explained, hint_for
from rollview.lake.store import TableFolder
from rollview.rows import arrow_schema, type_sql

if TYPE_CHECKING:
    from pyspark import sql as spark_sql
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as f
else:
    spark_sql, f = deferred("pyspark.sql"), deferred("pyspark.sql.functions")

# Statistics of a data file, taken from its Parquet footer and written as Delta writes them.
#
# They decide which files a reader skips, so a bound may be too wide but never too narrow. Booleans and
# binary values get none, as in Delta. Neither do floating-point numbers: a footer does not say whether
# there are NaN, which Spark orders above everything else.


INDEXED_COLUMNS = 32
"""How many columns get statistics (Delta's default); names that begin with an underscore always do."""

_STRING_LENGTH = 32
_LAST_CHARACTER = "\U0010ffff"


@dataclass(frozen=True)
class Bounds:
    """The statistics of one column in a footer; `minimum` and `maximum` are None where they are unknown."""

    minimum: Any
    maximum: Any
    nulls: int | None


def statistics_of(file: Path) -> tuple[int, str]:
    """The number of rows of a Parquet file, and its statistics in Delta's JSON."""
    footer = pq.read_metadata(file)
    columns = {}
    for position in range(footer.num_columns):
        name = footer.schema.column(position).name
        if footer.schema.column(position).physical_type == "INT96":
            raise LakeError(
                f"{file.name} holds timestamps in the outdated INT96 form",
                subject=name,
                hint="set spark.sql.parquet.outputTimestampType to TIMESTAMP_MICROS in the Spark session",
            )
        if position < INDEXED_COLUMNS or name.startswith("_"):
            columns[name] = _bounds(footer, position)
    return footer.num_rows, _as_json(footer.num_rows, columns)


def _bounds(footer: Any, position: int) -> Bounds:
    """The bounds over all row groups; unknown as soon as one group does not know."""
    groups = [footer.row_group(group).column(position).statistics for group in range(footer.num_row_groups)]
    if any(group is None or not group.has_null_count for group in groups):
        return Bounds(None, None, None)
    nulls = sum(group.null_count for group in groups)
    filled = [group for group in groups if group.num_values > 0]
    if not filled or not all(group.has_min_max for group in filled):
        return Bounds(None, None, nulls)
    try:
        minimum = min(_lower(group.min) for group in filled)
        maximum = max(_upper(group.max) for group in filled)
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        # No bound of this type, or a date that Python cannot express.
        return Bounds(None, None, nulls)
    return Bounds(minimum, maximum, nulls)


def _lower(value: Any) -> Any:
    if isinstance(value, bool | float | bytes) or value is None:
        raise TypeError
    return value[:_STRING_LENGTH] if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    if isinstance(value, bool | float | bytes) or value is None:
        raise TypeError
    return _above(value) if isinstance(value, str) and len(value) > _STRING_LENGTH else value


def _above(value: str) -> str:
    """A short string that is greater than all that begin like this one: its last character, counted up."""
    prefix = value[:_STRING_LENGTH].rstrip(_LAST_CHARACTER)
    if not prefix:
        return value
    following = ord(prefix[-1]) + 1
    # The surrogates are no characters; UTF-8 has a gap there.
    return prefix[:-1] + chr(0xE000 if following == 0xD800 else following)


def _as_json(rows: int, columns: dict[str, Bounds]) -> str:
    parts = {
        "minValues": {name: _text(bounds.minimum) for name, bounds in columns.items()},
        "maxValues": {name: _text(bounds.maximum) for name, bounds in columns.items()},
        "nullCount": {name: _text(bounds.nulls) for name, bounds in columns.items()},
    }
    objects = [f'"{part}":{_object(values)}' for part, values in parts.items()]
    return f'{{"numRecords":{rows},{",".join(objects)}}}'


def _object(values: dict[str, str | None]) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in values.items() if text) + "}"


def _text(value: Any) -> str | None:
    """JSON of a value. Decimals are numbers with all their digits, which the json module cannot write."""
    if value is None:
        return None
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime.datetime):
        zone = "Z" if value.tzinfo else ""
        return f'"{value.replace(tzinfo=None).isoformat(timespec="microseconds")}{zone}"'
    if isinstance(value, datetime.date):
        return f'"{value.isoformat()}"'
    return json.dumps(value, ensure_ascii=False)


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
    size: int
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
    place: TableFolder, columns: Sequence[tuple[str, str]], rows: pa.Table | DataFrame, layout: FileLayout
) -> list[DataFile]:
    """Rows as Parquet files of a table, durable, none of them empty."""
    folder = place.data
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
            files = [_finished(path) for path in paths]
            discard(file.path for file in files if file.rows == 0)
            filled = [file for file in files if file.rows > 0]
            place.publish([file.path for file in filled])
    except BaseException:
        place.delete(path.name for path in paths)
        raise
    return filled


def _finished(path: Path) -> DataFile:
    rows, statistics = statistics_of(path)
    return DataFile(path, rows, path.stat().st_size, statistics)


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
    typed = rows.select(
        *(f.col(to_sql(Column(name))).cast(type_sql(kind)).alias(name) for name, kind in columns)
    )
    arranged, written = _arranged(typed, layout), None
    if not _is_local(rows.sparkSession):
        written = spark_sql.Observation()
        arranged = arranged.observe(written, f.count(f.lit(1)).alias("rows"))
    with _staging(folder) as staged:
        try:
            writer = arranged.write.options(**_PARQUET)
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
        parts = sorted(staged.glob("part-*.parquet"))
        if written is not None:
            _check_all_there(folder, parts, written.get["rows"])
        for part in parts:
            yield part.rename(_new_name(folder))


def _is_local(spark: SparkSession) -> bool:
    """Whether what Spark writes is written by this machine."""
    return (spark.conf.get("spark.master", "") or "").startswith("local")


def _check_all_there(folder: Path, parts: Sequence[Path], written: int) -> None:
    """A network file system may show this machine less than executors have written."""
    found = sum(pq.read_metadata(part).num_rows for part in parts)
    if found != written:
        raise LakeUnavailable(
            f"{folder.name}: executors wrote {written:,} rows, and this machine sees {found:,} of them",
            subject=folder.name,
            hint="mount the lake so that files are seen at once (NFS: actimeo=0); the step is repeated",
        )


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


# Files of a table, and which of them may hold what is looked for.
#
# The law: leaving a file out must never lose a row. A file is left out only where its statistics say that
# no row of it can match; where they say nothing, it stays.


CSN = "_csn"
"""The column that carries the commit sequence number of a row."""


@dataclass(frozen=True)
class LakeFile:
    """A data file: its path relative to the table and what is known of its columns.

    `minimum` and `maximum` are bounds (long strings are shortened), `nulls` is exact; a column that is
    missing there is unknown.
    """

    path: str
    rows: int
    size: int
    minimum: Mapping[str, Any]
    maximum: Mapping[str, Any]
    nulls: Mapping[str, int] = field(default_factory=dict)


def within(files: Iterable[LakeFile], csn: tuple[int, int]) -> tuple[LakeFile, ...]:
    """The files that may hold rows of the interval (after, upto]."""
    after, upto = csn
    return tuple(
        file
        for file in files
        if file.minimum.get(CSN, upto) <= upto and file.maximum.get(CSN, after + 1) > after
    )


def holding(files: Iterable[LakeFile], column: str, values: Sequence[Any]) -> tuple[LakeFile, ...]:
    """The files that may hold a row with one of these values in the column; None among them means NULL."""
    known = sorted(value for value in values if value is not None)
    wants_null = len(known) < len(values)
    return tuple(file for file in files if _may_hold(file, column, known, wants_null))


def _may_hold(file: LakeFile, column: str, values: Sequence[Any], wants_null: bool) -> bool:
    nulls = file.nulls.get(column)
    if wants_null and nulls != 0:
        return True
    if not values or nulls == file.rows:
        return False
    minimum, maximum = file.minimum.get(column), file.maximum.get(column)
    if minimum is None or maximum is None:
        return True
    place = bisect_left(values, minimum)
    return place < len(values) and bool(values[place] <= maximum)

"""Rows of lake tables as bags: at the driver if they are few, else in Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rollview.algebra.bag import COUNT, keep
from rollview.algebra.history import CSN
from rollview.deferred_import import deferred
from rollview.lake import LakeFile, LakeTable
from rollview.service.session import Session
from rollview.spark import SparkBag
from rollview.spark.bag import DRIVER_ROWS
from rollview.spark.scan import frame_of

if TYPE_CHECKING:
    from pyspark.sql import functions as f
else:
    f = deferred("pyspark.sql.functions")

_SEARCHED_ROWS = 30_000_000
"""Among so many rows Arrow finds those with given values faster than a Spark job."""

_ONE = pa.scalar(1, pa.int64())


def read_files(
    session: Session,
    table: LakeTable,
    files: Sequence[LakeFile],
    types: Sequence[tuple[str, str]] = (),
    holding: tuple[str, Sequence[Any]] | None = None,
) -> SparkBag:
    """Files of a lake table; where it has no counts, every row counts once.

    All rows, or at least those that have one of the values in a column. `types` are the columns of a version
    that had other ones than the table has now.
    """
    is_counted = COUNT in dict(types or table.columns)
    if sum(file.rows for file in files) <= (DRIVER_ROWS if holding is None else _SEARCHED_ROWS):
        rows = table.load(files, types=types, holding=holding)
        once = rows if is_counted else rows.append_column(COUNT, pa.repeat(_ONE, rows.num_rows))
        return SparkBag.of_rows(lambda: session.spark, once)
    frame = frame_of(session.spark, table.scan(files, types=types))
    return SparkBag(frame if is_counted else frame.withColumn(COUNT, f.lit(1).cast("bigint")))


def read_range(session: Session, table: LakeTable, after: int, upto: int) -> SparkBag:
    """The rows of a log with after < csn ≤ upto: its columns, `_csn` last."""
    names = [name for name, _ in table.columns if name not in (COUNT, CSN)]
    if upto <= after:
        files: tuple[LakeFile, ...] = ()
    else:
        files = table.files(csn=(after, upto))
    if sum(file.rows for file in files) <= DRIVER_ROWS:
        rows = SparkBag.of_rows(lambda: session.spark, table.load(files, csn=(after, upto)))
    else:
        rows = SparkBag.of_rows(session.spark, table.scan(files, csn=(after, upto)))
    return rows.project(keep((*names, CSN)))

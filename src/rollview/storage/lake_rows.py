"""Rows of lake tables, as bags or on their way there: at the driver if they are few, else in Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from numpy import repeat

from rollview.algebra.bag import COUNT, keep
from rollview.algebra.history import CSN
from rollview.bags import DRIVER_ROWS, PlacedBag
from rollview.imports import deferred
from rollview.lake import LakeFile, LakeTable
from rollview.rows import Rows, arrow_schema
from rollview.runtime.session import Session
from rollview.spark.gate import checked_expr
from rollview.spark.scan import frame_of
from rollview.views.comparison import named

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
) -> PlacedBag:
    """Files of a lake table; where it has no counts, every row counts once.

    All rows, or at least those that have one of the values in a column. `types` are the columns of a version
    that had other ones than the table has now.
    """
    is_counted = COUNT in dict(types or table.columns)
    if sum(file.rows for file in files) <= (DRIVER_ROWS if holding is None else _SEARCHED_ROWS):
        rows = table.load(files, types=types, holding=holding)
        once = rows if is_counted else rows.append_column(COUNT, pa.repeat(_ONE, rows.num_rows))
        return PlacedBag.of_rows(lambda: session.spark, once)
    frame = frame_of(session.spark, table.scan(files, types=types))
    return PlacedBag(frame if is_counted else frame.withColumn(COUNT, f.lit(1).cast("bigint")))


def read_range(session: Session, table: LakeTable, after: int, upto: int) -> PlacedBag:
    """The rows of a log with after < csn ≤ upto: its columns, `_csn` last."""
    names = [name for name, _ in table.columns if name not in (COUNT, CSN)]
    if upto <= after:
        files: tuple[LakeFile, ...] = ()
    else:
        files = table.files(csn=(after, upto))
    if sum(file.rows for file in files) <= DRIVER_ROWS:
        rows = PlacedBag.of_rows(lambda: session.spark, table.load(files, csn=(after, upto)))
    else:
        rows = PlacedBag.of_rows(session.spark, table.scan(files, csn=(after, upto)))
    return rows.project(keep((*names, CSN)))


def timed_rows(
    session: Session, columns: Sequence[tuple[str, str]], pieces: Sequence[tuple[int, Rows]]
) -> Any:
    """The rows of all pieces, each with its csn: an Arrow table where all are, else a frame.

    They get all columns of the log, whatever columns the table still has.
    """
    schema = arrow_schema(columns)
    few = [(csn, rows) for csn, rows in pieces if isinstance(rows, pa.Table)]
    at_driver = _timed_at_driver(schema, few)
    if len(few) == len(pieces):
        return at_driver
    whole = PlacedBag.of_rows(session.spark, at_driver).frame
    for csn, rows in pieces:
        if not isinstance(rows, pa.Table):
            net = PlacedBag.of_rows(session.spark, rows).net_effect().frame
            frame = net.withColumn(CSN, checked_expr(f"CAST({csn} AS BIGINT)"))
            own = [name for name in frame.columns if name in schema.names]
            whole = whole.unionByName(frame.select(*map(named, own)), allowMissingColumns=True)
    return whole


def _timed_at_driver(schema: pa.Schema, pieces: Sequence[tuple[int, pa.Table]]) -> pa.Table:
    """The rows of many small pieces as one table: joined first, so that a piece costs next to nothing."""
    if not pieces:
        return schema.empty_table()
    wanted = set(schema.names) - {CSN}
    own = [[name for name in rows.column_names if name in wanted] for _, rows in pieces]
    tables = [rows.select(names) for (_, rows), names in zip(pieces, own, strict=True)]
    rows = pa.concat_tables(tables, promote_options="permissive")
    for name in wanted - set(rows.column_names):
        rows = rows.append_column(schema.field(name), pa.nulls(rows.num_rows, schema.field(name).type))
    csns = repeat([csn for csn, _ in pieces], [rows.num_rows for _, rows in pieces])
    timed = rows.append_column(CSN, pa.array(csns, pa.int64()))
    return timed.select(schema.names).cast(schema).combine_chunks()

"""Rows as DataFrames: Arrow tables as local relations, Parquet files as scans. Making one runs no job.

Schemas are always given. Left to itself Spark would read footers to find one, and would take Arrow timestamps
without a zone for instants in the session's zone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollview.algebra.expression import Column, Expression, Literal, call, conjunction, to_sql
from rollview.imports import deferred
from rollview.rows import ColumnRanges, FileScan, Rows, ScanFile, arrow_schema, spark_type, type_sql
from rollview.spark.gate import checked_expr

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as f
    from pyspark.sql import types as spark_types
else:
    f = deferred("pyspark.sql.functions")
    spark_types = deferred("pyspark.sql.types")

_PATTERN = re.compile(r"[\\*?\[\]{}]")
_Types = Sequence[tuple[str, str]]


def frame_of(spark: SparkSession, rows: Rows) -> DataFrame:
    """Rows as a DataFrame; nothing is read before a job needs it."""
    if isinstance(rows, FileScan):
        return _scanned(spark, rows)
    types = [(field.name, spark_type(field.type)) for field in rows.schema]
    # One batch, or every chunk would become a task.
    return spark.createDataFrame(rows.combine_chunks(), _ddl(types))


def _scanned(spark: SparkSession, scan: FileScan) -> DataFrame:
    """One read per set of constants, put together; ranges last, where Spark pushes it down itself."""
    if not scan.files:
        return frame_of(spark, arrow_schema(scan.schema).empty_table())
    groups: dict[tuple[tuple[str, str], ...], list[ScanFile]] = {}
    for file in scan.files:
        key = tuple(sorted((name, repr(value)) for name, value in file.constants.items()))
        groups.setdefault(key, []).append(file)
    frames = [_read(spark, scan.schema, files) for files in groups.values()]
    frame = reduce(lambda one, other: one.union(other), frames)
    return frame.where(checked_expr(to_sql(condition_of(scan.within)))) if scan.within else frame


def condition_of(within: Sequence[ColumnRanges]) -> Expression:
    """Ranges as a condition that Spark can push down."""
    return conjunction(tuple(_within(each) for each in within))


def _within(ranges: ColumnRanges) -> Expression:
    column = Column(ranges.column)
    parts: list[Expression] = [
        call("AND", call(">=", column, _literal(low)), call("<=", column, _literal(high)))
        for low, high in ranges.ranges
    ]
    return parts[0] if len(parts) == 1 else call("OR", *parts)


def _literal(value: Any) -> Literal:
    """A time without a zone becomes a text, which Spark casts where it is compared with such a column."""
    is_zoneless = isinstance(value, datetime) and value.tzinfo is None
    return Literal(value.isoformat(sep=" ") if is_zoneless else value)


def _read(spark: SparkSession, schema: _Types, files: Sequence[ScanFile]) -> DataFrame:
    constants = files[0].constants
    stored = [(name, kind) for name, kind in schema if name not in constants]
    reader = spark.read.schema(_ddl(stored) if stored else spark_types.StructType())
    frame = reader.parquet(*(_located(file.path) for file in files))
    return frame.select(*(_column(name, kind, constants) for name, kind in schema))


def _column(name: str, kind: str, constants: Mapping[str, Any]) -> SparkColumn:
    if name in constants:
        return f.lit(_unambiguous(constants[name], kind)).cast(type_sql(kind)).alias(name)
    return f.col(to_sql(Column(name)))


def _unambiguous(value: Any, kind: str) -> Any:
    """A constant that Spark reads in one way only: its literals of times depend on the session's zone."""
    if not isinstance(value, datetime):
        return value
    instant = kind == "timestamp" and value.tzinfo is None
    return (value.replace(tzinfo=UTC) if instant else value).isoformat(sep=" ")


def _located(path: str) -> str:
    """A path as Spark takes it: plain ones are of this machine, and none of them is a pattern."""
    located = path if "://" in path else f"file://{Path(path).absolute()}"
    return _PATTERN.sub(r"\\\g<0>", located)


def _ddl(types: _Types) -> str:
    return ", ".join(f"{to_sql(Column(name))} {type_sql(kind)}" for name, kind in types)

"""Conditions of scans, as Spark understands them: they lose no wanted row, and reach the Parquet reader."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from rollview.algebra.expression import to_sql
from rollview.rows import arrow_type
from rollview.sources.files.key_filter import key_filters
from rollview.spark.scan import condition_of
from servers.spark import shared_session

pytestmark = pytest.mark.slow

_TIME = datetime.datetime(2020, 1, 1, 2, 30, 0, 123456)
VALUES: dict[str, list[Any]] = {
    "bigint": [-(2**63), -5, 0, 7, 2**40, 2**63 - 1],
    "int": [-(2**31), 0, 2**31 - 1],
    "smallint": [-300, 0, 300],
    "string": ["", "it's", "back\\slash", "größer", "\U0001f600", "z" * 100],
    "date": [datetime.date(1900, 1, 1), datetime.date(2020, 2, 29)],
    "timestamp": [_TIME.replace(tzinfo=datetime.UTC), datetime.datetime(1990, 1, 1, tzinfo=datetime.UTC)],
    "timestamp_ntz": [_TIME, datetime.datetime(1990, 1, 1)],
    "decimal(15,2)": [Decimal("-1.10"), Decimal("0.00"), Decimal("9999999999999.99")],
    "decimal(38,10)": [Decimal(10) ** 27, Decimal("-0.0000000001")],
}


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """A session with a zone of its own."""
    zone = {"spark.sql.session.timeZone": "America/New_York"}
    return shared_session({"spark.sql.shuffle.partitions": "1", **zone})


@pytest.mark.parametrize("kind", VALUES)
def test_a_condition_keeps_every_wanted_row(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Even in a session with a zone of its own."""
    values = VALUES[kind]
    rows = pa.table({"k": pa.array([*values, None], arrow_type(kind)), "n": range(len(values) + 1)})
    pq.write_table(rows, tmp_path / "t.parquet")
    frame = spark.read.schema(f"k {kind}, n bigint").parquet(str(tmp_path / "t.parquet"))
    for size in range(1, len(values) + 1):
        keys = pa.table({"k": pa.array(values[:size], arrow_type(kind))})
        (key,) = key_filters(keys, {"k": kind})
        kept = frame.where(f.expr(to_sql(condition_of([key.column_ranges()]))))
        assert {row["n"] for row in kept.select("n").collect()} == set(range(size))


@pytest.mark.parametrize("kind", ["bigint", "string", "date", "timestamp", "timestamp_ntz", "decimal(15,2)"])
def test_a_condition_is_pushed_down(
    spark: SparkSession, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    values = VALUES[kind]
    pq.write_table(pa.table({"k": pa.array(values, arrow_type(kind))}), tmp_path / "t.parquet")
    keys = pa.table({"k": pa.array(values[:1], arrow_type(kind))})
    (key,) = key_filters(keys, {"k": kind})
    frame = spark.read.schema(f"k {kind}").parquet(str(tmp_path / "t.parquet"))
    frame.where(f.expr(to_sql(condition_of([key.column_ranges()])))).explain()
    (pushed,) = [line for line in capsys.readouterr().out.splitlines() if "PushedFilters" in line]
    assert "GreaterThanOrEqual(k" in pushed and "LessThanOrEqual(k" in pushed

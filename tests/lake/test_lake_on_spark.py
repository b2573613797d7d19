"""Spark writes what Arrow writes, and reads what either wrote, without a job to find out what is there."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from lake_rows import CHANGES, EVERY_TYPE, bag, change_log, changes, commit, content, every_type
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from rollview.errors import LakeError, LakeUnavailable
from rollview.lake import FileLayout, LakeTable, data_files
from rollview.rows import ColumnRanges, FileScan, ScanFile, arrow_schema
from rollview.spark.scan import frame_of

pytestmark = pytest.mark.slow


def collected(frame: DataFrame) -> pa.Table:
    """A frame's rows in Arrow, with time zones."""
    return frame.toArrow()


def jobs(spark: SparkSession, name: str, action: Any) -> int:
    """How many jobs an action runs."""
    context = spark.sparkContext
    context.setJobGroup(name, name)
    try:
        action()
        return len(context.statusTracker().getJobIdsForGroup(name))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


@pytest.fixture
def everything(tmp_path: Path) -> LakeTable:
    table = LakeTable(tmp_path / "a [b] {c}*? k=1 é" / "types")
    table.create(EVERY_TYPE)
    return table


def test_every_type_through_both_writers(spark: SparkSession, everything: LakeTable) -> None:
    table, rows = everything, every_type()
    frame = frame_of(spark, rows)
    assert collected(frame).cast(rows.schema).equals(rows)
    assert dict(frame.dtypes) == dict(EVERY_TYPE)
    table.append(frame.select(*reversed([f"`{name}`" for name in frame.columns])), commit(1))
    assert bag(table.load(table.files())) == bag(rows)
    spark_files = table.files()
    table.append(rows, commit(2))
    assert bag(table.load(table.files())) == bag(pa.concat_tables([rows, rows]))
    assert bag(pa.table(DeltaTable(table.folder).to_pyarrow_table()).cast(rows.schema)) == content(table)
    found = collected(frame_of(spark, table.scan(table.files())))
    assert bag(found.cast(rows.schema)) == content(table)
    for file in spark_files:
        schema = pq.read_schema(table.folder / file.path)
        assert schema.field("instant").type == pa.timestamp("us", "UTC")
        assert schema.field("local").type == pa.timestamp("us")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        paths = [str(table.folder / file.path) for file in table.files()]
        query = "SELECT * FROM read_parquet($1) ORDER BY _csn"
        # DuckDB takes these characters for a pattern, as every reader of plain paths may.
        links = [_plain(path, table.folder.parent.parent) for path in paths]
        read = connection.sql(query, params=[links]).to_arrow_table()
        assert bag(read.cast(rows.schema)) == content(table)


def _plain(path: str, folder: Path) -> str:
    link = folder / Path(path).name
    link.symlink_to(path)
    return str(link)


def test_statistics_of_both_writers_agree(spark: SparkSession, everything: LakeTable) -> None:
    everything.append(every_type(), commit(1))
    everything.append(frame_of(spark, every_type()).coalesce(1), commit(2))
    one, other = everything.files()
    assert (one.rows, one.minimum, one.maximum, one.nulls) == (
        other.rows,
        other.minimum,
        other.maximum,
        other.nulls,
    )


def test_the_empty_table_and_the_empty_scan(spark: SparkSession, everything: LakeTable) -> None:
    empty = arrow_schema(EVERY_TYPE).empty_table()
    for rows in (empty, everything.scan(())):
        frame = frame_of(spark, rows)
        assert dict(frame.dtypes) == dict(EVERY_TYPE)
        assert frame.count() == 0
    version = everything.append(frame_of(spark, empty), commit(1))
    assert (version, everything.files(), everything.last_step("capture")) == (1, (), 1)
    assert list(everything.folder.glob("*.parquet")) == []
    assert not list((everything.folder / "_staging").glob("*"))


def test_making_a_frame_runs_no_job(spark: SparkSession, tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=50, rows=5)
    rows = changes(1, 5000)
    chunks = pa.concat_tables([rows.slice(start, 100) for start in range(0, 5000, 100)])
    assert jobs(spark, "table", lambda: frame_of(spark, chunks)) == 0
    scan = table.scan(table.files(), csn=(3, 40))
    assert jobs(spark, "scan", lambda: frame_of(spark, scan)) == 0
    assert jobs(spark, "empty", lambda: frame_of(spark, table.scan(())).explain()) == 0
    assert jobs(spark, "collect", lambda: frame_of(spark, rows.slice(0, 10)).collect()) == 0
    assert jobs(spark, "write", lambda: table.append(frame_of(spark, scan), commit(51))) == 1
    removed = table.files(csn=(0, 9))
    again = frame_of(spark, table.scan(removed))
    # Adaptive execution runs the two sides of the one shuffle as two jobs.
    layout = FileLayout(("k",), expected_rows=sum(file.rows for file in removed))
    assert jobs(spark, "sort", lambda: table.replace(removed, [again], commit(1, "apply"), layout)) == 2


def test_the_condition_and_the_columns_of_a_scan(spark: SparkSession, tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=10)
    table.compact(commit(1, "compact"))
    scan = table.scan(table.files(csn=(3, 6)), columns=["_csn", "name"], csn=(3, 6))
    found = collected(frame_of(spark, scan))
    assert bag(found) == bag(table.load(table.files(), columns=["_csn", "name"], csn=(3, 6)))
    assert found.num_rows == 30


def test_constants_are_columns(spark: SparkSession, tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=3, rows=2)
    values = [
        {"_count": 1, "day": dt.date(2020, 1, 1), "price": Decimal("1.50"), "at": None},
        {"_count": -1, "day": None, "price": Decimal("2"), "at": dt.datetime(2020, 1, 1, 12)},
        {"_count": 1, "day": "2020-01-01", "price": "1.5", "at": None},
    ]
    paths = [str(table.folder / file.path) for file in sorted(table.files(), key=lambda x: x.minimum["_csn"])]
    schema = (
        ("at", "timestamp_ntz"),
        ("k", "bigint"),
        ("_count", "bigint"),
        ("day", "date"),
        ("price", "decimal(9,2)"),
        ("_csn", "bigint"),
    )
    files = tuple(ScanFile(path, constants) for path, constants in zip(paths, values, strict=True))
    frame = frame_of(spark, FileScan(files, schema, (ColumnRanges("_csn", ((0, 2),)),)))
    assert tuple(frame.dtypes) == schema
    found = {row[2:]: row[0] for row in frame.collect()}
    assert found == {
        (1, dt.date(2020, 1, 1), Decimal("1.50"), 1): None,
        (-1, None, Decimal("2.00"), 2): dt.datetime(2020, 1, 1, 12),
    }
    moment = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)
    instants = tuple(ScanFile(paths[0], {"at": at}) for at in (moment, moment.replace(tzinfo=None)))
    found_instants = collected(frame_of(spark, FileScan(instants, (("at", "timestamp"),))))["at"].to_pylist()
    assert found_instants == [moment] * 4
    only = FileScan(files, (("_count", "bigint"),))
    assert Counter(row[0] for row in frame_of(spark, only).collect()) == {1: 4, -1: 2}


def test_replace_sorts_and_splits(spark: SparkSession, tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=4, rows=500)
    before, all_files = content(table), table.files()
    rows, known = frame_of(spark, table.scan(all_files)).cache(), {file.path for file in all_files}
    for number, removed in enumerate([all_files, ()], start=1):
        layout = FileLayout(("k", "name"), 600, sum(file.rows for file in removed))
        table.replace(removed, [rows], commit(number, "apply"), layout)
        files = [file for file in table.files() if file.path not in known]
        assert 4 <= len(files) <= 8 and all(file.rows <= 600 for file in files)
        ranges = sorted((file.minimum["k"], file.maximum["k"]) for file in files)
        assert all(one[1] <= other[0] for one, other in pairwise(ranges))
        for file in files:
            keys = table.load([file], columns=["k"])["k"].to_pylist()
            assert keys == sorted(keys)
        known = {file.path for file in table.files()}
    assert content(table) == before + before
    assert not list((table.folder / "_staging").glob("*"))


def test_compaction_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=12)
    before = content(table)
    assert table.compact(commit(1, "compact"), rewrite=lambda scan: frame_of(spark, scan)) == 13
    assert content(table) == before and len(table.files()) == 1
    csns = table.load(table.files(), columns=["_csn"])["_csn"].to_pylist()
    assert csns == sorted(csns)


def test_failures_of_spark_leave_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=1)
    files = sorted(table.folder.glob("*"))
    frame = frame_of(spark, changes(2, 10))
    with pytest.raises(LakeError, match="columns"):
        table.append(frame.drop("name"), commit(2))
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        table.append(frame.withColumn("k", f.expr("k div (_csn - 2)")), commit(2))
    with pytest.raises(PySparkException, match="NO space"):
        table.append(frame.withColumn("k", f.expr("raise_error('NO space')")), commit(2))
    with pytest.raises(LakeError, match="disk is full"):
        table.append(frame.withColumn("k", f.expr("raise_error('No space left on device')")), commit(2))
    assert [path for path in sorted(table.folder.glob("*")) if path.name != "_staging"] == files
    assert not list((table.folder / "_staging").glob("*"))
    assert (table.version(), table.columns) == (1, CHANGES)


def test_files_that_are_not_seen_yet_are_missed(
    spark: SparkSession, everything: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may show the files of executors late; their rows must not be lost silently."""
    frame = frame_of(spark, pa.concat_tables([every_type()] * 2)).repartition(2)
    monkeypatch.setattr(data_files, "_is_local", lambda _: False)
    everything.append(frame, commit(1))
    assert sum(file.rows for file in everything.files()) == frame.count()
    glob = Path.glob

    def late(folder: Path, pattern: str) -> list[Path]:
        return sorted(glob(folder, pattern))[pattern == "part-*.parquet" :]

    monkeypatch.setattr(Path, "glob", late)
    with pytest.raises(LakeUnavailable, match=r"executors wrote .* rows, and this machine sees"):
        everything.append(frame, commit(2))
    monkeypatch.undo()
    assert everything.last_step("capture") == 1

"""Look-ups in Delta tables: files are pruned by statistics, and never one too many."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_tables import Opened, counts
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from rollview.lab.memory.compiled import compile_expression
from rollview.lab.memory.moments import in_utc
from rollview.rows import FileScan
from rollview.sources.delta import DeltaSource
from rollview.sources.delta.place import FolderTable
from rollview.sources.delta.snapshot import Bounds, FollowedTable, bounds_of, may_match
from rollview.sources.files import state
from rollview.sources.files.key_filter import MOST_RANGES, key_filters
from rollview.spark.scan import condition_of
from rollview.testing.lookup_suite import first_plan

_DAY = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
MAKE: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "bigint": (pa.int64(), lambda n: n * 1000),
    "string": (pa.string(), lambda n: f"{'prefix ' * 12}{n:04d}\U0010ffff{n % 7}"),
    "date": (pa.date32(), lambda n: _DAY.date() + datetime.timedelta(days=n)),
    "timestamp": (pa.timestamp("us", "UTC"), lambda n: _DAY + datetime.timedelta(microseconds=n * 333)),
    "timestamp_ntz": (
        pa.timestamp("us"),
        lambda n: _DAY.replace(tzinfo=None) + datetime.timedelta(microseconds=n * 333),
    ),
    "decimal(15,2)": (pa.decimal128(15, 2), lambda n: Decimal(n).scaleb(-2)),
    "decimal(38,10)": (pa.decimal128(38, 10), lambda n: Decimal(10**27) + Decimal(n).scaleb(-10)),
    "decimal(20,5)": (pa.decimal128(20, 5), lambda n: Decimal(123456789012345) + Decimal(n).scaleb(-5)),
    "double": (pa.float64(), lambda n: n / 3),
    "boolean": (pa.bool_(), lambda n: bool(n % 2)),
    "binary": (pa.binary(), lambda n: bytes([255, n % 256])),
}


def table_of(folder: Path, kind: str, files: list[list[int | None]], name: str = "t") -> None:
    """A table with a file per list, of values made from its numbers."""
    arrow, make = MAKE[kind]
    for numbers in files:
        values = pa.array([None if n is None else make(n) for n in numbers], arrow)
        rows = pa.table({"k": values, "n": pa.array(numbers, pa.int64())})
        write_deltalake(str(folder / name), rows, mode="append")


def look_up(folder: Path, kind: str, numbers: list[int | None], key_type: pa.DataType | None = None) -> Any:
    """Looks up `t` by values made from these numbers."""
    arrow, make = MAKE[kind]
    if not (folder / "known").exists():
        write_deltalake(str(folder / "known"), pa.table({"k": pa.array([], arrow)}))
    source = DeltaSource("d", folder)
    sql = "SELECT o.k, t.n FROM d.known o JOIN d.t t ON o.k = t.k"
    values = pa.array([None if n is None else make(n) for n in numbers], arrow)
    keys = {"k": values if key_type is None else values.cast(key_type)}
    return source.lookup(first_plan(source, sql, source.tables(), keys)).rows[0]


@pytest.mark.parametrize("few", [0, state.FEW_ROWS])
@pytest.mark.parametrize("kind", MAKE)
def test_every_match_is_found_by_every_type(
    tmp_path: Path, kind: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "FEW_ROWS", few)
    files: list[list[int | None]] = [[n, n + 1, None] for n in range(0, 40, 2)]
    table_of(tmp_path, kind, [*files, [None, None], [5, 1000]])
    wanted = [3, 4, 17, None, 5000]
    rows = look_up(tmp_path, kind, wanted)
    if isinstance(rows, FileScan) and rows.within:
        holds = compile_expression(condition_of(rows.within), ("k",))
        kept = {row: count for row, count in counts(rows).items() if holds((in_utc(row[0]),)) is True}
    else:
        kept = counts(rows)
    _, make = MAKE[kind]
    looked_for = {make(n) for n in wanted if n is not None}
    expected = {n for n in [*range(40), 1000] if make(n) in looked_for}
    assert {row[1] for row in kept if row[0] in looked_for} == expected
    assert len(kept) >= len(expected)


def test_few_files_are_read_for_few_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "FEW_ROWS", 0)
    table_of(tmp_path, "bigint", [[n, n + 1] for n in range(0, 40, 2)])
    rows = look_up(tmp_path, "bigint", [3, 17])
    assert isinstance(rows, FileScan)
    assert len(rows.files) == 2
    assert rows.within
    assert look_up(tmp_path, "bigint", [None]).num_rows == 0
    assert look_up(tmp_path, "bigint", []).num_rows == 0
    assert look_up(tmp_path, "bigint", [999]).num_rows == 0


def test_keys_of_other_types(tmp_path: Path) -> None:
    """Spark joins a bigint with an int or a string column by converting; nothing may be lost by that."""
    table_of(tmp_path, "bigint", [[1, 2], [3, 4]])
    for kind in (pa.int32(), pa.decimal128(20, 0), pa.string(), pa.float64()):
        assert {1, 3} <= {row[-1] for row in counts(look_up(tmp_path, "bigint", [1, 3], kind))}


def test_a_narrow_column_ignores_keys_that_it_cannot_hold(tmp_path: Path) -> None:
    keys = pa.table({"k": pa.array([1, 2**40, -(2**40), 300], pa.int64())})
    for kind, expected in (("int", [1, 300]), ("tinyint", [1])):
        (key,) = key_filters(keys, {"k": kind})
        assert key.listed == expected


@settings(deadline=None)
@given(st.sets(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=60))
def test_ranges_are_few_and_hold_every_value(values: set[int]) -> None:
    (key,) = key_filters(pa.table({"k": pa.array(values, pa.int64())}), {"k": "bigint"})
    assert key.listed == sorted(values)
    assert len(key.ranges) <= MOST_RANGES
    assert all(any(low <= value <= high for low, high in key.ranges) for value in values)
    assert all(low in values and high in values for low, high in key.ranges)
    if len(values) <= MOST_RANGES:
        assert all(low == high for low, high in key.ranges)


bounds = st.lists(
    st.tuples(st.none() | st.integers(0, 30), st.none() | st.integers(0, 10), st.booleans()), max_size=12
)


@given(bounds, st.sets(st.integers(0, 40)))
def test_oracle_pruning_keeps_what_a_look_at_every_value_keeps(
    files: list[tuple[int | None, int | None, bool]], values: set[int]
) -> None:
    least = [low for low, _, _ in files]
    greatest = [None if width is None else (low or 0) + width for low, width, _ in files]
    (key,) = key_filters(pa.table({"k": pa.array(values, pa.int64())}), {"k": "bigint"})
    kept = may_match(key, Bounds(least, greatest, [empty for *_, empty in files]), range(len(files)))
    expected = [
        position
        for position, (low, high) in enumerate(zip(least, greatest, strict=True))
        if not files[position][2]
        and any((low is None or low <= value) and (high is None or value <= high) for value in values)
    ]
    assert kept == expected


def test_pruning_thousands_of_files_by_many_keys_is_quick() -> None:
    files, keys = 5000, 100_000
    actions = pa.table(
        {
            "num_records": pa.array([100] * files),
            "null_count.k": pa.array([0] * files),
            "min.k": pa.array(range(0, files * 1000, 1000)),
            "max.k": pa.array(range(900, files * 1000 + 900, 1000)),
        }
    )
    table = pa.table({"k": pa.array(range(0, keys * 3, 3))})
    best = 10.0
    for _ in range(3):
        started = time.perf_counter()
        (key,) = key_filters(table, {"k": "bigint"})
        found = bounds_of(actions, "k", is_partition=False)
        assert found is not None
        assert len(may_match(key, found, range(files))) == 300
        best = min(best, time.perf_counter() - started)
    assert best < 0.5


def test_what_is_kept_follows_the_table(tmp_path: Path) -> None:
    """The same object follows commits, and is not confused by compaction."""
    table_of(tmp_path, "bigint", [[1], [2]])
    followed = FollowedTable("d.t", FolderTable(tmp_path / "t"))
    first = followed.snapshot()
    assert followed.snapshot() is first
    table_of(tmp_path, "bigint", [[3]])
    assert len(followed.snapshot().files) == 3
    DeltaTable(tmp_path / "t").optimize.compact()
    assert followed.snapshot().version == 3
    assert len(followed.snapshot().files) == 1
    assert len(first.files) == 2


def test_partitions_prune_and_fill_in_their_values(opened: Opened, tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 1, 2, None], "n": [1, 2, 3, 4]})
    write_deltalake(str(tmp_path / "t"), rows, partition_by=["k"])
    arrow, _ = MAKE["bigint"]
    write_deltalake(str(tmp_path / "known"), pa.table({"k": pa.array([], arrow)}))
    source = opened(tmp_path)
    sql = "SELECT o.k, t.k AS other, t.n FROM d.known o JOIN d.t t ON o.k = t.k"
    found = source.lookup(first_plan(source, sql, source.tables(), {"k": pa.array([1, None])})).rows[0]
    assert counts(found) == {(1, 1): 1, (1, 2): 1}


def test_old_timestamps_of_spark(tmp_path: Path) -> None:
    """INT96, as Spark wrote before version 3; far future values do not overflow."""
    times = [datetime.datetime(2020, 1, 1, 1, 1, 1, 123456), datetime.datetime(9999, 12, 31)]
    table_of(tmp_path, "timestamp", [[0, 1]])
    (file,) = (tmp_path / "t").glob("*.parquet")
    rows = pa.table({"k": pa.array(times, pa.timestamp("us")), "n": [0, 1]})
    pq.write_table(rows, file, use_deprecated_int96_timestamps=True)
    found, _ = captured_rows(tmp_path)
    assert {row[0].replace(tzinfo=None) for row in found} == set(times)


def captured_rows(folder: Path) -> Any:
    batch = DeltaSource("d", folder).capture("d.t", "-1:", 10)
    return counts(batch.transactions[0].rows["d.t"]), batch.log_position

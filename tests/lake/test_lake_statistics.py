"""Statistics are bounds of what is in the file: exact where they are short enough, and never narrower."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from lake_rows import EVERY_TYPE, commit, every_type

from rollview.errors import LakeError
from rollview.lake import LakeTable
from rollview.lake.data_files import INDEXED_COLUMNS, statistics_of

relaxed = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
LAST = "\U0010ffff"
letters = st.text(alphabet=st.sampled_from(["a", "b", "é", "\ud7ff", "\ue000", LAST, '"', "\\", "\n"]))


def bounds(file: Path) -> tuple[int, dict[str, Any], dict[str, Any], dict[str, Any]]:
    rows, text = statistics_of(file)
    said = json.loads(text, parse_float=Decimal)
    assert said["numRecords"] == rows
    return rows, said["minValues"], said["maxValues"], said["nullCount"]


def written(folder: Path, values: list[Any], kind: pa.DataType, group: int = 3) -> Path:
    file = folder / "one.parquet"
    pq.write_table(pa.table({"c": pa.array(values, kind)}), file, row_group_size=group)
    return file


@relaxed
@given(
    st.lists(
        st.none() | st.builds(lambda long, text: long * 31 + text, letters, letters), min_size=1, max_size=8
    )
)
@example([LAST * 40])
@example(["a" * 31 + LAST * 3])
@example(["a" * 31 + "\ud7ff" + "z"])
@example(["x" * 5000, None])
def test_strings_lie_between_their_bounds(tmp_path: Path, values: list[str | None]) -> None:
    _, minimum, maximum, nulls = bounds(written(tmp_path, values, pa.string()))
    known = [value for value in values if value is not None]
    assert nulls["c"] == len(values) - len(known)
    assert ("c" in minimum) == ("c" in maximum)
    if "c" in minimum:
        # The order of UTF-8, which is what every reader compares by.
        assert minimum["c"].encode() <= min(value.encode() for value in known)
        assert maximum["c"].encode() >= max(value.encode() for value in known)
        if all(len(value) <= 32 for value in known):
            assert (minimum["c"], maximum["c"]) == (min(known), max(known))
    else:
        assert not known or max(map(len, known)) > 1000


KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "tinyint": (pa.int8(), st.integers(-128, 127)),
    "decimal": (pa.decimal128(38, 4), st.decimals(-(10**33), 10**33, places=4, allow_nan=False)),
    "date": (pa.date32(), st.dates()),
    "timestamp_ntz": (pa.timestamp("us"), st.datetimes()),
    "timestamp": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC))),
}


@pytest.mark.parametrize("name", KINDS)
@relaxed
@given(data=st.data())
def test_numbers_and_times_are_exact_and_deltalake_reads_them_back(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    kind, values = KINDS[name]
    drawn = data.draw(st.lists(st.none() | values, min_size=1, max_size=7))
    rows = pa.table({"c": pa.array(drawn, kind), "_csn": [1] * len(drawn)})
    table = LakeTable(Path(mkdtemp(dir=tmp_path)) / "t")
    table.create((("c", name if name != "decimal" else "decimal(38,4)"), ("_csn", "bigint")))
    table.append(rows, commit(1))
    (file,) = table.files()
    known = [value for value in rows["c"].to_pylist() if value is not None]
    assert file.nulls == {"c": len(drawn) - len(known), "_csn": 0}
    assert file.rows == len(drawn)
    if known:
        assert (file.minimum["c"], file.maximum["c"]) == (min(known), max(known))
    else:
        assert "c" not in file.minimum and "c" not in file.maximum


def test_floating_point_numbers_have_no_bounds(tmp_path: Path) -> None:
    _, minimum, maximum, nulls = bounds(written(tmp_path, [1.0, math.nan, None], pa.float64()))
    assert (minimum, maximum, nulls) == ({}, {}, {"c": 1})


def test_dates_beyond_the_year_9999_are_unknown(tmp_path: Path) -> None:
    values = pa.array([5_000_000], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"c": values}), tmp_path / "one.parquet")
    _, minimum, maximum, nulls = bounds(tmp_path / "one.parquet")
    assert (minimum, maximum, nulls) == ({}, {}, {"c": 0})


def test_every_type_and_the_reader_of_deltalake(tmp_path: Path) -> None:
    table = LakeTable(tmp_path / "t")
    table.create(EVERY_TYPE)
    table.append(every_type(), commit(1))
    (file,) = table.files()
    without = {"flag", "single", "double", "bytes"}
    assert set(file.minimum) == set(dict(EVERY_TYPE)) - without
    for name in set(file.minimum) - {"text"}:
        known = [value for value in every_type()[name].to_pylist() if value is not None]
        assert (file.minimum[name], file.maximum[name]) == (min(known), max(known)), name
    assert all(file.nulls[name] in {0, 1, 2} for name, _ in EVERY_TYPE)
    # deltalake prunes by these statistics itself, and must find the rows.
    dataset = DeltaTable(table.folder).to_pyarrow_dataset()
    for name in ("big", "narrow", "wide", "text", "day", "instant", "local"):
        for value in every_type()[name].drop_null():
            assert dataset.to_table(filter=ds.field(name) == value).num_rows == 1, (name, value)


def test_columns_far_right_have_none_except_our_own(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(40)]
    rows = pa.table({**{name: [1] for name in names}, "_csn": [5]})
    pq.write_table(rows, tmp_path / "one.parquet")
    _, minimum, _, _ = bounds(tmp_path / "one.parquet")
    assert list(minimum) == [*names[:INDEXED_COLUMNS], "_csn"]


def test_outdated_timestamps_are_refused(tmp_path: Path) -> None:
    rows = pa.table({"c": pa.array([dt.datetime(2020, 1, 1)], pa.timestamp("us"))})
    pq.write_table(rows, tmp_path / "one.parquet", use_deprecated_int96_timestamps=True)
    with pytest.raises(LakeError, match="INT96"):
        statistics_of(tmp_path / "one.parquet")

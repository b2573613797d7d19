"""Leaving files out never loses a row: what is found with pruning is what a full read finds."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lake_rows import bag, change_log, changes, commit

from rollview.errors import LakeError
from rollview.lake import LakeFile, LakeTable
from rollview.lake.data_files import holding
from rollview.rows import arrow_schema

COLUMNS = (("k", "bigint"), ("s", "string"), ("d", "date"), ("f", "double"), ("_csn", "bigint"))
BEGIN = "the same long beginning of all these strings: "
texts = st.sampled_from(["", "a", "b", BEGIN, BEGIN + "a", BEGIN + "b", "\U0010ffff" * 33, "é"])
days = st.dates(dt.date(2020, 1, 1), dt.date(2020, 1, 6))
floats = st.sampled_from([0.0, 1.0, -1.0, float("nan"), float("inf")])
values: dict[str, st.SearchStrategy[Any]] = {
    "k": st.none() | st.integers(-3, 6),
    "s": st.none() | texts,
    "d": st.none() | days,
    "f": st.none() | floats,
}
rows = st.tuples(*values.values(), st.integers(1, 12))
appends = st.lists(st.lists(rows, max_size=5), min_size=1, max_size=5)


def filled(folder: Path, batches: Sequence[Sequence[tuple[Any, ...]]]) -> LakeTable:
    table = LakeTable(folder)
    table.create(COLUMNS)
    for step, batch in enumerate(batches, start=1):
        columns = list(zip(*batch, strict=True)) or [[] for _ in COLUMNS]
        table.append(pa.table(columns, schema=arrow_schema(COLUMNS)), commit(step))
    return table


def matches(found: Any, wanted: Sequence[Any]) -> bool:
    """Equality as a join of Spark understands it, with NULL equal to NULL where it was asked for."""
    return any(found is value or found == value or _both_nan(found, value) for value in wanted)


def _both_nan(*pair: Any) -> bool:
    return all(isinstance(value, float) and math.isnan(value) for value in pair)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), batches=appends)
def test_oracle_full_read(tmp_path: Path, data: st.DataObject, batches: Any) -> None:
    table = filled(Path(mkdtemp(dir=tmp_path)) / "t", batches)
    everything = table.load(table.files()).to_pylist()
    assert len(everything) == sum(len(batch) for batch in batches)
    for name, strategy in values.items():
        wanted = data.draw(st.lists(strategy, max_size=3))
        csn = tuple(sorted(data.draw(st.tuples(st.integers(0, 13), st.integers(0, 13)))))
        chosen = table.files(csn=csn, holding=(name, wanted))
        found = table.load(chosen, csn=csn).to_pylist()
        expected = [row for row in everything if csn[0] < row["_csn"] <= csn[1]]
        assert _matching(found, name, wanted) == _matching(expected, name, wanted)
        assert len(found) <= len(expected)
        assert bag(table.load(table.files(csn=csn), csn=csn).select(["_csn"])) == bag(
            pa.table({"_csn": pa.array([row["_csn"] for row in expected], pa.int64())})
        )


def _matching(found: Sequence[dict[str, Any]], name: str, wanted: Sequence[Any]) -> list[str]:
    return sorted(repr(row) for row in found if matches(row[name], wanted))


def test_pruning_does_leave_files_out(tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=10)
    assert len(table.files(csn=(3, 5))) == 2
    assert table.files(csn=(5, 5)) == ()
    assert table.files(csn=(10, 99)) == ()
    assert table.files(holding=("k", [-1, 1000])) == ()
    assert table.files(holding=("k", [])) == ()
    assert table.files(holding=("k", [None])) == ()
    assert table.files(holding=("name", ["zebra"])) == ()
    assert table.files(csn=(0, 2), version=1) == table.files(csn=(0, 1))


def test_what_is_unknown_stays() -> None:
    known = LakeFile("a", 2, 10, {"k": 1}, {"k": 5}, {"k": 0, "s": 2})
    assert holding([known], "k", [7]) == ()
    assert holding([known], "k", [0, 7]) == ()
    assert holding([known], "k", [0, 3, 7]) == (known,)
    assert holding([known], "k", [None]) == ()
    assert holding([known], "s", ["x"]) == ()
    assert holding([known], "s", [None]) == (known,)
    assert holding([known], "other", ["x"]) == (known,)
    assert holding([known], "other", [None]) == (known,)


def test_loading_columns_and_nothing(tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=3)
    assert table.load(table.files(), columns=["name"], csn=(1, 2)).equals(changes(2, 10).select(["name"]))
    nothing = table.load((), columns=["_csn", "k"])
    assert (nothing.num_rows, nothing.column_names) == (0, ["_csn", "k"])
    scan = table.scan(table.files(csn=(1, 2)), columns=["k", "_csn"], csn=(1, 2))
    assert scan.schema == (("k", "bigint"), ("_csn", "bigint"))
    assert len(scan.files) == 1
    with pytest.raises(LakeError, match="without the column"):
        table.scan(table.files(), columns=["k"], csn=(1, 2))

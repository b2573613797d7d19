"""A bag in a lake table, changed again and again: right after every change, and small changes are cheap."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from rollview.algebra.bag import COUNT
from rollview.bags import PlacedBag
from rollview.errors import CorruptView
from rollview.lake import Commit, LakeTable
from rollview.rows import arrow_schema
from rollview.storage import stored_bag
from rollview.storage.stored_bag import StoredBag
from rollview.views.layout import _sortable

pytestmark = pytest.mark.slow

COLUMNS = (("k", "int"), ("name", "string"))
KINDS = {"rows": COLUMNS, "state": (*COLUMNS, (COUNT, "bigint"))}


class Bench:
    """A table, and what it should hold."""

    def __init__(self, folder: Path, spark: SparkSession, kind: str) -> None:
        self.spark = spark
        self.table = LakeTable(folder)
        self.columns = KINDS[kind]
        self.table.create(self.columns)
        self.version, self.step = 0, 0
        self.expected: Counter[Any] = Counter()

    @property
    def bag(self) -> StoredBag:
        """The table at the version that was made last."""
        session: Any = SimpleNamespace(spark=self.spark)
        return StoredBag(session, self.table, "v", self.columns, ("k", "name"), self.version)

    def commit(self) -> Commit:
        self.step += 1
        return Commit("w", self.step, self.step, 1.0, "apply")

    def load(self, rows: Counter[Any]) -> None:
        self.version = self.bag.replace(self._bag(rows), self.commit())
        self.expected = Counter(rows)

    def change(self, changed: Counter[Any]) -> tuple[int, int]:
        """Makes a change; how many files and rows were taken away for it."""
        before = {file.path: file.rows for file in self.table.files()}
        self.version = self.bag.change(self._bag(changed), self.commit())
        after = {file.path for file in self.table.files()}
        self.expected.update(changed)
        self.expected = Counter({row: count for row, count in self.expected.items() if count})
        gone = [rows for path, rows in before.items() if path not in after]
        return len(gone), sum(gone)

    def check(self) -> None:
        stored = self.table.load(self.table.files()).to_pylist()
        found: Counter[Any] = Counter()
        for row in stored:
            found[(row["k"], row["name"])] += row.get(COUNT, 1)
        assert found == self.expected
        assert self.bag.rows().collect() == self.expected

    def _bag(self, rows: Counter[Any]) -> PlacedBag:
        schema = pa.schema([("k", pa.int32()), ("name", pa.string()), (COUNT, pa.int64())])
        columns = list(zip(*((*row, count) for row, count in rows.items()), strict=True)) or [(), (), ()]
        arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
        return PlacedBag.of_rows(self.spark, pa.table(arrays, schema))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_oracle_random_changes(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    """Small files and a short tail, so that everything happens; NULL keys, duplicates, rows that return."""
    monkeypatch.setattr(stored_bag, "SMALLEST_FILE", 40)
    monkeypatch.setattr(stored_bag, "SMALL", 10)
    monkeypatch.setattr(stored_bag, "MOST_SMALL", 3)
    chance = random.Random(seed)
    bench = Bench(tmp_path / "t", spark, kind)
    key = lambda: chance.choice([None, *range(300)])  # noqa: E731
    bench.load(Counter((key(), chance.choice("xyz")) for _ in range(chance.choice([0, 5, 400]))))
    bench.check()
    for number in range(25):
        changed: Counter[Any] = Counter()
        there = sorted(bench.expected, key=repr)
        for row in chance.sample(there, min(len(there), chance.randint(0, 6))):
            changed[row] -= chance.randint(1, bench.expected[row])
        for _ in range(chance.choice([0, 0, 3, 30])):
            changed[(key(), chance.choice("xyz"))] += chance.randint(1, 2)
        bench.change(Counter({row: count for row, count in changed.items() if count}))
        if number % 5 == 4:
            bench.check()
    bench.check()
    small = [file for file in bench.table.files() if file.rows < 10]
    assert len(small) <= 8


def test_a_small_change_leaves_most_files_alone(tmp_path: Path, spark: SparkSession) -> None:
    bench = Bench(tmp_path / "t", spark, "rows")
    bench.load(Counter({(k, "a"): 1 for k in range(400_000)}))
    assert len(bench.table.files()) == 8
    one_file = max(file.rows for file in bench.table.files())
    assert bench.change(Counter({(k, "new"): 1 for k in range(500_000, 500_010)})) == (0, 0)
    update = Counter({(7, "a"): -1, (7, "b"): 1, (399_000, "a"): -1})
    files, rows = bench.change(update)
    assert files == 2 and rows <= 2 * one_file
    # The files that were rewritten have the ranges that they had, so that it stays like this.
    for step in range(40):
        files, rows = bench.change(Counter({(step, "a" if step != 7 else "b"): -1, (600_000 + step, "n"): 1}))
        assert files <= 1 + stored_bag.MOST_SMALL + 1 and rows <= one_file + 1_000
    assert len(bench.table.files()) <= 8 + stored_bag.MOST_SMALL + 2
    bench.check()


def test_a_small_table_is_one_file(tmp_path: Path, spark: SparkSession) -> None:
    bench = Bench(tmp_path / "t", spark, "rows")
    for k in range(5):
        bench.change(Counter({(k, "a"): 2}))
    assert len(bench.table.files()) == 1
    bench.check()


def test_a_row_that_is_not_there_cannot_be_taken_away(tmp_path: Path, spark: SparkSession) -> None:
    bench = Bench(tmp_path / "t", spark, "rows")
    bench.load(Counter({(1, "a"): 1}))
    with pytest.raises(CorruptView, match="would leave -1 of a row") as caught:
        bench.change(Counter({(2, "a"): -1}))
    assert "rollview setup --reload v" in caught.value.hint


def test_a_step_is_made_once(tmp_path: Path, spark: SparkSession) -> None:
    bench = Bench(tmp_path / "t", spark, "rows")
    bench.load(Counter({(1, "a"): 1}))
    bag, commit, change = bench.bag, bench.commit(), bench._bag(Counter({(1, "b"): 3}))
    assert bag.change(change, commit) == bag.change(change, commit) == bench.table.version()
    bench.expected[(1, "b")] = 3
    bench.version = bench.table.version()
    bench.check()


KEYS: dict[str, Any] = {
    "tinyint": lambda k: k % 100,
    "bigint": lambda k: k * 10**15,
    "decimal(20,2)": lambda k: Decimal(k * 7) / 100 * 10**12,
    "string": lambda k: f"{'long ' * 9}{k:05}" if k % 2 else f"é{k:05}",
    "date": lambda k: dt.date(1969, 6, 1) + dt.timedelta(days=k),
    "timestamp": lambda k: dt.datetime(1969, 12, 31, 23, tzinfo=dt.UTC) + dt.timedelta(seconds=k * 61.000001),
    "timestamp_ntz": lambda k: dt.datetime(2026, 3, 29, 1) + dt.timedelta(seconds=k * 61.000001),
    "double": lambda k: float("nan") if k == 3 else k / 3,
    "boolean": lambda k: k % 2 == 0,
    "binary": lambda k: str(k).encode(),
}


@pytest.mark.parametrize("kind", KEYS)
def test_oracle_keys_of_any_type(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Bounds of files decide what is rewritten: of no type may they lose or double a row."""
    monkeypatch.setattr(stored_bag, "SMALLEST_FILE", 40)
    monkeypatch.setattr(stored_bag, "SMALL", 10)
    monkeypatch.setattr(stored_bag, "MOST_SMALL", 3)
    columns = (("k", kind), ("n", "int"))
    table = LakeTable(tmp_path / "t")
    order = _sortable(["k", "n"], columns)
    session: Any = SimpleNamespace(spark=spark)
    schema = arrow_schema((*columns, (COUNT, "bigint")))
    there: dict[int, int] = dict.fromkeys(range(200), 1)

    def bag(counts: dict[int, int]) -> PlacedBag:
        rows = [{"k": None if n % 50 == 49 else KEYS[kind](n), "n": n, COUNT: c} for n, c in counts.items()]
        return PlacedBag.of_rows(spark, pa.Table.from_pylist(rows, schema))

    version = StoredBag(session, table, "v", columns, order).replace(bag(there), Commit("w", 1, 1, 1.0, "x"))
    chance = random.Random(kind)
    for step in range(2, 8):
        changed = {n: -there[n] for n in chance.sample(sorted(there), 5)}
        changed |= dict.fromkeys(chance.sample(range(200, 400), 4), 2)
        changed = {n: count for n, count in changed.items() if there.get(n, 0) + count >= 0}
        stored = StoredBag(session, table, "v", columns, order, version)
        version = stored.change(bag(changed), Commit("w", step, step, 1.0, "x"))
        for n, count in changed.items():
            there[n] = there.get(n, 0) + count
        there = {n: count for n, count in there.items() if count}
        found = Counter(table.load(table.files())["n"].to_pylist())
        assert found == there

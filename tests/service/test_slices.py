"""A slice of a view is verified like the whole, and reads a slice of the tables where possible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from shop import Shop

from rollview.algebra.relation import Table
from rollview.project.project import Project
from rollview.sources.source import Lookup
from rollview.sources.sqlite import SQLiteSource
from rollview.upkeep.verify import Slice, Verification

pytestmark = pytest.mark.slow

_SALES, _FRACTION, _SEEDS, _HITTING = 60, 0.2, range(3), range(5)
_VIEWS = {
    "lines": """SELECT p.kind, s.amount, s.sale_id FROM shop.sales s
        JOIN shop.product p ON s.product_id = p.product_id""",
    "by_product": """SELECT p.product_id, count(*) AS n, sum(s.amount) AS total FROM shop.sales s
        JOIN shop.product p ON s.product_id = p.product_id GROUP BY p.product_id""",
    "by_kind": "SELECT kind, count(*) AS n FROM shop.product GROUP BY kind",
    "twice": """SELECT a.product_id, b.kind FROM shop.product a
        JOIN shop.product b ON a.parent_id = b.product_id""",
    "both": "SELECT sale_id AS id FROM shop.sales UNION ALL SELECT product_id FROM shop.product",
    "sizes": """SELECT n, count(*) AS products FROM (
        SELECT product_id, count(*) AS n FROM shop.sales GROUP BY product_id) t GROUP BY n""",
}
_SLICED = {"lines": "sale_id", "by_product": "product_id", "both": "id"}
"""The views that need not read all of their tables, and by which column."""


class Readings:
    """What was read from the sources: how many rows of each table, and which tables as a whole."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.rows: dict[str, int] = {}
        self.whole: set[str] = set()
        lookup, read = SQLiteSource.lookup, SQLiteSource.read

        def counted(source: SQLiteSource, plan: Sequence[Lookup]) -> Any:
            found = lookup(source, plan)
            for each, rows in zip(plan, found.rows, strict=True):
                assert isinstance(rows, pa.Table)
                self.rows[each.table.name] = rows.num_rows
            return found

        def noted(source: SQLiteSource, tables: Mapping[Table, Sequence[str]], scratch: Path) -> Any:
            self.whole |= {table.name for table in tables}
            return read(source, tables, scratch)

        patch.setattr(SQLiteSource, "lookup", counted)
        patch.setattr(SQLiteSource, "read", noted)

    def clear(self) -> None:
        self.rows, self.whole = {}, set()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[tuple[Shop, Project]]:
    """A project whose sources have gone on since it was captured."""
    shop = Shop(tmp_path_factory.mktemp("slices") / "shop", _VIEWS)
    connection = shop.connections["shop"]
    products = [(n, f"kind {n % 3}", n // 2) for n in range(1, 13)]
    connection.executemany("INSERT INTO product VALUES (?, ?, ?)", products)
    sales = [(n, 1, 1 + n * (n + 1) // 2 % 12, n % 7) for n in range(1, _SALES + 1)]
    connection.executemany("INSERT INTO sales VALUES (?, ?, ?, ?)", sales)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        connection.execute("UPDATE sales SET amount = NULL WHERE sale_id % 5 = 0")
        project.run(once=True)
        # Rows leave slices, come to others, and are there no more: of all this the views show nothing yet.
        connection.execute("UPDATE sales SET sale_id = sale_id + 25 WHERE sale_id > 40")
        connection.execute("UPDATE sales SET product_id = 13 - product_id")
        connection.execute("DELETE FROM sales WHERE sale_id % 4 = 0")
        connection.execute(
            "UPDATE product SET kind = 'new', product_id = product_id + 3 WHERE product_id > 9"
        )
        yield shop, project
    shop.close()


def _verified(project: Project, view: str, seed: int) -> tuple[Slice, Verification]:
    """Verifies a slice of a view."""
    found = project._drivers.verify.run(view, _FRACTION, Random(seed))
    assert found.part is not None
    return found.part, found


@pytest.mark.parametrize("view", _VIEWS)
def test_slices_are_right_and_cost_what_they_hold(
    opened: tuple[Shop, Project], view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, project = opened
    readings, columns, rows = Readings(monkeypatch), set[str](), 0
    for seed in _SEEDS:
        readings.clear()
        part, found = _verified(project, view, seed)
        assert found.differences == (), str(part)
        assert found.rows > 0
        rows += found.rows
        columns.add(part.column)
        if view in _SLICED and part.low is not None:
            assert readings.whole == ({"product"} if view == "lines" else set())
            assert readings.rows["sales"] < _SALES / 2
        else:
            assert readings.rows == {}
    whole = project._drivers.verify.run(view)
    assert whole.is_right and whole.part is None
    assert rows < whole.rows * len(_SEEDS)
    assert columns == {_SLICED.get(view, "kind" if view == "by_kind" else part.column)}


@pytest.mark.parametrize("damage", ["a wrong row", "a missing row"])
def test_what_is_wrong_in_a_slice_is_found(opened: tuple[Shop, Project], damage: str) -> None:
    shop, project = opened
    key = 30
    folder = shop.folder / "lake" / "views" / "lines"
    (path,) = DeltaTable(str(folder)).get_add_actions().column("path").to_pylist()
    file = folder / path
    before = file.read_bytes()
    table = pq.read_table(file)
    rows = table.to_pylist()
    (row,) = [each for each in rows if each["sale_id"] == key]
    if damage == "a wrong row":
        row["kind"] = "wrong"
    else:
        rows.remove(row)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)
    try:
        hits = 0
        for seed in _HITTING:
            part, found = _verified(project, "lines", seed)
            assert part.column == "sale_id"
            low, high = part.low, part.high
            is_inside = (low is None or low <= key) and (high is None or key < high)  # type: ignore[operator]
            wrong = 2 if damage == "a wrong row" else 1
            assert found.different == (wrong if is_inside else 0), str(part)
            hits += is_inside
        assert 0 < hits < len(_HITTING)
    finally:
        file.write_bytes(before)

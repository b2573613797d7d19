"""What stands in `lake/views` is what the view's SQL returns, for every Delta reader."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from shop import Shop

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN
from rollview.project.project import Project

pytestmark = pytest.mark.slow

VIEWS = {
    "kinds": "SELECT p.kind FROM shop.sales s JOIN shop.product p ON s.product_id = p.product_id",
    "averages": """SELECT c.state, avg(s.amount) AS mean, count(*) AS n FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id GROUP BY c.state""",
    "sizes": "SELECT count(*) AS n FROM shop.sales GROUP BY cust_id",
    "counts": "SELECT state, count(*) AS n FROM crm.customer GROUP BY state",
    "grand_total": "SELECT count(*) AS n, sum(amount) AS total FROM shop.sales",
    "pairs": """SELECT sale_id, cust_id FROM shop.sales
        UNION ALL SELECT product_id, parent_id FROM shop.product""",
    "above": "SELECT n, count(*) AS states FROM counts GROUP BY n",
    "recomputed": """CREATE MATERIALIZED VIEW recomputed TBLPROPERTIES ('rollview.policy' = 'snapshot') AS
        SELECT kind, count(*) AS n, sum(product_id) AS s FROM shop.product GROUP BY kind""",
}
WITHOUT_STATE = {"kinds", "counts", "pairs", "above", "recomputed"}


@pytest.fixture
def plain(tmp_path: Any) -> Any:
    """A shop whose views show their state, hide it, have duplicates, and are recomputed."""
    shop = Shop(tmp_path / "shop", VIEWS)
    for _ in range(60):
        shop.transact()
    yield shop
    shop.close()


def _in_lake(shop: Shop, view: str) -> tuple[list[str], Counter[Any]]:
    table = DeltaTable(str(shop.folder / "lake" / "views" / view))
    rows = duckdb.connect().from_arrow(table.to_pyarrow_table())
    return rows.columns, Counter(rows.fetchall())


def test_oracle_any_reader_sees_what_sql_returns(plain: Shop, spark: SparkSession) -> None:
    with Project.open(plain.folder, spark) as project:
        project.setup()
        plain.begin()
        for _ in range(6):
            for _ in range(8):
                plain.transact()
            project.refresh()
            for view in plain.views:
                columns, rows = _in_lake(plain, view)
                assert columns == project.read(view).columns, view
                assert rows == plain.expected_now(view), view
                assert rows == Counter(map(tuple, project.read(view).collect())), view
        assert max(_in_lake(plain, "kinds")[1].values()) > 1, "no duplicates: the test says nothing"
        states = {path.name for path in (plain.folder / "lake" / "state").iterdir()}
        assert states == plain.views.keys() - WITHOUT_STATE
        assert all(verdict.is_right for verdict in project.verify())


def test_every_commit_says_csn_and_time(plain: Shop, spark: SparkSession) -> None:
    with Project.open(plain.folder, spark) as project:
        project.setup()
        plain.begin()
        for _ in range(4):
            plain.transact()
        csn = project.refresh().csn
        commit_time = project._warehouse.catalog.history.commit_time(csn)
        project.maintain()
    said = 0
    for folder in (plain.folder / "lake").glob("*/*"):
        if not (folder / "_delta_log").is_dir() or folder.name == "recomputed":
            continue
        history = DeltaTable(str(folder)).history()
        for entry in history:
            metadata = json.loads(entry["userMetadata"])
            assert set(metadata) == {"operation", "csn", "commit_time"}
        newest = json.loads(history[0]["userMetadata"])
        if folder.parent.name in ("views", "state") and newest["csn"] == csn:
            moment = newest["commit_time"]
            assert abs(_seconds(moment) - commit_time) < 0.001
            said += 1
    assert said >= 6


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def test_deltas_have_the_documented_columns(plain: Shop, spark: SparkSession) -> None:
    with Project.open(plain.folder, spark) as project:
        project.setup()
        plain.begin()
        plain.transact()
        project.refresh()
        for view in ("kinds", "averages", "above"):
            names = project.read(view).columns
            assert project.deltas(view).columns == [*names, COUNT, CSN]


def test_reading_what_is_stored_needs_no_spark(plain: Shop, spark: SparkSession) -> None:
    with Project.open(plain.folder, spark) as project:
        project.setup()
        expected = {view: Counter(map(tuple, project.read(view).collect())) for view in plain.views}
    for view in ("kinds", "averages", "grand_total", "recomputed"):
        command = [str(Path(sys.executable).with_name("rollview")), "read", view, "--json"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            command,
            cwd=plain.folder,
            env={"PATH": "", "JAVA_HOME": "/nowhere"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        rows = Counter(tuple(map(str, row.values())) for row in found["rows"])
        assert rows == Counter(tuple(map(str, row)) for row in expected[view].elements()), view
        # Others may be at work here: not the time, but the work. Spark's start alone is more.
        took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        assert took < 6, took

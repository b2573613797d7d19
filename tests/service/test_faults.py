"""Faults of the world around: a clear error or a wait with retry, never a wrong view.

After every fault the views are compared with DuckDB.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from shop import SCHEMAS, Shop, check_all, check_unharmed, shown, transact

from pages.what_if import what_if
from rollview.errors import InputError, LakeError, LeaseHeld, RollviewError
from rollview.maintain.retry import Stop
from rollview.project.project import Project
from rollview.sources.sqlite import SQLiteSource

pytestmark = pytest.mark.slow


@contextmanager
def _away(shop: Shop, name: str) -> Iterator[None]:
    """The files of a database are somewhere else for a while."""
    files = [shop.folder / f"{name}.db{end}" for end in ("", "-wal", "-shm")]
    for file in files:
        file.rename(file.with_suffix(file.suffix + ".away"))
    try:
        yield
    finally:
        for file in files:
            file.with_suffix(file.suffix + ".away").rename(file)


# Sources


def test_a_source_that_goes_away_within_a_step(
    shop: Shop, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact(shop)
    real, one_by_one = SQLiteSource.lookup, threading.Lock()

    def gone(source: SQLiteSource, plan: Any) -> Any:
        with one_by_one, _away(shop, source.name):
            return real(source, plan)

    with monkeypatch.context() as patch:
        patch.setattr(SQLiteSource, "lookup", gone)
        with pytest.raises(RollviewError, match="there is no SQLite database"):
            project.run(once=True)
    assert any("propagate" in each.step for each in project.status().unfinished)
    check_unharmed(shop, project)
    check_all(shop, project)


def test_run_waits_for_a_source_that_went_away(shop: Shop, project: Project) -> None:
    stop, received = Stop(), []
    project.subscribe(lambda event: received.append(event.name))
    daemon = threading.Thread(target=lambda: project.run(stop=stop))
    daemon.start()
    try:
        transact(shop)
        _wait_for(lambda: "applied" in received)
        with _away(shop, "crm"):
            _wait_for(lambda: "retry" in received)
        transact(shop)
        _wait_for(lambda: "applied" in received[received.index("retry") :])
    finally:
        stop.now()
        daemon.join()
    check_all(shop, project)


@what_if(
    "all sources",
    "`rollview setup` runs while `run` does",
    "`run` notices, and continues with the new definitions",
)
def test_run_continues_with_what_setup_has_changed(shop: Shop, project: Project, spark: SparkSession) -> None:
    stop = Stop()
    daemon = threading.Thread(target=lambda: project.run(stop=stop))
    daemon.start()
    try:
        shop.views |= {"kinds": "SELECT kind, count(*) AS n FROM shop.product GROUP BY kind"}
        del shop.views["sold"]
        shop.write_project()
        with Project.open(shop.folder, spark) as other:
            assert set(other.setup().loaded) == {"kinds"}
            transact(shop)
            shop.connections["shop"].execute("INSERT OR REPLACE INTO product VALUES (1, 'newest', 1)")
            shop.states["shop"].append(shop.copy("shop"))
            _wait_for(lambda: shown(other, "kinds") == shop.expected_now("kinds"))
            assert [view.name for view in other.status().views] == ["kinds", "sales_by_state"]
        assert daemon.is_alive()
    finally:
        stop.now()
        daemon.join()
    check_all(shop, project)


def _wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@what_if(
    "all sources",
    "a column that views use is dropped, renamed or has another type",
    "these views stop. After their files are edited, `rollview setup` loads just these",
)
def test_columns_that_change_while_running(shop: Shop, project: Project) -> None:
    transact(shop)
    connection = shop.connections["shop"]
    connection.execute("ALTER TABLE product ADD COLUMN weight INTEGER")
    transact(shop)
    check_all(shop, project)
    connection.execute("ALTER TABLE product RENAME COLUMN kind TO sort")
    connection.execute("INSERT INTO product (product_id, sort) VALUES (88, 'new')")
    connection.execute("INSERT INTO sales VALUES (99, 1, 88, 9)")
    with pytest.raises(RollviewError, match="product") as caught:
        project.run(once=True)
    assert "`rollview setup`" in caught.value.hint
    assert {view.name: view.state for view in project.status().views} == {
        "sales_by_state": "running",
        "sold": "stopped",
    }
    counted = sum(row["n"] for row in project.read("sales_by_state").collect())
    query = "SELECT count(*) FROM sales s JOIN crm.customer c USING (cust_id)"
    connection.execute(f"ATTACH '{shop.folder / 'crm.db'}' AS crm")
    assert connection.execute(query).fetchone() == (counted,)
    with pytest.raises(InputError, match="kind"):
        project.setup()
    shop.views["sold"] = shop.views["sold"].replace("p.kind", "p.sort AS kind")
    shop.write_project()
    assert set(project.setup().loaded) == {"sold"}
    connection.execute("INSERT INTO sales VALUES (100, 1, 88, 9)")
    project.run(once=True)
    assert {view.state for view in project.status().views} == {"running"}
    assert all(verdict.is_right for verdict in project.verify())


def test_a_capture_that_died_before_columns_changed(
    shop: Shop, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step that was begun names tables that setup is about to forget."""
    shop.connections["crm"].execute("UPDATE customer SET segment = 'z'")
    shop.connections["shop"].execute("UPDATE sales SET amount = 1")
    with monkeypatch.context() as patch:
        patch.setattr("rollview.maintain.capture.CaptureDriver._write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            project.capture()
    shop.connections["shop"].execute("ALTER TABLE sales ADD COLUMN weight INTEGER")
    project.setup()
    project.run(once=True)
    for view in project.views:
        assert shown(project, view) == shop.expected_now(view), view
    assert all(verdict.is_right for verdict in project.verify())


def test_a_dropped_table(shop: Shop, project: Project) -> None:
    connection = shop.connections["shop"]
    rows = connection.execute("SELECT * FROM product").fetchall()
    connection.execute("DROP TABLE product")
    with pytest.raises(RollviewError, match="product was dropped"):
        project.run(once=True)
    with pytest.raises(InputError, match="product"):
        project.setup()
    for view in project.status().views:
        assert shown(project, view.name), "still readable"
    connection.execute(f"CREATE TABLE product ({SCHEMAS['shop']['product']})")
    connection.executemany("INSERT INTO product VALUES (?, ?, ?)", rows[1:])
    project.setup([])
    shop.begin()
    transact(shop)
    check_all(shop, project)


def test_without_wal_states_are_true_and_status_says_composite(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path / "shop", wal=False)
    transact(shop, 15)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        assert any("WAL" in warning for warning in project.setup().warnings)
        for _ in range(3):
            transact(shop, 3)
            project.run(once=True)
        status = project.status()
        assert all("composite" in json.dumps(source.how) for source in status.sources)
        assert status.last_csn < shop.commits()
        for view in project.views:
            assert shown(project, view) == shop.expected_now(view)
        assert all(verdict.is_right for verdict in project.verify())
    shop.close()


# Disk and lake


@what_if(
    "all sources",
    "catalog, disk or Spark fail",
    "everything waits and is retried",
)
@pytest.mark.parametrize(
    "place", ["rollview.lake.data_files.pq.write_table", "rollview.lake.transaction._commit"]
)
def test_a_full_disk(shop: Shop, project: Project, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full at the first write, then at the second, and so on, until all fit."""
    transact(shop)
    for fitting in range(30):
        left = [fitting]
        with monkeypatch.context() as patch:
            real = _attribute(place)

            def full(*arguments: Any, real: Any = real, left: list[int] = left, **options: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return real(*arguments, **options)

            patch.setattr(place, full)
            try:
                project.run(once=True)
                break
            except LakeError as error:
                assert "full" in error.hint
        check_unharmed(shop, project)
        transact(shop, 1)
    assert fitting > 2
    check_all(shop, project)


def _attribute(place: str) -> Any:
    import importlib

    module, _, name = place.rpartition(".")
    if module.endswith(".pq"):
        return importlib.import_module("pyarrow.parquet").write_table
    return getattr(importlib.import_module(module), name)


@what_if(
    "all sources",
    "the lake's tables of one view are damaged",
    "that view stops; `rollview setup --reload VIEW` loads it",
)
@pytest.mark.parametrize("table", ["views/sold", "state/sales_by_state", "deltas/sold", "changes/shop/sales"])
@pytest.mark.parametrize("deed", ["a row more", "a file less"])
def test_a_lake_table_changed_by_hand(
    shop: Shop, project: Project, spark: SparkSession, table: str, deed: str
) -> None:
    folder = shop.folder / "lake" / table
    delta = DeltaTable(str(folder))
    if deed == "a row more":
        write_deltalake(
            delta, pa.Table.from_batches(delta.to_pyarrow_table().to_batches()[:1]), mode="append"
        )
    else:
        (folder / sorted(delta.get_add_actions().column("path").to_pylist())[0]).unlink()
    shop.connections["shop"].execute("UPDATE sales SET amount = coalesce(amount, 3) + 1")
    with Project.open(shop.folder, spark) as other:
        with pytest.raises(LakeError) as caught:
            other.run(once=True)
        assert caught.value.hint
        if (table, deed) != ("views/sold", "a file less") and not table.startswith("state/"):
            assert shown(other, "sales_by_state")
        other.setup([])
        shop.begin()
        transact(shop)
        check_all(shop, other)


# Processes and clocks


def test_two_daemons(shop: Shop, project: Project, spark: SparkSession) -> None:
    stop, received = Stop(), []
    project.subscribe(received.append)
    daemon = threading.Thread(target=lambda: project.run(stop=stop))
    daemon.start()
    try:
        transact(shop)
        _wait_for(lambda: bool(received))
        with (
            Project.open(shop.folder, spark) as second,
            pytest.raises(LeaseHeld, match=f"process {os.getpid()}"),
        ):
            second.run()
    finally:
        stop.now()
        daemon.join()
    check_all(shop, project)


def test_a_clock_that_is_set_back(shop: Shop, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for hours in (1, 30, 0, 2):
        transact(shop)
        clock = SimpleNamespace(time=lambda hours=hours: time.time() - hours * 3600, monotonic=time.monotonic)
        monkeypatch.setattr("rollview.maintain.capture.time", clock)
        project.run(once=True)
    catalog = project._warehouse.catalog
    times = [catalog.history.commit_time(csn) or 0.0 for csn in range(1, catalog.history.last_csn() + 1)]
    assert times == sorted(times)
    assert catalog.history.csn_at(times[-1]) == catalog.history.last_csn()
    check_all(shop, project)

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
from shop import SCHEMAS, VIEWS, Shop, shown

from rollview.catalog import LeaseHeld
from rollview.errors import InputError, RollviewError
from rollview.lake.errors import LakeError
from rollview.service.points import PointError
from rollview.service.project import Project
from rollview.service.run import Stop
from rollview.sources.sqlite import SQLiteSource

pytestmark = pytest.mark.slow


@pytest.fixture
def project(shop: Shop, spark: SparkSession) -> Iterator[Project]:
    """The shop, set up, with some transactions captured and shown."""
    for _ in range(15):
        shop.transact()
    shop.begin()
    with Project.open(shop.folder, spark) as opened:
        opened.setup()
        _transact(shop, 4)
        opened.run(once=True)
        yield opened


def _transact(shop: Shop, number: int = 3) -> None:
    for _ in range(number):
        shop.transact()


def _check_all(shop: Shop, project: Project) -> None:
    """Everything committed is captured and shown; older csn are right, too."""
    project.run(once=True)
    status = project.status()
    assert status.unfinished == ()
    assert {view.name for view in status.views} == set(shop.views)
    shop.match(project)
    for view in status.views:
        assert shown(project, view.name) == shop.expected_now(view.name), view.name
        for csn in {view.oldest, (view.oldest + view.high_water) // 2}:
            assert shown(project, view.name, csn) == shop.expected(project, view.name, csn), (view.name, csn)


def _check_unharmed(shop: Shop, project: Project) -> None:
    """What is shown is right at the csn it claims, whatever has happened."""
    for view in project.status().views:
        expected = shop.expected(project, view.name, view.materialized)
        assert shown(project, view.name) == expected, view.name


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
    _transact(shop)
    real = SQLiteSource.ask

    def gone(source: SQLiteSource, question: Any) -> Any:
        with _away(shop, source.name):
            return real(source, question)

    with monkeypatch.context() as patch:
        patch.setattr(SQLiteSource, "ask", gone)
        with pytest.raises(RollviewError, match="there is no SQLite database"):
            project.run(once=True)
    assert any("propagate" in step for step in project.status().unfinished)
    _check_unharmed(shop, project)
    _check_all(shop, project)


def test_run_waits_for_a_source_that_went_away(shop: Shop, project: Project) -> None:
    stop, told = Stop(), []
    daemon = threading.Thread(target=lambda: project.run(stop=stop, progress=told.append))
    daemon.start()
    try:
        _transact(shop)
        _wait_for(lambda: any("applied" in line for line in told))
        with _away(shop, "crm"):
            _wait_for(lambda: any("trouble" in line for line in told))
        _transact(shop)
        _wait_for(lambda: "applied" in told[-1] and "trouble" in "".join(told[:-1]))
    finally:
        stop.now()
        daemon.join()
    _check_all(shop, project)


def _wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def test_columns_that_change_while_running(shop: Shop, project: Project) -> None:
    _transact(shop)
    shop.connections["shop"].execute("ALTER TABLE product ADD COLUMN weight INTEGER")
    _transact(shop)
    with pytest.raises(RollviewError, match="columns of table product changed") as caught:
        project.run(once=True)
    assert "setup" in caught.value.hint
    _check_unharmed(shop, project)
    report = project.setup()
    assert any("product" in warning for warning in report.warnings)
    _transact(shop)
    _check_all(shop, project)


def test_a_capture_that_died_before_columns_changed(
    shop: Shop, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step that was begun names tables that setup is about to forget."""
    shop.connections["crm"].execute("UPDATE customer SET segment = 'z'")
    shop.connections["shop"].execute("UPDATE sales SET amount = 1")
    with monkeypatch.context() as patch:
        patch.setattr("rollview.service.capture._write", lambda *_: 1 / 0)
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
    with pytest.raises(RollviewError, match="product is gone"):
        project.run(once=True)
    with pytest.raises(InputError, match="product"):
        project.setup()
    for view in project.status().views:
        assert shown(project, view.name), "still readable"
    connection.execute(f"CREATE TABLE product ({SCHEMAS['shop']['product']})")
    connection.executemany("INSERT INTO product VALUES (?, ?, ?)", rows[1:])
    project.setup([])
    shop.begin()
    _transact(shop)
    _check_all(shop, project)


def test_without_wal_states_are_true_and_status_says_composite(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path / "shop", wal=False)
    _transact(shop, 15)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        assert any("WAL" in warning for warning in project.setup().warnings)
        for _ in range(3):
            _transact(shop, 3)
            project.run(once=True)
        status = project.status()
        assert all("composite" in json.dumps(source.how) for source in status.sources)
        assert status.last_csn < shop.commits()
        for view in project.views:
            assert shown(project, view) == shop.expected_now(view)
        assert all(verdict.is_right for verdict in project.verify())
    shop.close()


# Disk and lake


@pytest.mark.parametrize(
    "place", ["rollview.lake.data_files.pq.write_table", "rollview.lake.transaction._commit"]
)
def test_a_full_disk(shop: Shop, project: Project, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full at the first write, then at the second, and so on, until all fit."""
    _transact(shop)
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
        _check_unharmed(shop, project)
        _transact(shop, 1)
    assert fitting > 2
    _check_all(shop, project)


def _attribute(place: str) -> Any:
    import importlib

    module, _, name = place.rpartition(".")
    if module.endswith(".pq"):
        return importlib.import_module("pyarrow.parquet").write_table
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("table", ["views/sold", "deltas/sold", "changes/shop/sales"])
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
        if (table, deed) != ("views/sold", "a file less"):
            assert shown(other, "sales_by_state")
        other.setup([])
        shop.begin()
        _transact(shop)
        _check_all(shop, other)


# Processes and clocks


def test_two_daemons(shop: Shop, project: Project, spark: SparkSession) -> None:
    stop, told = Stop(), []
    daemon = threading.Thread(target=lambda: project.run(stop=stop, progress=told.append))
    daemon.start()
    try:
        _transact(shop)
        _wait_for(lambda: bool(told))
        with (
            Project.open(shop.folder, spark) as second,
            pytest.raises(LeaseHeld, match=f"process {os.getpid()}"),
        ):
            second.run()
    finally:
        stop.now()
        daemon.join()
    _check_all(shop, project)


def test_a_clock_that_is_set_back(shop: Shop, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for hours in (1, 30, 0, 2):
        _transact(shop)
        clock = SimpleNamespace(time=lambda hours=hours: time.time() - hours * 3600)
        monkeypatch.setattr("rollview.service.capture.time", clock)
        project.run(once=True)
    catalog = project._warehouse.catalog
    times = [catalog.commit_time(csn) or 0.0 for csn in range(1, catalog.last_csn() + 1)]
    assert times == sorted(times)
    assert catalog.csn_at(times[-1]) == catalog.last_csn()
    _check_all(shop, project)


# Time


def test_times_outside_of_what_is_covered(shop: Shop, project: Project) -> None:
    last = project.status().last_csn
    for action in (
        lambda: project.read("sold", last + 1),
        lambda: project.read("sold", "csn:99999"),
        lambda: project.read("sold", "1999-01-01T00:00:00"),
        lambda: project.refresh("sold", to=last + 1),
        lambda: project.refresh("sold", to=last - 1),
        lambda: project.apply("sold", last - 1),
    ):
        try:
            result = action()
        except PointError as error:
            assert "possible: csn:" in error.hint
        else:
            # Before all history a view is as it was loaded.
            assert result is not None
            assert shown(project, "sold", 0) == shop.expected(project, "sold", 0)
    _transact(shop)
    _check_all(shop, project)


def test_reads_around_what_was_condensed(shop: Shop, project: Project) -> None:
    _transact(shop, 8)
    project.run(once=True)
    last = project.status().last_csn
    project.condense("sold", last - 5, last - 1)
    for csn in (last - 6, last - 5, last - 1, last):
        assert shown(project, "sold", csn) == shop.expected(project, "sold", csn), csn
    for csn in (last - 4, last - 2):
        with pytest.raises(PointError, match="condensed") as caught:
            project.read("sold", csn)
        assert f"csn:{last - 5}" in caught.value.hint
    _transact(shop)
    project.run(once=True)
    assert shown(project, "sold") == shop.expected_now("sold")
    assert all(verdict.is_right for verdict in project.verify())


def test_a_range_ahead_is_condensed_and_run_does_not_stop_inside(
    shop: Shop, project: Project, spark: SparkSession
) -> None:
    """Another view, whose propagation somebody else holds, is only as far as the middle of the range."""
    start = project.status().last_csn
    _transact(shop, 6)
    project.capture()
    last = project.status().last_csn
    project.propagate("sold")
    project.propagate("sales_by_state", to=(start + last) // 2)
    project.condense("sold", start, last)
    with project._warehouse.catalog.lease("propagate:sales_by_state"):
        project.run(once=False, stop=_after_a_round())
    _check_unharmed(shop, project)
    project.run(once=True)
    assert shown(project, "sold") == shop.expected_now("sold")


def _after_a_round() -> Stop:
    stop = Stop()
    stop.now()
    return stop


def test_nothing_is_condensed_that_a_view_above_still_needs(shop: Shop, project: Project) -> None:
    shop.views["states_of_size"] = "SELECT n, count(*) AS states FROM sales_by_state GROUP BY n"
    shop.write_project()
    project.setup()
    start = project.status().last_csn
    _transact(shop, 4)
    project.capture()
    project.propagate("sales_by_state")
    with pytest.raises(InputError, match="states_of_size"):
        project.condense("sales_by_state", start, project.status().last_csn)
    _check_all(shop, project)


# Retention


def test_what_is_pruned_is_refused_and_the_rest_is_right(
    shop: Shop, project: Project, spark: SparkSession
) -> None:
    shop.write_project(retention="{changes: 0s, deltas: 0s, files: 0s}")
    for _ in range(3):
        shop.connections["shop"].execute("UPDATE sales SET amount = coalesce(amount, 0) + 1")
        shop.states["shop"].append(shop.copy("shop"))
        with Project.open(shop.folder, spark) as other:
            other.run(once=True)
            view = other.status().views[0]
            assert view.oldest == view.materialized
            with pytest.raises(PointError):
                other.read(view.name, view.oldest - 1)
            assert DeltaTable(str(shop.folder / "lake/changes/shop/sales")).count() == 0
            assert all(verdict.is_right for verdict in other.verify())
    # One site was idle all the time; what it shows is still known by its last transaction.
    _transact(shop, 6)
    with Project.open(shop.folder, spark) as other:
        other.run(once=True)
        for name in other.views:
            assert shown(other, name) == shop.expected_now(name)


def test_a_view_above_that_lags_keeps_what_it_is_compared_with(
    shop: Shop, project: Project, spark: SparkSession
) -> None:
    shop.views["states_of_size"] = "SELECT n, count(*) AS states FROM sales_by_state GROUP BY n"
    shop.write_project(retention="{changes: 0s, deltas: 0s, files: 0s}")
    with Project.open(shop.folder, spark) as other:
        other.setup()
        shop.connections["crm"].execute("UPDATE customer SET state = 'q' WHERE cust_id > 2")
        shop.connections["shop"].execute("INSERT OR REPLACE INTO sales VALUES (77, 1, 1, 5)")
        other.refresh("sales_by_state")
        other.propagate("states_of_size")
        other.maintain()
        assert all(verdict.is_right for verdict in other.verify())
        other.run(once=True)
        assert all(verdict.is_right for verdict in other.verify())


# Definitions


def test_views_come_change_and_go(shop: Shop, project: Project) -> None:
    shop.views["grand_total"] = "SELECT count(*) AS n, sum(amount) AS total FROM shop.sales"
    shop.views["states_of_size"] = "SELECT n, count(*) AS states FROM sales_by_state GROUP BY n"
    shop.write_project()
    _transact(shop)
    assert set(project.setup().loaded) == {"grand_total", "states_of_size"}
    _transact(shop)
    _check_all(shop, project)

    shop.views["sales_by_state"] = VIEWS["sales_by_state"].replace(
        "avg(s.amount) AS mean", "count(s.amount) AS k"
    )
    shop.write_project()
    _transact(shop)
    loaded = project.setup().loaded
    assert loaded == {
        "sales_by_state": "the definition changed",
        "states_of_size": "sales_by_state was loaded",
    }
    _transact(shop)
    _check_all(shop, project)

    del shop.views["sales_by_state"]
    shop.views["states_of_size"] = "SELECT state AS n, count(*) AS states FROM crm.customer GROUP BY state"
    shop.write_project()
    report = project.setup()
    assert report.dropped == ["sales_by_state"]
    assert report.loaded == {"states_of_size": "the definition changed"}
    assert not (shop.folder / "lake" / "views" / "sales_by_state").exists()
    _transact(shop)
    _check_all(shop, project)


def test_a_view_is_reloaded_with_the_views_above_it(shop: Shop, project: Project) -> None:
    shop.views["kinds"] = "SELECT v.kind, t.total FROM sold v JOIN sales_by_state t ON v.state = t.state"
    shop.write_project()
    project.setup()
    _transact(shop)
    project.capture()
    assert project.setup(["sold"]).loaded == {"sold": "asked for", "kinds": "sold was loaded"}
    _transact(shop)
    _check_all(shop, project)


@pytest.mark.parametrize("algorithm", ["compute-delta", "propagate", "equation-1", "equation-2"])
def test_a_published_algorithm_by_choice(algorithm: str, shop: Shop, project: Project) -> None:
    properties = f"TBLPROPERTIES ('rollview.algorithm' = '{algorithm}', 'rollview.interval' = '3')"
    for name, sql in VIEWS.items():
        shop.views[name] = f"CREATE MATERIALIZED VIEW {name} {properties} AS {sql}"
    shop.write_project()
    project.setup()
    for _ in range(2):
        _transact(shop, 5)
        _check_all(shop, project)


def test_the_snapshot_policy(shop: Shop, project: Project) -> None:
    text = VIEWS["sold"]
    shop.views["sold"] = (
        f"CREATE MATERIALIZED VIEW sold TBLPROPERTIES ('rollview.policy' = 'snapshot') AS {text}"
    )
    shop.write_project()
    project.setup()
    before = shown(project, "sold")
    shop.connections["shop"].execute("INSERT OR REPLACE INTO sales VALUES (99, 1, 1, 8)")
    shop.connections["crm"].execute("INSERT OR REPLACE INTO customer VALUES (1, 'q', 'q')")
    shop.connections["shop"].execute("INSERT OR REPLACE INTO product VALUES (1, 'q', 1)")
    project.run(once=True)
    assert shown(project, "sold") == before
    with pytest.raises(InputError, match="no view delta"):
        project.refresh("sold", to=project.status().last_csn - 1)
    project.refresh("sold")
    assert shown(project, "sold") == shop.expected_now("sold") != before
    assert all(verdict.is_right for verdict in project.verify())

"""What users do to a project over time: reads at any time, retention, condensing, changing definitions.

Refusals say what is possible; whatever is shown equals DuckDB's answer.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from shop import VIEWS, Shop, check_all, check_unharmed, shown, transact

from rollview.errors import InputError, PointError
from rollview.events import (
    Applied,
    Captured,
    Event,
    Failed,
    Propagated,
    Refreshed,
    Retry,
    StepBegun,
    StepFinished,
)
from rollview.maintain.retry import Stop
from rollview.project.project import Project

pytestmark = pytest.mark.slow


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
    transact(shop)
    check_all(shop, project)


def test_reads_around_what_was_condensed(shop: Shop, project: Project) -> None:
    transact(shop, 8)
    project.run(once=True)
    last = project.status().last_csn
    project.condense("sold", last - 5, last - 1)
    for csn in (last - 6, last - 5, last - 1, last):
        assert shown(project, "sold", csn) == shop.expected(project, "sold", csn), csn
    for csn in (last - 4, last - 2):
        with pytest.raises(PointError, match="condensed") as caught:
            project.read("sold", csn)
        assert f"csn:{last - 5}" in caught.value.hint
    transact(shop)
    project.run(once=True)
    assert shown(project, "sold") == shop.expected_now("sold")
    assert all(verdict.is_right for verdict in project.verify())


def test_a_range_ahead_is_condensed_and_run_does_not_stop_inside(
    shop: Shop, project: Project, spark: SparkSession
) -> None:
    """Another view, whose propagation somebody else holds, is only as far as the middle of the range."""
    start = project.status().last_csn
    transact(shop, 6)
    project.capture()
    last = project.status().last_csn
    project.propagate("sold")
    project.propagate("sales_by_state", to=(start + last) // 2)
    project.condense("sold", start, last)
    with project._warehouse.catalog.lease("propagate:sales_by_state"):
        project.run(once=False, stop=_after_a_round())
    check_unharmed(shop, project)
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
    transact(shop, 4)
    project.capture()
    project.propagate("sales_by_state")
    with pytest.raises(InputError, match="states_of_size"):
        project.condense("sales_by_state", start, project.status().last_csn)
    check_all(shop, project)


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
    transact(shop, 6)
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
    transact(shop)
    assert set(project.setup().loaded) == {"grand_total", "states_of_size"}
    transact(shop)
    check_all(shop, project)

    shop.views["sales_by_state"] = VIEWS["sales_by_state"].replace(
        "avg(s.amount) AS mean", "count(s.amount) AS k"
    )
    shop.write_project()
    transact(shop)
    loaded = project.setup().loaded
    assert loaded == {
        "sales_by_state": "the definition changed",
        "states_of_size": "sales_by_state was loaded",
    }
    transact(shop)
    check_all(shop, project)

    del shop.views["sales_by_state"]
    shop.views["states_of_size"] = "SELECT state AS n, count(*) AS states FROM crm.customer GROUP BY state"
    shop.write_project()
    report = project.setup()
    assert report.dropped == ["sales_by_state"]
    assert report.loaded == {"states_of_size": "the definition changed"}
    assert not (shop.folder / "lake" / "views" / "sales_by_state").exists()
    transact(shop)
    check_all(shop, project)


def test_a_view_is_reloaded_with_the_views_above_it(shop: Shop, project: Project) -> None:
    shop.views["kinds"] = "SELECT v.kind, t.total FROM sold v JOIN sales_by_state t ON v.state = t.state"
    shop.write_project()
    project.setup()
    transact(shop)
    project.capture()
    assert project.setup(["sold"]).loaded == {"sold": "asked for", "kinds": "sold was loaded"}
    transact(shop)
    check_all(shop, project)


@pytest.mark.parametrize(
    "algorithm",
    [
        "rolling",
        "propagate",
        "equation-2",
        *(pytest.param(each, marks=pytest.mark.soak) for each in ("compute-delta", "equation-1")),
    ],
)
def test_a_published_algorithm_by_choice(algorithm: str, shop: Shop, project: Project) -> None:
    properties = f"TBLPROPERTIES ('rollview.algorithm' = '{algorithm}', 'rollview.interval' = '3')"
    for name, sql in VIEWS.items():
        shop.views[name] = f"CREATE MATERIALIZED VIEW {name} {properties} AS {sql}"
    shop.write_project()
    project.setup()
    for _ in range(2):
        transact(shop, 5)
        check_all(shop, project)


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


def test_a_consistency_without_effect_is_said(shop: Shop, project: Project) -> None:
    properties = "TBLPROPERTIES ('rollview.consistency' = 'weak', 'rollview.algorithm' = 'sweep')"
    shop.views["sold"] = f"CREATE MATERIALIZED VIEW sold {properties} AS {VIEWS['sold']}"
    shop.write_project()
    (warning,) = project.setup().warnings
    assert "view sold: rollview.consistency = weak has no effect" in warning
    assert project.explain("sold").notices == (warning,)
    transact(shop)
    check_all(shop, project)


# Events


def test_events_are_what_happened(shop: Shop, project: Project) -> None:
    """Events add up to what the catalog says."""
    received: list[Event] = []
    end = project.subscribe(received.append)
    before = project.status()
    transact(shop, 4)
    project.run(once=True)
    project.setup(["sold"])
    end()
    transact(shop)
    project.run(once=True)
    status = project.status()
    captured = [event for event in received if isinstance(event, Captured)]
    last = captured[-1].csn
    assert sum(event.transactions for event in captured) == last - before.last_csn > 0
    for view in before.views:
        moves = [event for event in received if isinstance(event, Propagated) and event.view == view.name]
        assert [move.from_csn for move in moves] == [view.high_water, *(move.to_csn for move in moves[:-1])]
        assert moves[-1].to_csn == last
    (applied,) = [event for event in received if isinstance(event, Applied)]
    assert (set(applied.views), applied.csn) == ({view.name for view in status.views}, last)
    refreshed = [event for event in received if isinstance(event, Refreshed)]
    assert [(event.view, event.kind, event.reason) for event in refreshed][-1] == (
        "sold",
        "full",
        "asked for",
    )
    assert refreshed[-1].rows is not None
    begun = [(e.kind, e.subject, e.step) for e in received if isinstance(e, StepBegun)]
    finished = {(e.kind, e.subject, e.step): e for e in received if isinstance(e, StepFinished)}
    assert sorted(begun) == sorted(finished)
    assert {kind for kind, _, _ in begun} == {"setup", "capture", "propagate", "apply", "load"}
    phases = {kind: set(event.phases) for (kind, _, _), event in finished.items()}
    assert phases["capture"] == {"read_changes", "compute", "write", "commit"}
    assert {"read_changes", "lookups", "compute", "write", "commit"} == phases["propagate"]
    assert {"read_changes", "compute", "write", "commit"} == phases["apply"]
    assert phases["load"] == {"lookups", "check", "compute", "write", "commit"}
    names = [event.name for event in received]
    assert (names[0], names.count("started"), names.count("stopped")) == ("started", 1, 1)
    assert [event.time for event in received] == sorted(event.time for event in received)


def test_a_defect_ends_run_with_its_traceback(
    shop: Shop, project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rollview.maintain.propagate.PropagateDriver.run_all", lambda *_: {}["no such key"])
    received: list[Event] = []
    project.subscribe(received.append)
    with pytest.raises(KeyError):
        project.run()
    assert [event.name for event in received if isinstance(event, Retry | Failed)] == [
        "retry",
        "retry",
        "failed",
    ]
    assert [record.levelname for record in caplog.records if "no such key" in record.getMessage()] == [
        "WARNING",
        "WARNING",
        "ERROR",
    ]
    assert caplog.text.count("Traceback (most recent call last)") == 3
    monkeypatch.undo()
    transact(shop)
    check_all(shop, project)


# Sources of every kind


def test_a_view_over_sqlite_delta_and_dumps(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path / "shop", {})
    prices, regions = tmp_path / "shop" / "prices", tmp_path / "shop" / "dumps" / "region"
    regions.mkdir(parents=True)
    rows = pa.table({"product_id": [1, 2, 3], "price": [10, 20, 30]})
    write_deltalake(str(prices / "price"), rows)
    _dump(regions, "2026-01-01.csv", {"a": "north", "b": "south"})
    project_file = tmp_path / "shop" / "rollview.yml"
    project_file.write_text(
        project_file.read_text()
        + "  prices: {type: delta, path: ./prices, key.price: product_id}\n"
        + "  dumps: {type: files, path: ./dumps, key.region: state, settle_seconds: 0}\n"
    )
    text = """SELECT s.sale_id, r.name, p.price * s.amount AS paid FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id JOIN prices.price p ON s.product_id = p.product_id
        JOIN dumps.region r ON c.state = r.state"""
    (tmp_path / "shop" / "views" / "paid.sql").write_text(f"CREATE MATERIALIZED VIEW paid AS {text}")
    transact(shop, 30)
    dumped = {"a": "north", "b": "south"}
    with Project.open(project_file, spark) as project:
        project.setup()
        assert shown(project, "paid") == _paid(shop, prices, dumped, text)
        for number in range(2, 5):
            transact(shop, 4)
            changed = pa.table({"product_id": [number], "price": [number * 7]})
            write_deltalake(str(prices / "price"), changed, mode="append" if number > 3 else "overwrite")
            dumped = dumped | {"c": f"east {number}", "a": "west"}
            _dump(regions, f"2026-01-0{number}.csv", dumped)
            project.run(once=True)
            assert shown(project, "paid") == _paid(shop, prices, dumped, text)
        assert all(verdict.is_right for verdict in project.verify())
    shop.close()


def _dump(folder: Path, name: str, regions: dict[str, str]) -> None:
    lines = ["state,name", *(f"{state},{region}" for state, region in regions.items())]
    (folder / name).write_text("\n".join(lines) + "\n")


def _paid(shop: Shop, prices: Path, regions: dict[str, str], text: str) -> Counter[tuple[object, ...]]:
    """DuckDB's answer over what the databases, the Delta table and the newest dump hold now."""
    price = DeltaTable(str(prices / "price")).to_pyarrow_table()
    region = pa.table({"state": list(regions), "name": list(regions.values())})
    with duckdb.connect() as database:
        shop.fill(database, {name: shop.copy(name) for name in shop.connections})
        for schema, name, table in (("prices", "price", price), ("dumps", "region", region)):
            database.register("rows", table)
            database.execute(f"CREATE SCHEMA {schema}")
            database.execute(f"CREATE TABLE {schema}.{name} AS SELECT * FROM rows")
        return Counter(database.execute(text).fetchall())

"""A view's file is edited: what is stored is used again where the new content follows from it."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from shop import Shop, shown, states_of, transact

from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.maintain.load import LoadDriver
from rollview.maintain.snapshot import SnapshotReader
from rollview.project.project import Project

pytestmark = pytest.mark.slow

BEFORE = {
    "sold": """SELECT s.sale_id, c.state, p.kind, s.amount FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id
        JOIN shop.product p ON s.product_id = p.product_id WHERE s.amount > 2""",
    "totals": "SELECT cust_id, count(*) AS n, sum(amount) AS total FROM shop.sales GROUP BY cust_id",
    "ranges": "SELECT product_id, max(amount) AS hi, min(cust_id) AS lo FROM shop.sales GROUP BY product_id",
    "largest": """SELECT sale_id, cust_id, amount FROM shop.sales
        QUALIFY row_number() OVER (PARTITION BY cust_id ORDER BY amount DESC, sale_id) = 1""",
}
AFTER = {
    # A column less, a condition more, and a column of stored ones.
    "sold": """SELECT s.sale_id, c.state, s.amount * 2 AS twice FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id
        JOIN shop.product p ON s.product_id = p.product_id WHERE s.amount > 2 AND p.kind = 'a'""",
    # What was the view is a stage now.
    "totals": """SELECT cust_id, sum(amount) AS total FROM shop.sales
        GROUP BY cust_id HAVING count(*) > 1""",
    "ranges": """SELECT product_id, min(amount) AS lo, count(DISTINCT cust_id) AS buyers FROM shop.sales
        WHERE product_id < 5 GROUP BY product_id""",
    "largest": """SELECT sale_id, cust_id, amount FROM shop.sales
        QUALIFY row_number() OVER (PARTITION BY cust_id ORDER BY amount DESC, sale_id) <= 2""",
}


@pytest.fixture
def edited(shop: Shop, spark: SparkSession) -> Shop:
    """Views that are edited while some of what happened is not applied, propagated or captured."""
    shop.views = dict(BEFORE)
    shop.write_project()
    transact(shop, 30)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        transact(shop)
        project.refresh()
        transact(shop)
        project.capture()
        for view in project.views:
            project.propagate(view)
        transact(shop)
        project.capture()
        transact(shop)
    return shop


def check_all_it_covers(shop: Shop, project: Project) -> None:
    """Every view is right at every csn since it was edited."""
    for view in project.status().views:
        for csn, state in states_of(project, view).items():
            assert state == shop.expected(project, view.name, csn), (view.name, csn)


def test_oracle_edited_views_continue_from_what_is_stored(
    edited: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Project.open(edited.folder, spark) as project:
        middle = {view.name: (view.oldest + view.high_water) // 2 for view in project.status().views}
        former = {name: edited.expected(project, name, csn) for name, csn in middle.items()}
        edited.views = dict(AFTER)
        edited.write_project()
        plan = project.plan_setup()
        assert "view sold: will be computed from what is stored (the definition changed)" in list(plan.lines)
        read = SnapshotReader.read

        def only_views(reader: SnapshotReader, tables: list[Table], *rest: object) -> object:
            assert not [table for table in tables if table.source], "a source was read"
            return read(reader, tables, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(SnapshotReader, "read", only_views)
            # A view over stages is compared with Spark over a sample of its base tables.
            patch.setattr(LoadDriver, "_check_meaning", lambda *_: None)
            report = project.setup()
        assert report.loaded == dict.fromkeys(AFTER, "the definition changed")
        # Of the totals it is the groups, now a stage, that are computed from what was stored.
        assert sorted(report.from_stored) == ["largest", "ranges", "sold"]
        for name, csn in middle.items():
            # States of before are still those of the former definition.
            assert shown(project, name, csn) == former[name]
        transact(edited)
        project.run(once=True)
        check_all_it_covers(edited, project)
        assert all(verdict.is_right for verdict in project.verify())


def test_what_does_not_follow_is_loaded(edited: Shop, spark: SparkSession) -> None:
    with Project.open(edited.folder, spark) as project:
        edited.views["sold"] = edited.views["sold"].replace("> 2", "> 1")
        edited.views["totals"] = edited.views["totals"].replace("sum(amount)", "sum(product_id)")
        edited.write_project()
        changed = dict.fromkeys(("sold", "totals"), "the definition changed")
        report = project.setup()
        assert (report.loaded, report.from_stored) == (changed, [])
        # Asked for: nothing that is stored is trusted.
        edited.views["sold"] += " AND p.kind = 'a'"
        edited.write_project()
        assert project.setup(["sold"]).loaded == {"sold": "asked for"}
        project.run(once=True)
        check_all_it_covers(edited, project)


def test_an_edited_view_with_damaged_tables_is_loaded(edited: Shop, spark: SparkSession) -> None:
    with Project.open(edited.folder, spark) as project:
        for file in (edited.folder / "lake" / "views" / "sold").rglob("*.parquet"):
            file.unlink()
        edited.views["sold"] += " AND p.kind = 'a'"
        edited.write_project()
        report = project.setup()
        assert (list(report.loaded), report.from_stored) == (["sold"], [])
        project.run(once=True)
        check_all_it_covers(edited, project)


def test_other_words_and_properties_load_nothing(
    edited: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored, and the delta, stay; the properties are those of the new text."""

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a view is loaded")

    monkeypatch.setattr(LoadDriver, "run", refused)
    monkeypatch.setattr(LoadDriver, "derive", refused)
    totals = "-- again\nSELECT cust_id,  COUNT(*) n, sum(amount) total FROM shop.sales GROUP BY cust_id"
    properties = "TBLPROPERTIES ('rollview.schedule' = '0 0 1 1 *', 'rollview.interval' = '2')"
    edited.views |= {
        "totals": f"CREATE MATERIALIZED VIEW totals COMMENT 'per customer' AS {totals}",
        "largest": f"CREATE MATERIALIZED VIEW largest {properties} AS {BEFORE['largest']}",
    }
    edited.write_project()
    with Project.open(edited.folder, spark) as project:
        assert set(project.setup().unchanged) == set(BEFORE)
        assert not any(each.note for each in project.status().views)
        stood = next(each for each in project.status().views if each.name == "largest")
        assert stood.schedule == "0 0 1 1 *"
        transact(edited)
        project.run(once=True)
        edited.match(project)
        for view in project.status().views:
            at = view.materialized
            assert at == (stood.materialized if view.name == "largest" else project.status().last_csn)
            assert shown(project, view.name) == edited.expected(project, view.name, at)
            assert not project._warehouse.catalog.views.spans(view.name)
        assert project.setup().unchanged and all(each.is_right for each in project.verify())


SWITCHED = {
    "sold": BEFORE["sold"],
    "wholes": "SELECT DISTINCT cust_id, product_id FROM shop.sales",
    "numbers": "SELECT cust_id, count(*) AS n FROM shop.sales GROUP BY cust_id",
    "totals": BEFORE["totals"],
}


def _with_policy(policy: str) -> dict[str, str]:
    said = f"TBLPROPERTIES ('rollview.policy' = '{policy}')"
    return {name: f"CREATE MATERIALIZED VIEW {name} {said} AS {text}" for name, text in SWITCHED.items()}


def test_oracle_policies_are_switched_without_reading_tables(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """snapshot to deferred and back, several times; a state that does not follow from the rows is loaded."""
    shop.views = _with_policy("snapshot")
    shop.write_project()
    transact(shop, 30)
    shop.begin()
    loaded: list[str] = []
    run = LoadDriver.run

    def noted(driver: LoadDriver, view: View, *rest: Any, **named: Any) -> object:
        loaded.append(view.name)
        return run(driver, view, *rest, **named)

    with Project.open(shop.folder, spark) as project:
        project.setup()
        for policy in ("deferred", "snapshot", "deferred"):
            transact(shop)
            project.refresh()
            transact(shop)
            project.capture()
            transact(shop)
            shop.views = _with_policy(policy)
            shop.write_project()
            with monkeypatch.context() as watching:
                watching.setattr(LoadDriver, "run", noted)
                report = project.setup()
            expected = ["numbers", "sold"] if policy == "deferred" else sorted(SWITCHED)
            assert sorted(report.from_stored) == expected
            assert not set(report.from_stored) & {name.partition("$")[0] for name in loaded}
            loaded.clear()
            transact(shop)
            project.run(once=True)
            if policy == "deferred":
                check_all_it_covers(shop, project)
            project.refresh()
            for name in SWITCHED:
                assert shown(project, name) == shop.expected_now(name), (policy, name)

"""Trees of any depth: operators below operators are maintained in stages, exact at every csn."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from pyspark.sql import SparkSession
from shop import DEEP_VIEWS, Shop, check_all, check_every_csn, shown, transact

from rollview.algebra.view import owner
from rollview.errors import InputError, ViewError
from rollview.project.project import Project
from rollview.storage import stored_view

pytestmark = pytest.mark.slow


@pytest.fixture
def deep(shop: Shop) -> Shop:
    """The shop with deep views, and one that reads one of them."""
    shop.views = DEEP_VIEWS | {"shares": "SELECT c, count(*) AS n FROM three_deep GROUP BY c"}
    shop.write_project()
    transact(shop, 20)
    shop.begin()
    return shop


def test_oracle_every_csn_of_deep_views(deep: Shop, spark: SparkSession) -> None:
    with Project.open(deep.folder, spark) as project:
        project.setup()
        chance = random.Random(2)
        for _ in range(24):
            deep.transact()
            deed = chance.randint(0, 8)
            if deed == 0:
                project.propagate(chance.choice(project.views))
            elif deed == 1:
                project.apply(chance.choice(project.views))
            elif deed == 2:
                project.refresh(chance.choice(project.views))
        project.run(once=True)
        last = project.status().last_csn
        assert last == deep.commits()
        check_every_csn(deep, project)


def test_stages_are_nobodys_views(deep: Shop, spark: SparkSession) -> None:
    with Project.open(deep.folder, spark) as project:
        report = project.setup()
        assert set(report.loaded) == set(deep.views) == set(project.views)
        assert project.setup().unchanged == list(project.views)
        status = project.status()
        assert [view.name for view in status.views] == list(project.views)
        (three,) = [view for view in status.views if view.name == "three_deep"]
        assert {each.relation for each in three.relations} >= {"sales", "customer", "product", "t"}
        assert {path.name for path in (deep.folder / "lake" / "views").iterdir()} == set(deep.views)
        stages = {path.name for path in (deep.folder / "lake" / "state").iterdir() if "$" in path.name}
        assert Counter(map(owner, stages)) == {"days_of_size": 1, "above_the_sum": 1, "three_deep": 3}
        explained = project.explain("days_of_size")
        assert [name for name, _ in explained.operators] == ["aggregate", "block", "aggregate", "block"]
        assert "stage days_of_size$1" in explained.normal_form
        with pytest.raises(InputError, match="no view `t`") as caught:
            project.read("t")
        assert "$" not in caught.value.hint


def test_definitions_change_and_views_go(deep: Shop, spark: SparkSession) -> None:
    with Project.open(deep.folder, spark) as project:
        project.setup()
        state = deep.folder / "lake" / "state"
        before = {path.name for path in state.iterdir()}
        transact(deep)
        # Another inner query, one stage less, and a view that is gone.
        deep.views["days_of_size"] = deep.views["days_of_size"].replace("count(*) AS n,", "sum(1) AS n,")
        deep.views["three_deep"] = """SELECT t.n AS k, count(*) AS c FROM (
            SELECT cust_id, count(*) AS n FROM shop.sales GROUP BY cust_id) t GROUP BY t.n"""
        del deep.views["above_the_sum"]
        deep.write_project()
        report = project.setup()
        deep.capture_views()
        assert report.dropped == ["above_the_sum"]
        assert report.loaded == {
            "days_of_size": "the definition changed",
            "three_deep": "the definition changed",
            "shares": "three_deep was loaded",
        }
        stages = {path.name for path in state.iterdir() if "$" in path.name}
        # What was loaded before stays for a while: somebody may read it.
        assert Counter(map(owner, stages - before)) == {"days_of_size": 1}
        assert not any(name.startswith("above_the_sum") for name in stages)
        transact(deep)
        check_all(deep, project)
        assert set(project.setup(["days_of_size"]).loaded) == {"days_of_size"}
        transact(deep)
        check_all(deep, project)


def test_a_recomputed_view_has_no_stages(deep: Shop, spark: SparkSession) -> None:
    sql = deep.views["three_deep"]
    properties = "TBLPROPERTIES ('rollview.policy' = 'snapshot')"
    deep.views = {"three_deep": f"CREATE MATERIALIZED VIEW three_deep {properties} AS {sql}"}
    deep.write_project()
    with Project.open(deep.folder, spark) as project:
        project.setup()
        assert not (deep.folder / "lake" / "state").exists()
        transact(deep)
        project.refresh()
        assert shown(project, "three_deep") == deep.expected_now("three_deep")
        assert all(verdict.is_right for verdict in project.verify())


def test_a_name_like_a_stage_is_refused(deep: Shop, spark: SparkSession) -> None:
    (deep.folder / "views" / "x.sql").write_text(
        "CREATE MATERIALIZED VIEW `a$1` AS SELECT amount FROM shop.sales"
    )
    with Project.open(deep.folder, spark) as project, pytest.raises(ViewError, match="has a \\$"):
        project.setup()


@pytest.mark.parametrize("pairs", [pytest.param(stored_view._MOST_PAIRS, marks=pytest.mark.soak), 3])
def test_oracle_stages_run_ahead_of_what_is_stored(
    shop: Shop, spark: SparkSession, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With three, keys that change often are looked at in many short ranges.
    monkeypatch.setattr(stored_view, "_MOST_PAIRS", pairs)
    # What a step needs of a stage's state is read near its keys, and rolled along a delta of other keys too.
    shop.views = {
        "newest": """SELECT c.state, l.amount FROM crm.customer c JOIN (
            SELECT cust_id, product_id, amount, sale_id, row_number() OVER (
                PARTITION BY cust_id, product_id ORDER BY sale_id DESC) AS place
            FROM shop.sales QUALIFY place <= 1) l ON l.cust_id = c.cust_id""",
        "largest": """SELECT t.most, count(*) AS n FROM (
            SELECT cust_id, product_id, max(amount) AS most, count(DISTINCT amount) AS d
            FROM shop.sales GROUP BY cust_id, product_id) t GROUP BY t.most""",
    }
    shop.write_project()
    transact(shop, 40)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        for _ in range(5):
            transact(shop, 6)
            project.capture()
            for view in project.views:
                project.propagate(view)
        project.run(once=True)
        check_every_csn(shop, project)

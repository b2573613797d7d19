"""Views that need not show every state: a step counts as one transaction, and what it gives up is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from shop import DEEP_VIEWS, MORE_VIEWS, VIEWS, Shop, check_readable_csns, shown, transact

from rollview.project.project import Project

pytestmark = pytest.mark.slow


def _strong(name: str, sql: str) -> str:
    return f"CREATE MATERIALIZED VIEW {name} TBLPROPERTIES ('rollview.consistency' = 'strong') AS {sql}"


STRONG = {
    **{name: _strong(name, VIEWS[name]) for name in ("sales_by_state", "sold")},
    **{name: _strong(name, MORE_VIEWS[name]) for name in ("families", "everything")},
    "days_of_size": _strong("days_of_size", DEEP_VIEWS["days_of_size"]),
    "states_of_size": MORE_VIEWS["states_of_size"],
}


def test_oracle_every_readable_state(tmp_path: Path, spark: SparkSession) -> None:
    """A join of two sources and of three tables, a self-join, two blocks, stages, a view above."""
    shop = Shop(tmp_path / "shop", STRONG)
    transact(shop, 20)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        for number in (9, 1, 7):
            transact(shop, number)
            project.run(once=True)
        readable, refused = check_readable_csns(shop, project)
    assert readable > len(STRONG) and refused > len(STRONG)


def check_all_now(shop: Shop, project: Project) -> None:
    """Everything committed is shown."""
    for name in shop.views:
        assert shown(project, name) == shop.expected_now(name), name


def test_a_key_changes_once_in_a_step(tmp_path: Path, spark: SparkSession) -> None:
    """beyer2000 §5: what comes and goes is in no delta; complete views have all of it."""
    views = {"sold": _strong("sold", VIEWS["sold"]), "sold_all": VIEWS["sold"]}
    shop = Shop(tmp_path / "shop", views)
    crm, sales = shop.connections["crm"], shop.connections["shop"]
    crm.execute("INSERT INTO customer VALUES (1, 'a', 'x')")
    sales.execute("INSERT INTO product VALUES (1, 'b', NULL)")
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        for amount in (5, 6, 7, 8):
            sales.execute("INSERT OR REPLACE INTO sales VALUES (1, 1, 1, ?)", (amount,))
        project.run(once=True)
        assert [row["_count"] for row in project.deltas("sold").collect()] == [1]
        assert len(project.deltas("sold_all").collect()) == 7
        sales.execute("INSERT INTO sales VALUES (2, 1, 1, 9)")
        sales.execute("DELETE FROM sales WHERE sale_id = 2")
        project.run(once=True)
        assert len(project.deltas("sold").collect()) == 1
        assert shown(project, "sold") == shown(project, "sold_all") == {(1, "a", "b", 8): 1}
        # Seven changes and their net effect, one row; then two and none. Where all are shown, the view
        # answers for three changes of what is only shown, two rows each, and for the deletion.
        strong, complete = project.explain("sold").work, project.explain("sold_all").work
        assert (strong.spared, complete.spared) == (6 + 2, 3 * 2 + 1)
        assert strong.lookups < complete.lookups and strong.rows_found < complete.rows_found
        # Six transactions in two steps.
        works = project._warehouse.catalog.works
        for name, algorithm, total in (("sold", "net-effect", strong), ("sold_all", "sweep", complete)):
            (cost,) = works.by_algorithm(name).values()
            assert (cost.algorithm, cost.steps, cost.transactions) == (algorithm, 2, 6)
            assert (cost.lookups, cost.rows_found) == (total.lookups, total.rows_found)
            assert cost.seconds > 0.0


def test_another_level_loads_the_view(tmp_path: Path, spark: SparkSession) -> None:
    """Positions of one algorithm mean nothing to the other, which is reported, and repaired by `setup`."""
    shop = Shop(tmp_path / "shop", {"sold": VIEWS["sold"]})
    transact(shop, 10)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        shop.views["sold"] = STRONG["sold"]
        shop.write_project()
        assert project.setup().loaded == {"sold": "the definition changed"}
        transact(shop, 5)
        project.run(once=True)
        check_all_now(shop, project)

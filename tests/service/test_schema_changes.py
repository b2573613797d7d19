"""Schema changes at a source that concern no view: nothing stops, nothing is loaded, not by setup either."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from shop import Shop, shown

from pages.what_if import what_if
from rollview.errors import ViewError
from rollview.project.project import Project

pytestmark = pytest.mark.slow

_VIEWS = {
    "kinds": "SELECT kind, count(*) AS n FROM shop.product GROUP BY kind",
    "all_sales": "SELECT * FROM shop.sales",
    "big": "SELECT s.sale_id, p.kind FROM shop.sales s JOIN shop.product p ON s.product_id = p.product_id",
}


@what_if(
    "all sources",
    "a column is added; one that no view uses is dropped, renamed or altered; indexes, comments, rights",
    "nothing. `SELECT *` means the columns at the time of `setup`; `status` mentions those that "
    "came later, within a minute, and `rollview setup --reload VIEW` takes them in",
)
def test_oracle_columns_that_no_view_uses_come_and_go(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path / "shop", _VIEWS)
    connection = shop.connections["shop"]
    connection.execute("INSERT INTO product VALUES (1, 'a', NULL)")
    connection.execute("INSERT INTO sales VALUES (1, 1, 1, 5)")
    with Project.open(shop.folder, spark) as project:
        project.setup()
        number = 1

        def check() -> None:
            nonlocal number
            number += 1
            connection.execute("INSERT INTO product (product_id, kind) VALUES (?, 'b')", (number,))
            connection.execute(
                "INSERT INTO sales (sale_id, cust_id, product_id, amount) VALUES (?, 1, ?, 7)",
                (number, number),
            )
            project.run(once=True)
            for name in shop.views:
                assert shown(project, name) == shop.expected_now(name), name
            assert {view.state for view in project.status().views} == {"running"}

        check()
        for statement in (
            "ALTER TABLE product ADD COLUMN note TEXT DEFAULT 'x'",
            "ALTER TABLE sales ADD COLUMN discount INTEGER",
            "CREATE INDEX by_kind ON product (kind)",
        ):
            connection.execute(statement)
            check()
            assert project.setup().loaded == {}, statement
            check()
        # `*` means what it meant; `status` says what it leaves out, without asking the source.
        assert _new_columns(project) == {"all_sales": ("shop.sales.discount",)}
        with pytest.raises(
            ViewError, match=r"`note` of shop\.product is not captured, because no view uses it"
        ) as refused:
            project.query("SELECT p.NOTE FROM shop.product p JOIN kinds k ON p.kind = k.kind")
        assert "captured: product_id, kind" in refused.value.hint
        with pytest.raises(ViewError, match="Spark does not accept it"):
            project.query("SELECT nothing FROM shop.product")
        # A new view uses a new column, and the others continue as they are.
        shop.views["notes"] = "SELECT product_id, note FROM shop.product WHERE note IS NOT NULL"
        shop.write_project()
        assert set(project.setup().loaded) == {"notes"}
        connection.execute("UPDATE product SET note = 'y' WHERE product_id = 1")
        project.run(once=True)
        assert dict(shown(project, "notes"))[1, "y"] == 1
        assert all(verdict.is_right for verdict in project.verify())
        assert {view.name: view.oldest for view in project.status().views}["kinds"] == 0
        # Whoever wants them asks for it.
        assert set(project.setup(["all_sales"]).loaded) == {"all_sales"}
        assert _new_columns(project) == {}
        assert "discount" in project.read("all_sales").columns
        connection.execute("UPDATE sales SET discount = 3 WHERE sale_id = 1")
        project.run(once=True)
        assert shown(project, "all_sales")[1, 1, 1, 5, 3] == 1
        assert all(verdict.is_right for verdict in project.verify("all_sales"))
        connection.execute("ALTER TABLE sales ADD COLUMN later TEXT")
        project.run(once=True)
        connection.execute("ALTER TABLE sales DROP COLUMN later")
        assert _new_columns(project) == {"all_sales": ("shop.sales.later",)}
        project.run(once=True)
        assert _new_columns(project) == {}
    shop.close()


def _new_columns(project: Project) -> dict[str, tuple[str, ...]]:
    return {view.name: view.new_columns for view in project.status().views if view.new_columns}

"""Setup changes all or nothing: what is refused leaves everything as it was, and maintained."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from pyspark.sql import SparkSession
from shop import VIEWS, Shop, check_all, transact

from rollview.errors import CaptureRefused, RollviewError, SourceUnavailable
from rollview.service.project import Project

pytestmark = pytest.mark.slow


def test_a_source_that_refuses(shop: Shop, project: Project) -> None:
    """An index that capture cannot follow, and views to reload, change and drop."""
    before = {view.name: view.oldest for view in project.status().views}
    with closing(sqlite3.connect(shop.folder / "shop.db")) as connection:
        connection.execute("CREATE UNIQUE INDEX ux ON sales(abs(sale_id))")
        connection.commit()
    for reload in ([], ["shop"], ["sold"]):
        with pytest.raises(CaptureRefused):
            project.setup(reload)
        assert {view.name: view.oldest for view in project.status().views} == before
    shop.views["more"] = "SELECT kind FROM shop.product"
    del shop.views["sold"]
    shop.write_project()
    with pytest.raises(CaptureRefused):
        project.setup()
    status = project.status()
    assert {view.name: view.oldest for view in status.views} == before
    assert status.missing == ("more",)
    with closing(sqlite3.connect(shop.folder / "shop.db")) as connection:
        connection.execute("DROP INDEX ux")
        connection.commit()
    # As it was: the dropped view is still there, and everything is maintained.
    shop.views = dict(VIEWS)
    shop.write_project()
    transact(shop)
    check_all(shop, project)


def test_a_source_that_is_locked(shop: Shop, project: Project) -> None:
    shop.write_project()
    before = {view.name: view.oldest for view in project.status().views}
    text = (shop.folder / "rollview.yml").read_text()
    (shop.folder / "rollview.yml").write_text(text.replace("./shop.db", "./shop.db, timeout: 0.2"))
    with closing(sqlite3.connect(shop.folder / "shop.db", isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with Project.open(shop.folder, project.spark) as other, pytest.raises(SourceUnavailable):
            other.setup([])
        connection.execute("ROLLBACK")
    assert {view.name: view.oldest for view in project.status().views} == before
    transact(shop)
    check_all(shop, project)


def test_bad_input_is_found_before_anything_else(shop: Shop, project: Project) -> None:
    shop.views["nothing"] = "SELECT NULL AS x FROM shop.sales"
    shop.write_project()
    with pytest.raises(RollviewError, match=r"nothing\.sql"):
        project.setup([])
    del shop.views["nothing"]
    shop.write_project()
    transact(shop)
    check_all(shop, project)


def test_capture_of_what_is_no_longer_read_is_removed(shop: Shop, spark: SparkSession) -> None:
    shop.views = {"sold": shop.views["sold"], "products": "SELECT kind FROM shop.product"}
    shop.write_project()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        shop.views = {"sums": "SELECT sum(amount) AS a FROM shop.sales"}
        shop.write_project()
        report = project.setup()
        assert sorted(report.dropped) == ["products", "sold"]
        assert "table product is no longer captured" in report.sources["shop"]
        assert report.sources["shop"].count("table product is no longer captured") == 1
        assert project.setup().sources["shop"] == []

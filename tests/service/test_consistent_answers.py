"""Answers over several views are of one state, or refused: snapshot views, condensed ranges, late loads."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from shop import VIEWS, Shop, shown, transact

from rollview.errors import PointError
from rollview.maintain.load import LoadDriver
from rollview.project.project import Project

pytestmark = pytest.mark.slow

BY_STATE = VIEWS["sales_by_state"]
SNAPSHOT = "CREATE MATERIALIZED VIEW {} TBLPROPERTIES ('rollview.policy' = 'snapshot') AS " + BY_STATE


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """One view that is rolled and two that are only recomputed, of the same definition."""
    views = {"rolled": BY_STATE, "one": SNAPSHOT.format("one"), "other": SNAPSHOT.format("other")}
    shop = Shop(tmp_path / "shop", views)
    transact(shop, 30)
    shop.begin()
    return shop


def _changed(shop: Shop) -> None:
    """A transaction that every view shows."""
    shop.connections["shop"].execute("UPDATE sales SET amount = amount + 1")
    shop.states["shop"].append(shop.copy("shop"))


JOINED = "SELECT a.state, a.total AS one, b.total AS other FROM {} a JOIN {} b ON a.state = b.state"


def test_snapshots_of_two_moments_are_not_combined(shop: Shop, spark: SparkSession) -> None:
    with Project.open(shop.folder, spark) as project:
        project.setup()
        _changed(shop)
        project.refresh("one")
        with pytest.raises(PointError, match="there is no csn at which all of them can be read") as refused:
            project.query(JOINED.format("one", "other"))
        assert "rollview refresh one other" in refused.value.hint
        project.refresh("one", "other")
        answer = project.query(JOINED.format("one", "other"))
        assert all(row.one == row.other for row in answer.rows.collect())
        # A view with a delta is rolled back to the snapshot.
        _changed(shop)
        project.run(once=True)
        answer = project.query(JOINED.format("rolled", "other"))
        assert all(row.one == row.other for row in answer.rows.collect())
        assert answer.csn == project.status().last_csn - 1


def test_a_late_view_is_not_combined_with_an_earlier_snapshot(shop: Shop, spark: SparkSession) -> None:
    with Project.open(shop.folder, spark) as project:
        project.setup()
        _changed(shop)
        project.run(once=True)
        shop.views["late"] = BY_STATE
        shop.write_project()
        project.setup()
        with pytest.raises(PointError, match="late cannot be read before csn"):
            project.query(JOINED.format("one", "late"))
        project.refresh("one")
        answer = project.query(JOINED.format("one", "late"))
        assert all(row.one == row.other for row in answer.rows.collect())


def test_a_condensed_range_is_avoided(shop: Shop, spark: SparkSession) -> None:
    """The snapshot stands inside the range; the rolled view can only be read at its ends."""
    with Project.open(shop.folder, spark) as project:
        project.setup()
        for _ in range(2):
            _changed(shop)
            project.run(once=True)
        project.refresh("one")
        inside = project.status().last_csn
        for _ in range(2):
            _changed(shop)
            project.run(once=True)
        last = project.status().last_csn
        project.condense("rolled", inside - 1, last)
        with pytest.raises(PointError, match="there is no csn at which all of them can be read"):
            project.query(JOINED.format("one", "rolled"))
        project.refresh("one")
        answer = project.query(JOINED.format("one", "rolled"))
        assert answer.csn == last and all(row.one == row.other for row in answer.rows.collect())


def test_views_refreshed_together_show_one_csn(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something commits, and is captured, between the rolling of one view and the loading of the other."""
    with Project.open(shop.folder, spark) as project:
        project.setup()
        true_load = LoadDriver.run

        def interrupted(*arguments: object, **options: object) -> object:
            _changed(shop)
            project.capture()
            return true_load(*arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(LoadDriver, "run", interrupted)
        _changed(shop)
        csn = project.refresh().csn
        shop.match(project)
        for view in project.status().views:
            assert view.materialized == csn, view.name
            assert shown(project, view.name) == shop.expected(project, view.name, csn), view.name


def test_an_answer_that_would_be_too_old_refreshes_what_it_reads(shop: Shop, spark: SparkSession) -> None:
    """Recomputed views, too, and no other ones; base tables alone are captured, and move no view."""
    with Project.open(shop.folder, spark) as project:
        project.setup()
        _changed(shop)
        count = "SELECT sum(amount) AS total FROM shop.sales"
        before = {each.name: each.materialized for each in project.status().views}
        project.query(count, max_staleness=0.0, rewrite=False)
        assert {each.name: each.materialized for each in project.status().views} == before
        answer = project.query("SELECT * FROM one", max_staleness=0.0)
        last = project.status().last_csn
        moved = {each.name: each.materialized for each in project.status().views}
        assert moved == before | {"one": last} and answer.csn == last > before["one"]
        rows = sorted(map(tuple, answer.rows.collect()), key=repr)
        assert rows == sorted(shop.expected(project, "one", last), key=repr)
        # Old enough for whoever does not mind.
        _changed(shop)
        project.capture()
        assert project.query("SELECT * FROM one", max_staleness=3600.0).csn == last
        assert project.query("SELECT * FROM one", max_staleness=0.0).csn == last + 1

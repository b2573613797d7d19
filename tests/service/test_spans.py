"""History survives: a view that is reloaded can still be read as it was, and the gap has its reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from shop import MORE_VIEWS, VIEWS, Shop, shown, transact

from rollview.errors import PointError
from rollview.project.project import Project

pytestmark = pytest.mark.slow

_VIEWS = {
    "sales_by_state": VIEWS["sales_by_state"],
    "sold": VIEWS["sold"],
    "states_of_size": MORE_VIEWS["states_of_size"],
}


def _states(project: Project, view: str) -> dict[int, Counter[tuple[Any, ...]]]:
    """What a view shows at every csn that it covers."""
    found = next(each for each in project.status().views if each.name == view)
    return {csn: shown(project, view, csn) for csn in range(found.oldest, found.high_water + 1)}


def _run(project: Project, shop: Shop, transactions: int) -> None:
    for _ in range(transactions):
        shop.transact()
        project.run(once=True)


@pytest.mark.parametrize("why", ["the definition changed", pytest.param("asked for", marks=pytest.mark.soak)])
def test_oracle_every_state_of_before_can_be_read(tmp_path: Path, spark: SparkSession, why: str) -> None:
    """Also once maintenance has taken away what nothing needs, and after a third load."""
    shop = Shop(tmp_path / "shop", _VIEWS)
    transact(shop, 12)
    with Project.open(shop.folder, spark) as project:
        shop.begin()
        project.setup()
        _run(project, shop, 3)
        before = {name: _states(project, name) for name in _VIEWS}
        changes = [tuple(row) for row in project.deltas("sales_by_state").collect()]
        end = max(before["sales_by_state"])
        # What is committed now is in nobody's history.
        transact(shop)
        if why == "asked for":
            project.setup(["sales_by_state", "sold"])
        else:
            shop.views["sales_by_state"] = """SELECT c.segment, c.state, count(*) AS n FROM shop.sales s
                JOIN crm.customer c ON s.cust_id = c.cust_id GROUP BY c.state, c.segment"""
            shop.views["sold"] = VIEWS["sold"].replace("> 2", "> 1")
            shop.write_project()
            project.setup()
        _run(project, shop, 2)
        for name in ("sales_by_state", "sold"):
            status = next(each for each in project.status().views if each.name == name)
            assert [(span.oldest, span.newest) for span in status.spans] == [
                (min(before[name]), max(before[name]))
            ]
        _same(project, before)
        start, stop = f"csn:{min(before['sales_by_state'])}", f"csn:{end}"
        assert [tuple(row) for row in project.deltas("sales_by_state", start, stop).collect()] == changes
        began = next(each for each in project.status().views if each.name == "sold").oldest
        assert began > end
        for csn in range(end + 1, began):
            with pytest.raises(PointError, match="reloaded"):
                project.read("sold", csn)
        with pytest.raises(PointError):
            project.deltas("sold", start, f"csn:{began}")
        project.setup(["sold"])
        project.maintain()
        _same(project, before)
    # A process that has seen none of it.
    with Project.open(shop.folder, spark) as project:
        _same(project, before)
        assert all(verdict.is_right for verdict in project.verify())
        project._warehouse.catalog.views.forget_spans("sold", float("inf"))
        with pytest.raises(PointError, match="before what its view delta covers"):
            project.read("sold", end)
    shop.close()


def _same(project: Project, before: dict[str, dict[int, Counter[tuple[Any, ...]]]]) -> None:
    for name, states in before.items():
        for csn, rows in states.items():
            assert shown(project, name, csn) == rows, (name, csn)


def test_a_dropped_view_has_no_past(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path / "shop", {"sold": VIEWS["sold"]})
    transact(shop, 12)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        project.setup(["sold"])
        assert len(project._warehouse.catalog.views.spans("sold")) == 1
        shop.views = {"sales_by_state": VIEWS["sales_by_state"]}
        shop.write_project()
        project.setup()
        assert project._warehouse.catalog.views.spans("sold") == []
        assert not list((shop.folder / "lake" / "deltas").glob("sold*"))
    shop.close()

"""A crash at every durable step of every driver, one by one, each followed by recovery.

After every recovery all views equal the oracle at the csn they show and at every csn they can be read at, and
no transaction was lost or applied twice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from crashing import Died, Executioner
from pyspark.sql import SparkSession
from shop import Shop, shown

from rollview.service.project import Project

pytestmark = pytest.mark.slow

VIEWS = {
    "sales_by_state": """SELECT c.state, count(*) AS n, sum(s.amount) AS total FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id GROUP BY c.state""",
    "states_of_size": "SELECT n, count(*) AS states FROM sales_by_state GROUP BY n",
}


def _prepared(folder: Path) -> Shop:
    shop = Shop(folder, VIEWS)
    for _ in range(12):
        shop.transact()
    shop.begin()
    return shop


def _attempt(shop: Shop, spark: SparkSession, action: Callable[[Project], None]) -> bool:
    """Whether the action came to its end; what dies, dies silently."""
    project = Project.open(shop.folder, spark)
    try:
        action(project)
        return True
    except Died:
        return False
    finally:
        with suppress(Died):
            project.close()


def _check(shop: Shop, spark: SparkSession, place: str) -> None:
    with Project.open(shop.folder, spark) as project:
        project.setup()
        project.run(once=True)
        last = project.status().last_csn
        assert last == sum(len(states) - 1 for states in shop.states.values()), place
        for view in project.views:
            assert shown(project, view) == shop.expected(project, view, last), (place, view)
            oldest = project.status().views[0].oldest
            middle = (oldest + last) // 2
            assert shown(project, view, middle) == shop.expected(project, view, middle), (place, view)
        assert project.status().unfinished == ()


def _set_up(project: Project) -> None:
    project.setup()


def _round(project: Project) -> None:
    project.run(once=True)


def _refresh(project: Project) -> None:
    project.capture()
    project.refresh("sales_by_state", to=project.status().last_csn)


@pytest.mark.parametrize("action", [_set_up, _round, _refresh])
def test_oracle_a_crash_at_every_durable_step(
    action: Callable[[Project], None], tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    executioner = Executioner(monkeypatch)
    shop = _prepared(tmp_path / "shop")
    if action is not _set_up:
        _attempt(shop, spark, _set_up)
    point, places = 0, []
    while True:
        for _ in range(2):
            shop.transact()
        if action is _set_up:
            # Every crash of a set-up meets a fresh project; nothing was captured of the old one.
            shop.close()
            shop = _prepared(tmp_path / f"shop-{point}")
        executioner.kill_at(point)
        finished = _attempt(shop, spark, action)
        places.append(executioner.place)
        executioner.revive()
        if finished:
            break
        if action is _set_up:
            shop.begin()
            if any(states for states in shop.states.values()):
                _check_set_up(shop, spark, places[-1])
        else:
            _check(shop, spark, places[-1])
        point += 1
    shop.close()
    assert point >= 8, places


def _check_set_up(shop: Shop, spark: SparkSession, place: str) -> None:
    """A set-up that died is done again, and the project works."""
    with Project.open(shop.folder, spark) as project:
        project.setup()
        shop.begin()
        shop.transact()
        project.run(once=True)
        for view in project.views:
            expected = shop.expected_now(view)
            assert shown(project, view) == expected, (place, view)
        assert all(verdict.is_right for verdict in project.verify()), place

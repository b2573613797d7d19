"""Due times, and views whose stored copies are at them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from shop import VIEWS, Shop, shown, transact

from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.config.schedules import Condensing, condensing_of, schedule_of
from rollview.errors import InputError, PointError
from rollview.planning import parse_view
from rollview.project.project import Project


def _view(**properties: str) -> View:
    said = ", ".join(f"'rollview.{key}' = '{value}'" for key, value in properties.items())
    properties_sql = f"TBLPROPERTIES ({said}) " if said else ""
    text = f"CREATE MATERIALIZED VIEW v {properties_sql}AS SELECT x FROM s.t"
    return parse_view(text, [Table("s", "t", ("x",))])


def _at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "now", "last", "following"),
    [
        ("every 1h", "2026-05-04T10:20:00", "2026-05-04T10:00:00", "2026-05-04T11:00:00"),
        ("every 1h", "2026-05-04T10:00:00", "2026-05-04T10:00:00", "2026-05-04T11:00:00"),
        ("0 0 * * *", "2026-05-04T10:20:00", "2026-05-04T00:00:00", "2026-05-05T00:00:00"),
        ("0 0 * * *", "2026-05-04T00:00:00", "2026-05-04T00:00:00", "2026-05-05T00:00:00"),
        ("0 0 1 * *", "2026-05-04T10:20:00", "2026-05-01T00:00:00", "2026-06-01T00:00:00"),
        ("*/5 * * * *", "2026-05-04T10:20:59", "2026-05-04T10:20:00", "2026-05-04T10:25:00"),
        ("0 0 * * * Europe/Berlin", "2026-05-04T10:20:00", "2026-05-03T22:00:00", "2026-05-04T22:00:00"),
        # The night in which the clock is put forward.
        ("0 4 * * * Europe/Berlin", "2026-03-29T12:00:00", "2026-03-29T02:00:00", "2026-03-30T02:00:00"),
    ],
)
def test_due_times(text: str, now: str, last: str, following: str) -> None:
    schedule = schedule_of(_view(schedule=text))
    assert schedule is not None
    assert schedule.last(_at(now)) == _at(last)
    assert schedule.next(_at(now)) == _at(following)


@pytest.mark.parametrize(
    "text", ["hourly", "every", "every 0s", "0 0 * *", "99 0 * * *", "0 0 * * * Nowhere/X"]
)
def test_what_is_no_schedule(text: str) -> None:
    with pytest.raises(InputError, match=r"rollview\.schedule is"):
        schedule_of(_view(schedule=text))


def test_what_is_condensed() -> None:
    assert schedule_of(_view()) is None and condensing_of(_view()) is None
    assert condensing_of(_view(condense_after="7d per 1h")) == Condensing(7 * 86400.0, 3600.0)
    condensing = condensing_of(_view(condense_after="10s"))
    assert condensing == Condensing(10.0, 10.0)
    assert condensing.ends(103.0, 145.0) == [100.0, 110.0, 120.0, 130.0]
    with pytest.raises(InputError, match=r"rollview\.condense_after is"):
        condensing_of(_view(condense_after="often"))


def _scheduled(name: str, schedule: str, sql: str, *more: str) -> str:
    properties = ", ".join([f"'rollview.schedule' = '{schedule}'", *more])
    return f"CREATE MATERIALIZED VIEW {name} TBLPROPERTIES ({properties}) AS {sql}"


@pytest.mark.slow
def test_oracle_copies_stand_at_their_due_times(tmp_path: Path, spark: SparkSession) -> None:
    """A copy of every second, one of every century and one that is recomputed, beside the view itself."""
    by_state = VIEWS["sales_by_state"]
    views = {
        "sales_by_state": by_state,
        "often": _scheduled("often", "every 1s", "SELECT * FROM sales_by_state"),
        "rarely": _scheduled("rarely", "0 0 1 1 *", "SELECT * FROM sales_by_state"),
        "again": _scheduled("again", "every 1s", by_state, "'rollview.policy' = 'snapshot'"),
    }
    shop = Shop(tmp_path / "shop", views)
    transact(shop, 20)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        loaded = project.status().last_csn
        moved = set()
        for _ in range(3):
            transact(shop, 5)
            time.sleep(1.1)
            transact(shop, 2)
            before = time.time()
            project.run(once=True)
            after = time.time()
            shop.match(project)
            catalog = project._warehouse.catalog
            status = {each.name: each for each in project.status().views}
            assert status["sales_by_state"].materialized == project.status().last_csn
            assert status["rarely"].materialized == loaded
            for name in ("often", "again"):
                csn = status[name].materialized
                assert catalog.history.csn_at(before // 1) <= csn <= catalog.history.csn_at(after // 1)
                assert shown(project, name) == shop.expected(project, name, csn), (name, csn)
                moved.add(csn)
            # Each of them is known at every time, as its delta is.
            last = project.status().last_csn
            assert shown(project, "rarely", last) == shop.expected(project, "rarely", last)
        assert len(moved) > 2 and status["often"].schedule == "every 1s" and status["often"].next_due


@pytest.mark.slow
def test_oracle_what_is_old_is_condensed(tmp_path: Path, spark: SparkSession) -> None:
    properties = "TBLPROPERTIES ('rollview.condense_after' = '2s')"
    views = {"v": f"CREATE MATERIALIZED VIEW v {properties} AS {VIEWS['sales_by_state']}"}
    shop = Shop(tmp_path / "shop", views)
    transact(shop, 20)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        end = time.monotonic() + 7
        while time.monotonic() < end:
            transact(shop, 4)
            project.run(once=True)
        time.sleep(4)
        project.run(once=True)
        shop.match(project)
        ranges = project._warehouse.catalog.views.condensed("v")
        assert ranges
        last, refused = project.status().last_csn, 0
        for csn in range(last + 1):
            try:
                found = shown(project, "v", csn)
            except PointError as error:
                assert "condensed" in error.message and any(each.after < csn < each.upto for each in ranges)
                refused += 1
                continue
            assert found == shop.expected(project, "v", csn), csn
        assert refused

"""Views with a bound on their staleness: how long they wait for transactions, and what that costs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from shop import DEEP_VIEWS, VIEWS, Shop, shown, transact

from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.catalog import CostLine
from rollview.cli.main import main
from rollview.config.schedules import staleness_of
from rollview.errors import InputError, RollviewError
from rollview.maintain.batches import begin_by, staleness_bounds
from rollview.planning import parse_view
from rollview.project.project import Project
from rollview.run.run import Round
from rollview.views.properties import as_table, parse_text
from rollview.views.view_files import ViewText

T = Table("s", "t", ("x",))


def _sql(name: str, sql: str, **properties: str) -> str:
    said = ", ".join(f"'rollview.{key}' = '{value}'" for key, value in properties.items())
    return f"CREATE MATERIALIZED VIEW {name} {f'TBLPROPERTIES ({said}) ' if said else ''}AS {sql}"


def _view(name: str, table: Table, **properties: str) -> View:
    return parse_view(_sql(name, f"SELECT x FROM {table.qualified}", **properties), [table], name)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30 seconds", 30.0), ("500ms", 0.5), ("2 minutes", 120.0), ("1h", 3600.0)]
)
def test_a_bound_is_a_duration(text: str, seconds: float) -> None:
    assert staleness_of(_view("v", T, max_staleness=text)) == seconds
    assert staleness_of(_view("v", T)) == 0.0


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"max_staleness": "soon"}, "rollview.max_staleness is `soon`"),
        ({"max_staleness": "0s"}, "rollview.max_staleness is `0s`"),
        ({"max_staleness": "30s", "schedule": "every 1h"}, "no place beside rollview.schedule"),
        ({"max_staleness": "30s", "policy": "snapshot"}, "this one is recomputed"),
        ({"max_staleness": "30s", "refresh": "full"}, "this one is recomputed"),
    ],
)
def test_what_is_no_bound(properties: dict[str, str], message: str, tmp_path: Path) -> None:
    sql = _sql("v", "SELECT x FROM s.t", **properties)
    text = ViewText(tmp_path / "v.sql", "v", sql, ("s.t",))
    with pytest.raises(InputError, match=message):
        parse_text(text, {"s.t": T}, lambda *_: {})


def test_views_that_read_each_other_wait_together() -> None:
    a = _view("a", T, max_staleness="30s")
    b = _view("b", as_table(a), max_staleness="10s")
    c = _view("c", as_table(a))
    d = _view("d", as_table(b), max_staleness="60s")
    scheduled = _view("e", as_table(a), schedule="every 1h")
    recomputed = _view("f", as_table(a), policy="snapshot")
    free = _view("g", T)
    views = {each.name: each for each in (a, b, c, d, scheduled, recomputed, free)}
    # `a` does not wait longer than `b` may, `c` waits with it, and `b` with `d` no longer than its own.
    assert staleness_bounds(views) == {"a": 10.0, "b": 10.0, "c": 30.0, "d": 60.0}


def test_a_line_through_measured_steps() -> None:
    cost = CostLine()
    for rows in (10, 200, 50, 1000, 3):
        cost = cost.with_sample(rows, 0.4 + 0.002 * rows)
    assert cost.fixed_seconds == pytest.approx(0.4) and cost.row_seconds == pytest.approx(0.002)
    assert cost.of(500) == pytest.approx(1.4) and cost.deviation_seconds == pytest.approx(0.0, abs=1e-6)
    for rows in (10, 200, 50, 1000, 3) * 40:
        cost = cost.with_sample(rows, 0.1 + 0.001 * rows)
    assert cost.fixed_seconds == pytest.approx(0.1, rel=0.01), "old samples fade"


def test_a_line_that_nothing_determines() -> None:
    assert CostLine().of(10) == 0.0
    same = CostLine().with_sample(10, 0.5).with_sample(10, 0.7)
    assert same.row_seconds == 0.0 and 0.5 < same.fixed_seconds < 0.7 and same.deviation_seconds > 0.05
    # More rows in less time: neither part is below zero.
    falling = CostLine().with_sample(10, 0.9).with_sample(100, 0.1)
    assert falling.row_seconds == 0.0 and falling.fixed_seconds > 0.0
    steep = CostLine().with_sample(10, 0.0).with_sample(100, 1.0)
    assert steep.fixed_seconds >= 0.0


def _of_line(fixed: float, per_row: float) -> CostLine:
    cost = CostLine()
    for rows in (1, 50, 400):
        cost = cost.with_sample(rows, fixed + per_row * rows)
    return cost


def test_a_step_begins_when_it_is_just_done_in_time() -> None:
    assert begin_by(100.0, 30.0, _of_line(1.0, 0.01), 200, 2.0) == pytest.approx(100.0 + 30.0 - 3.0 - 2.0)
    assert begin_by(100.0, 30.0, CostLine(), 200, 2.0) == 100.0 + 0.75 * 30.0 - 2.0
    # 10 ms are less than a twentieth of 1.01 s: to wait for more would save nothing.
    assert begin_by(100.0, 30.0, _of_line(0.01, 0.01), 100, 2.0) == 100.0


@pytest.mark.parametrize(
    ("fixed", "per_row", "rate"), [(0.8, 0.002, 5.0), (0.3, 0.01, 20.0), (2.0, 0.0, 1.0)]
)
def test_oracle_the_chosen_batch_costs_as_little_as_the_best_fixed_one(
    fixed: float, per_row: float, rate: float
) -> None:
    """An hour of arrivals, steps with noise, a loop that looks twice a second, against every fixed size."""
    bound = 20.0

    def hour(
        begins: Callable[[float, float, int], bool], learns: Callable[[int, float], None]
    ) -> tuple[float, float]:
        """The seconds per row, and the age of changes that 99 in 100 did not exceed when they were shown."""
        chance = random.Random(7)
        now, arrival, work, rows_done = 0.0, chance.expovariate(rate), 0.0, 0
        waiting: list[float] = []
        ages: list[float] = []
        while now < 3600.0:
            while arrival <= now:
                waiting.append(arrival)
                arrival += chance.expovariate(rate)
            if waiting and begins(now, waiting[0], len(waiting)):
                seconds = max(0.01, (fixed + per_row * len(waiting)) * chance.gauss(1.0, 0.1))
                now, work, rows_done = now + seconds, work + seconds, rows_done + len(waiting)
                ages += [now - each for each in waiting]
                learns(len(waiting), seconds)
                waiting = []
            else:
                now += 0.5
        return work / rows_done, sorted(ages)[int(0.99 * len(ages))]

    best = min(
        cost
        for cost, age in (
            hour(lambda _now, _first, rows, size=size: rows >= size, lambda *_: None)
            for size in (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 400)
        )
        if age <= bound
    )
    known = [CostLine()]

    def learns(rows: int, seconds: float) -> None:
        known[0] = known[0].with_sample(rows, seconds)

    cost, age = hour(lambda now, first, rows: now >= begin_by(first, bound, known[0], rows, 0.5), learns)
    assert age <= bound
    assert cost <= 1.05 * best


class _Clock:
    """The real time, and so many seconds more."""

    ahead_seconds = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_seconds


def _round(project: Project) -> tuple[Round, _Clock]:
    """One round after the other, with a clock that can be put forward."""
    found, clock = project._drivers.run.round, _Clock()
    found.batches._clock = clock
    return found, clock


@pytest.mark.slow
def test_oracle_views_wait_until_their_bound(tmp_path: Path, spark: SparkSession) -> None:
    """A view that waits, one that waits with it, one with stages, and one that does not."""
    views = {
        "sales_by_state": _sql("sales_by_state", VIEWS["sales_by_state"], max_staleness="1 hour"),
        "states_of_size": "SELECT n, count(*) AS states FROM sales_by_state GROUP BY n",
        "days_of_size": _sql("days_of_size", DEEP_VIEWS["days_of_size"], max_staleness="1 hour"),
        "sold": VIEWS["sold"],
    }
    shop = Shop(tmp_path / "shop", views)
    transact(shop, 20)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        loaded = project.status().last_csn
        each_round, clock = _round(project)
        for _ in range(2):
            clock.ahead_seconds = 0.0
            for _ in range(2):
                transact(shop, 5)
                each_round.run().check()
                status = {each.name: each for each in project.status().views}
                last = project.status().last_csn
                assert status["sold"].materialized == last
                for name in views.keys() - {"sold"}:
                    assert status[name].materialized == loaded, name
                    assert status[name].state == "running" and not status[name].late
                    assert status[name].lag_seconds, name
            clock.ahead_seconds = 3600.0
            each_round.run().check()
            status = {each.name: each for each in project.status().views}
            loaded = last
            shop.match(project)
            for name, view in status.items():
                assert view.materialized == last, name
                assert shown(project, name) == shop.expected(project, name, last), name
                assert (view.batch is not None) == (name != "sold")
                if view.batch is not None:
                    assert view.batch.max_staleness_seconds == 3600.0 and view.batch.is_measured
                    assert view.batch.mean_rows > 0.0 and view.batch.fixed_seconds > 0.0
            # States inside of what was waited for can be read as ever.
            for csn in range(last - 9, last):
                assert shown(project, "days_of_size", csn) == shop.expected(project, "days_of_size", csn)
        for command in (["status"], ["explain", "sales_by_state"]):
            printed = CliRunner().invoke(main, [*command, "--project", str(shop.folder)], obj=spark)
            assert "at most 3600 s after their commit; a step takes" in printed.output, printed.output
        transact(shop, 5)
        project.run(once=True)
        assert {each.materialized for each in project.status().views} == {project.status().last_csn}


@pytest.mark.slow
def test_what_a_view_reads_begins_with_it(tmp_path: Path, spark: SparkSession) -> None:
    views = {
        "sales_by_state": _sql("sales_by_state", VIEWS["sales_by_state"], max_staleness="1h"),
        "states_of_size": _sql(
            "states_of_size",
            "SELECT n, count(*) AS states FROM sales_by_state GROUP BY n",
            max_staleness="1 minute",
        ),
        "sold": _sql("sold", VIEWS["sold"], max_staleness="1h"),
    }
    shop = Shop(tmp_path / "shop", views)
    transact(shop, 20)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        loaded = project.status().last_csn
        each_round, clock = _round(project)
        transact(shop, 10)
        each_round.run().check()
        assert {each.materialized for each in project.status().views} == {loaded}
        clock.ahead_seconds = 61.0
        each_round.run().check()
        at = {each.name: each.materialized for each in project.status().views}
        last = project.status().last_csn
        assert at == {"sales_by_state": last, "states_of_size": last, "sold": loaded}
        assert shown(project, "states_of_size") == shop.expected_now("states_of_size")


@pytest.mark.slow
def test_a_source_whose_clock_is_ahead_makes_no_view_wait_longer(tmp_path: Path, spark: SparkSession) -> None:
    views = {"sold": _sql("sold", VIEWS["sold"], max_staleness="1 minute")}
    shop = Shop(tmp_path / "shop", views)
    transact(shop, 20)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        loaded = project.status().last_csn
        each_round, clock = _round(project)
        clock.ahead_seconds = -3600.0
        transact(shop, 10)
        each_round.run().check()
        assert project.status().views[0].materialized == loaded
        clock.ahead_seconds += 61.0
        each_round.run().check()
        assert project.status().views[0].materialized == project.status().last_csn > loaded


@pytest.mark.slow
def test_a_view_that_stopped_does_not_wait(tmp_path: Path, spark: SparkSession) -> None:
    """It continues as soon as it can, and what went wrong is not hidden behind the bound."""
    views = {"sold": _sql("sold", VIEWS["sold"], max_staleness="1h")}
    shop = Shop(tmp_path / "shop", views)
    transact(shop, 20)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        loaded = project.status().last_csn
        each_round, _ = _round(project)
        transact(shop, 10)
        each_round.run().check()
        assert project.status().views[0].materialized == loaded
        each_round.faults.halt("view", "sold", RollviewError("stopped by hand"))
        each_round.run().check()
        view = project.status().views[0]
        assert view.materialized == project.status().last_csn > loaded and view.halted is None

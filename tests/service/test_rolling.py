"""Rolling propagation on Spark: an interval for each relation, and a control record that survives crashes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from crash_bench import Bench
from crashing import Executioner
from pyspark.sql import SparkSession
from shop import MORE_VIEWS, VIEWS, Shop, check_every_csn, shown, transact

from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import CostLine
from rollview.maintain.control_records import ControlRecords
from rollview.maintain.intervals import bearable_width
from rollview.project.project import Project
from rollview.sources.source import Lookup, ReadResult
from rollview.sources.sqlite.source import SQLiteSource

pytestmark = pytest.mark.slow


def _rolling(name: str, sql: str, **intervals: int) -> str:
    said = ["'rollview.algorithm' = 'rolling'"]
    said += [f"'rollview.interval.{alias}' = '{number}'" for alias, number in intervals.items()]
    return f"CREATE MATERIALIZED VIEW {name} TBLPROPERTIES ({', '.join(said)}) AS {sql}"


ROLLING = {
    "sales_by_state": _rolling("sales_by_state", VIEWS["sales_by_state"], s=2, c=5),
    "sold": _rolling("sold", VIEWS["sold"], s=1, c=4, p=2),
    "families": _rolling("families", MORE_VIEWS["families"], a=1, b=3),
    "everything": _rolling("everything", MORE_VIEWS["everything"]),
    "states_of_size": MORE_VIEWS["states_of_size"],
}


def test_oracle_every_csn(tmp_path: Path, spark: SparkSession) -> None:
    """Relations at their own paces, a self-join, two blocks, groups, and a view above; it stops anywhere."""
    shop = Shop(tmp_path / "shop", ROLLING)
    transact(shop, 20)
    shop.begin()
    owed = 0
    with Project.open(shop.folder, spark) as project:
        project.setup()
        catalog, views = project._warehouse.catalog, project._warehouse.views
        for number in (9, 6):
            transact(shop, number)
            project.capture()
            # One step alone leaves queries that have not been compensated for.
            driver = project._drivers.propagate
            for name in ("sales_by_state", "sold", "families"):
                with catalog.lease(f"propagate:{name}", 1.0) as lease:
                    driver._step(lease, views.named(name), None)
                control = ControlRecords(catalog).read(views.named(name))
                owed += sum(len(queries) for each in control.values() for queries in each.lists)
                assert catalog.views.high_water(name) <= min(
                    each for c in control.values() for each in c.forward
                )
            project.refresh("sold", to=min(catalog.views.high_water("sold") + 1, catalog.history.last_csn()))
            project.run(once=True)
        check_every_csn(shop, project)
    assert owed


@pytest.mark.soak
def test_oracle_a_crash_at_every_durable_operation(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollview.run.run.RunDriver.maintain_lake", lambda driver: {})
    views = {"sold": ROLLING["sold"], "sales_by_state": ROLLING["sales_by_state"]}
    bench = Bench(tmp_path / "shop", spark, Executioner(monkeypatch), views)
    assert bench.do(lambda project: project.setup())
    for place in bench.every_crash(lambda project: project.run(once=True), "_commit of deltas/sold"):
        bench.check(place)
    bench.shop.close()


@pytest.mark.parametrize(
    ("fixed", "per_row", "expected"),
    [(0.1, 0.01, 90), (0.0, 0.001, 1000), (0.999, 0.5, 1), (1.5, 0.01, 1_000_000), (0.3, 0.0, 1_000_000)],
)
def test_the_widest_interval_whose_look_ups_are_quick_enough(
    fixed: float, per_row: float, expected: int
) -> None:
    answers = CostLine()
    for width in (1, 20, 400):
        answers = answers.with_sample(width, fixed + per_row * width)
    assert bearable_width(answers, 1.0) == pytest.approx(expected, abs=1)


def test_a_width_is_tried_before_it_is_known_to_help() -> None:
    assert bearable_width(CostLine(), 1.0) == 1_000_000
    assert bearable_width(CostLine().with_sample(400, 0.5), 1.0) == 1_000_000
    assert bearable_width(CostLine().with_sample(400, 5.0), 1.0) == 200
    # It did not help: narrow intervals would only ask more often.
    both = CostLine().with_sample(400, 5.0).with_sample(200, 5.0)
    assert bearable_width(both, 1.0) == 1_000_000


@pytest.mark.parametrize("algorithm", ["sweep", "rolling"])
def test_oracle_a_busy_source_narrows_the_intervals_of_those_who_ask_it(
    algorithm: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key takes the source of customers 5 ms: sales, which look them up, get narrow; customers do not."""
    said = f"CREATE MATERIALIZED VIEW v TBLPROPERTIES ('rollview.algorithm' = '{algorithm}') AS "
    join = "SELECT s.sale_id, c.state FROM shop.sales s JOIN crm.customer c ON s.cust_id = c.cust_id"
    shop = Shop(tmp_path / "shop", {"v": said + join})
    shop.write_project(lookup_seconds="0.1", step_seconds="600")
    true_lookup, sent = SQLiteSource.lookup, list[int]()

    def lookup(source: SQLiteSource, plan: Sequence[Lookup]) -> ReadResult:
        if source.name == "crm":
            sent.append(sum(each.keys.num_rows for each in plan if each.keys is not None))
            time.sleep(0.005 * sent[-1])
        return true_lookup(source, plan)

    monkeypatch.setattr(SQLiteSource, "lookup", lookup)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        for number in range(400):
            shop.connections["shop"].execute("INSERT INTO sales VALUES (?, ?, 1, 1)", (number, number))
            if number % 4 == 0:
                shop.connections["crm"].execute("INSERT INTO customer VALUES (?, 'a', 'x')", (number,))
            if number in (200, 399):
                project.run(once=True)
        for number in range(400, 600):
            shop.connections["shop"].execute("INSERT INTO sales VALUES (?, ?, 1, 1)", (number, number))
        project.run(once=True)
        assert shown(project, "v") == shop.expected_now("v")
        sizing = project._drivers.propagate.choice.sizing
        view = project._warehouse.views.named("v")
        assert [each.alias for each in view.blocks[0].relations] == ["s", "c"]
        of_sales, of_customers = (sizing._bearable(ForwardQuery("v", 0, each)) for each in range(2))
    # In 0.1 s there are 20 keys.
    assert max(sent) > 100 and max(sent[-3:]) <= 30
    assert 5 <= of_sales <= 30 and of_customers >= 100

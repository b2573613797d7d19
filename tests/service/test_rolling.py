"""Rolling propagation on Spark: an interval for each relation, and a control record that survives crashes."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash_bench import Bench
from crashing import Executioner
from pyspark.sql import SparkSession
from shop import MORE_VIEWS, VIEWS, Shop, check_every_csn, transact

from rollview.service.control_records import ControlRecords
from rollview.service.project import Project

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
                assert catalog.high_water(name) <= min(each for c in control.values() for each in c.forward)
            project.refresh("sold", to=min(catalog.high_water("sold") + 1, catalog.last_csn()))
            project.run(once=True)
        check_every_csn(shop, project)
    assert owed


@pytest.mark.soak
def test_oracle_a_crash_at_every_durable_operation(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollview.service.run.RunDriver.maintain_lake", lambda driver: {})
    views = {"sold": ROLLING["sold"], "sales_by_state": ROLLING["sales_by_state"]}
    bench = Bench(tmp_path / "shop", spark, Executioner(monkeypatch), views)
    assert bench.do(lambda project: project.setup())
    for place in bench.every_crash(lambda project: project.run(once=True), "_commit of deltas/sold"):
        bench.check(place)
    bench.shop.close()

"""Every algorithm that the product runs, on the same live project, while writers write."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest
from live_algorithms import LIVE, QUERIES, SOLD, LiveShop
from pyspark.sql import SparkSession

from rollview.algorithms.algorithm import Level
from rollview.algorithms.registry import ALGORITHMS
from rollview.maintain import algorithm_choice
from rollview.project.project import Project
from servers.postgres import PostgresServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.remove()


def test_every_algorithm_reaches_what_it_claims(
    tmp_path: Path, spark: SparkSession, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The writers end, and then every view comes to rest; how long that takes is up to the machine.
    monkeypatch.setattr("rollview.maintain.raw_step.REST_SECONDS", inf)
    shop = LiveShop(tmp_path / "live", postgres.create_database("algorithms"))
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        shop.counting(project)
        with shop.writing(pause=0.15, most=8):
            while project.status().last_csn <= 15:
                project.run(once=True)
        project.run(once=True)
        reached = shop.judge(project)
        assert project.status().last_csn > 15
    for algorithm in LIVE:
        assert reached[algorithm] >= ALGORITHMS[algorithm].level, algorithm
        assert shop.costs[algorithm].lookups or QUERIES[algorithm] != SOLD, algorithm


def test_the_algorithm_may_change_while_writers_write(
    tmp_path: Path, spark: SparkSession, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that reach the level take turns on the same view; each state is judged."""
    monkeypatch.setattr(algorithm_choice, "STEPS_OF_EACH", 1)
    monkeypatch.setattr(algorithm_choice, "MOST_TRANSACTIONS", 2)
    monkeypatch.setattr(algorithm_choice, "STEPS_BETWEEN_ROUNDS", 2)
    shop = LiveShop(tmp_path / "live", postgres.create_database("chosen"))
    levels = {"kept_complete": Level.COMPLETE, "kept_strong": Level.STRONG}
    said = "TBLPROPERTIES ('rollview.algorithm' = 'auto', 'rollview.consistency' = '{level}')"
    shop.replace_views(
        {
            name: f"CREATE MATERIALIZED VIEW {name} {said.format(level=level)} AS {SOLD}"
            for name, level in levels.items()
        }
    )
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        with shop.writing(pause=0.15, most=12):
            while project.status().last_csn <= 25:
                project.run(once=True)
        project.run(once=True)
        reached = shop.judge_views(project, dict.fromkeys(levels, SOLD))
        works = project._warehouse.catalog.works
        for name, level in levels.items():
            assert reached[name] >= level
            costs = works.by_algorithm(name)
            assert len(costs) > 4, costs
            assert not any(cost.failures for cost in costs.values()), costs

"""Every algorithm that the product runs, on the same live project, while writers write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from live_algorithms import LiveShop
from pyspark.sql import SparkSession

from rollview.algorithms.registry import ALGORITHMS
from rollview.service.definitions import SERVED
from rollview.service.project import Project
from servers.postgres import PostgresServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.remove()


def test_every_algorithm_reaches_what_it_claims(
    tmp_path: Path, spark: SparkSession, postgres: PostgresServer
) -> None:
    shop = LiveShop(tmp_path / "live", postgres.create_database("algorithms"))
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        shop.counting(project)
        with shop.writing(pause=0.15, rest=8.0, most=8):
            while project.status().last_csn <= 15:
                project.run(once=True)
        project.run(once=True)
        reached = shop.judge(project)
        assert project.status().last_csn > 15
    for algorithm in SERVED:
        assert reached[algorithm] >= ALGORITHMS[algorithm].level, algorithm
        assert shop.costs[algorithm].lookups, algorithm

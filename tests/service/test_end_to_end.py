"""The main path on real databases: every csn of every view equals DuckDB's answer at that csn."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession
from shop import MORE_VIEWS, VIEWS, Shop, check_every_csn

from rollview.project.project import Project

pytestmark = pytest.mark.slow


def test_oracle_every_csn_of_every_view(shop: Shop, spark: SparkSession) -> None:
    shop.views = VIEWS | MORE_VIEWS
    shop.write_project()
    for _ in range(20):
        shop.transact()
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        chance = random.Random(1)
        for _ in range(30):
            shop.transact()
            deed = chance.randint(0, 9)
            if deed == 0:
                project.capture()
            elif deed == 1:
                project.propagate(chance.choice(project.views))
            elif deed == 2:
                project.run(once=True)
        project.run(once=True)
        last = project.status().last_csn
        assert last == sum(len(states) - 1 for states in shop.states.values())
        check_every_csn(shop, project)

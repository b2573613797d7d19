"""One Spark session for all tests of this folder, made as the product makes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from shop import Shop, transact

from rollview.project.project import Project
from servers.spark import shared_session


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """Two threads; the product's own settings otherwise."""
    return shared_session()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A project over two SQLite databases, not set up yet."""
    made = Shop(tmp_path / "shop")
    yield made
    made.close()


@pytest.fixture
def project(shop: Shop, spark: SparkSession) -> Iterator[Project]:
    """The shop, set up, with some transactions captured and shown."""
    for _ in range(15):
        shop.transact()
    shop.begin()
    with Project.open(shop.folder, spark) as opened:
        opened.setup()
        transact(shop, 4)
        opened.run(once=True)
        yield opened

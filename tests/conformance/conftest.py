"""One small Spark session for all tests of this folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two threads, one shuffle partition, no web page: small jobs, quickly planned."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[2]").appName("conformance")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()

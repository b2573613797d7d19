"""One Spark session for the differential tests of functions."""

from __future__ import annotations

import os
import sys

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_functions() -> SparkSession:
    """A session of our own in UTC; the context may be another folder's, so it is left running."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[2]").appName("functions")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate().newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.shuffle.partitions", "1")
    return session

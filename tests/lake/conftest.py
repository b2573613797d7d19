"""A Spark session for the tests of this folder that need Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from servers.spark import shared_session


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """A session zone that is not UTC, so that a mistake with zones cannot hide."""
    zone = {"spark.sql.session.timeZone": "America/St_Johns"}
    return shared_session({"spark.sql.shuffle.partitions": "2", **zone})

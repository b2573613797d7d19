"""A Spark session for the differential tests of functions."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from servers.spark import shared_session


@pytest.fixture(scope="session")
def spark_functions() -> SparkSession:
    """In UTC, as the product's sessions are."""
    return shared_session({"spark.sql.shuffle.partitions": "1"})

"""A Spark session for the tests of this folder."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from servers.spark import shared_session


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """One shuffle partition and no second thoughts: small jobs, quickly planned."""
    return shared_session({"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"})

"""Worlds of random queries in which something went wrong once; `benchmarks/random_queries.py` finds more."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from query_world import QueryWorld


@pytest.mark.soak
@pytest.mark.parametrize("seed", [103])
def test_oracle_every_csn(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    """103: Spark's optimizer fails on a union of what is stored and what should be there."""
    with closing(QueryWorld(tmp_path / "world", spark, seed)) as world:
        world.round()

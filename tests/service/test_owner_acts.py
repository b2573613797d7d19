"""Owners of databases act between random transactions: every view is right, or stopped and says why."""

from __future__ import annotations

from pathlib import Path

import pytest
from owner_acts import Owned
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.campaign]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_oracle_random_acts_of_owners(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    world = Owned(tmp_path, spark, seed)
    done: list[str] = []
    try:
        for _ in range(8):
            done.append(world.round())
    except Exception as error:
        error.add_note(f"seed {seed}, after {done}; {dict(world.deeds)}")
        raise
    finally:
        world.close()

"""Damage to what is stored: each kind, and short random campaigns; `benchmarks/damage.py` runs long ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from damage import Damaged
from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_oracle_random_damage(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    world = Damaged(tmp_path, spark, seed, monkeypatch)
    for number in range(12):
        try:
            world.round()
        except BaseException as error:
            error.add_note(f"round {number} of seed {seed}: {dict(world.deeds)}")
            raise
    world.shop.close()

"""Damage to what is stored, for minutes: every view is right in the end, or errors lead back to right.

Random transactions run while files are deleted, truncated and written by others, catalogs and lakes are put
back or copied, clocks jump, disks are full and processes die at durable operations (tests/service/damage.py).
After each deed the views are compared with DuckDB over the databases; an error must name a command that leads
back.

    python benchmarks/damage.py --minutes 10

Exit code 1 on any difference, with the seed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from campaign import Campaign
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "service"))

from damage import Damaged  # noqa: E402


@contextmanager
def opened(folder: Path, spark: SparkSession, seed: int) -> Iterator[Damaged]:
    """A world, closed at the end, with what it has patched."""
    with pytest.MonkeyPatch.context() as patch:
        world = Damaged(folder, spark, seed, patch)
        try:
            yield world
        finally:
            world.shop.close()


def summary(counts: Mapping[str, Counter[str]]) -> str:
    """The last lines."""
    deeds, hints = counts["deeds"], counts["hints"]
    return f"{deeds.total()} deeds: {_listed(deeds)}\n{hints.total()} hints led back: {_listed(hints)}"


def _listed(found: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in found.most_common())


if __name__ == "__main__":
    sys.exit(Campaign("damage", __doc__, opened, ("deeds", "hints"), summary).main())

"""Damage to what is stored, for minutes: every view is right in the end, or errors lead back to right.

Random transactions go on while files are deleted, truncated and written by others, catalogs and lakes are put
back or copied, clocks jump, disks are full and processes die at durable operations (tests/service/damage.py).
After each deed the views are compared with DuckDB over the databases; an error must name a command that leads
back.

    python benchmarks/damage.py --minutes 10

Exit code 1 on any difference, with the seed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "service"))

from damage import Damaged  # noqa: E402

from rollview.spark.session import open_session  # noqa: E402

ROUNDS = 12


def main() -> int:
    """Seed after seed, until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=100, help="the first seed")
    arguments = parser.parse_args()
    spark = open_session("damage", {"master": "local[2]"})
    end = time.monotonic() + 60 * arguments.minutes
    deeds: Counter[str] = Counter()
    hints: Counter[str] = Counter()
    seed = arguments.seed
    while time.monotonic() < end:
        with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
            world = Damaged(Path(folder), spark, seed, patch)
            done = []
            try:
                for _ in range(ROUNDS):
                    done.append(world.round())
            except Exception as error:
                print(f"seed {seed}, after {done}: {error}", flush=True)
                return 1
            finally:
                world.shop.close()
            deeds += world.deeds
            hints += world.hints
            print(f"seed {seed}: {'; '.join(done)}", flush=True)
        seed += 1
    print(f"{deeds.total()} deeds: {', '.join(f'{name} {n}' for name, n in deeds.most_common())}")
    print(f"{hints.total()} hints led back: {', '.join(f'{name} {n}' for name, n in hints.most_common())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Acts of database owners, for minutes: every view is right, or stopped with a reason that names the act.

Random transactions go on in a PostgreSQL and a SQLite database while their owners alter publications, tables,
triggers and slots, truncate, and write rows that a view cannot compute (tests/service/owner_acts.py). After
each act all views are compared with DuckDB over the databases, and states of before are read again.

    python benchmarks/acts.py --minutes 10

Exit code 1 on any difference, with the seed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "service"), str(ROOT / "tests")]

from owner_acts import Owned  # noqa: E402

from rollview.spark.session import open_session  # noqa: E402

ROUNDS = 12


def main() -> int:
    """Seed after seed, until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=100, help="the first seed")
    arguments = parser.parse_args()
    spark = open_session("acts", {"master": "local[2]"})
    end = time.monotonic() + 60 * arguments.minutes
    deeds: Counter[str] = Counter()
    stops: Counter[str] = Counter()
    seed = arguments.seed
    while time.monotonic() < end:
        with tempfile.TemporaryDirectory() as folder:
            world = Owned(Path(folder), spark, seed)
            done: list[str] = []
            try:
                for _ in range(ROUNDS):
                    done.append(world.round())
            except Exception as error:
                print(f"seed {seed}, after {done}: {error}", flush=True)
                return 1
            finally:
                world.close()
            deeds += world.deeds
            stops += world.stops
            print(f"seed {seed}: {'; '.join(done)}", flush=True)
        seed += 1
    print(f"{deeds.total()} acts {dict(deeds)}; views stopped {dict(stops)}; all right in the end")
    return 0


if __name__ == "__main__":
    sys.exit(main())

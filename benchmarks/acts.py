"""Acts of database owners, for minutes: every view is right, or stopped with a reason that names the act.

Random transactions run in a PostgreSQL and a SQLite database while their owners alter publications, tables,
triggers and slots, truncate, and write rows that a view cannot compute (tests/service/owner_acts.py). After
each act all views are compared with DuckDB over the databases, and states of before are read again.

    python benchmarks/acts.py --minutes 10

Exit code 1 on any difference, with the seed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from campaign import Campaign
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "service"), str(ROOT / "tests")]

from owner_acts import Owned  # noqa: E402


def opened(folder: Path, spark: SparkSession, seed: int) -> closing[Owned]:
    """A world, closed at the end."""
    return closing(Owned(folder, spark, seed))


def summary(counts: Mapping[str, Counter[str]]) -> str:
    """The last line."""
    deeds, stops = counts["deeds"], counts["stops"]
    return f"{deeds.total()} acts {dict(deeds)}; views stopped {dict(stops)}; all right in the end"


if __name__ == "__main__":
    sys.exit(Campaign("acts", __doc__, opened, ("deeds", "stops"), summary).main())

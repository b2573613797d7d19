"""Random queries as views on Spark, for minutes: each is right at every csn by DuckDB.

Each world is a project of eight random queries, some of which read others, with every operator and nested up
to three deep (tests/planning/any_query.py); random transactions come between two runs (tests/service).

    python benchmarks/random_queries.py --minutes 10

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
sys.path.insert(0, str(ROOT / "tests" / "service"))

from query_world import QueryWorld  # noqa: E402


def opened(folder: Path, spark: SparkSession, seed: int) -> closing[QueryWorld]:
    """A world, closed at the end."""
    return closing(QueryWorld(folder, spark, seed))


def summary(counts: Mapping[str, Counter[str]]) -> str:
    """The last line."""
    found = counts["queries"]
    return f"{found['views']} random queries were right in {found['states']} states"


if __name__ == "__main__":
    sys.exit(Campaign("any query", __doc__, opened, ("queries",), summary, rounds=1).main())

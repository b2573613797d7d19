"""Captures one large transaction and prints the most memory that took, in MB. A process of its own.

`python large_transaction.py DSN BOOKMARK`.
"""

from __future__ import annotations

import resource
import sys

from pyarrow import parquet

from rollview.sources.postgres import PostgresSource


def main(dsn: str, log_position: str) -> None:
    """Prints the number of rows, the most memory before and the most memory after."""
    source = PostgresSource("s", dsn, {})
    source.tables()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    while not (batch := source.capture("s", log_position, 1000)).transactions:
        log_position = batch.log_position
    files = batch.transactions[0].rows["s.item"].files  # type: ignore[union-attr]
    rows = sum(parquet.read_metadata(file.path).num_rows for file in files)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    sys.stdout.write(f"{rows} {before} {after}\n")
    source.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

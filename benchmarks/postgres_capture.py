"""How many changed rows a second capture takes from a PostgreSQL server: from its log to Arrow, on one core.

Many small transactions and one large one, inserts and updates, over a table like TPC-H's lineitem. The server
is a private one. Run it as `python benchmarks/postgres_capture.py [--rows N]`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import psycopg
import pyarrow as pa
from pyarrow import parquet

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from rollview.rows import Rows
from rollview.sources.postgres import PostgresSource
from servers.postgres import PostgresServer

TABLE = """
    CREATE TABLE line (
        order_key bigint, number int, part bigint, quantity numeric(15,2), price numeric(15,2), flag char(1),
        ship_date date, comment text, PRIMARY KEY (order_key, number))
"""
INSERT = """
    INSERT INTO line
    SELECT i / 4, i % 4, i * 7 % 20000, i % 50, i * 1.01, 'N', date '1995-01-01' + i % 2000, 'comment ' || i
    FROM generate_series({first}, {last}) AS i
"""


def main() -> None:
    """Writes, then captures what was written, and prints rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    rows = parser.parse_args().rows
    server = PostgresServer()
    server.start()
    try:
        dsn = server.create_database("bench")
        with psycopg.connect(dsn, autocommit=True) as writer:
            writer.execute(TABLE)
            source = PostgresSource("s", dsn)
            source.setup(source.tables())
            after = source.current_position("s")
            writer.execute(INSERT.format(first=-4, last=-1))
            after = measure(source, after, "to warm up")
            for first in range(0, rows, 4):
                writer.execute(INSERT.format(first=first, last=first + 3))
            after = measure(source, after, f"{rows} inserts in transactions of 4")
            writer.execute("UPDATE line SET quantity = quantity + 1")
            after = measure(source, after, f"{rows} updates in one transaction")
            writer.execute("DELETE FROM line")
            measure(source, after, f"{rows} deletes in one transaction")
        source.close()
    finally:
        server.remove()


def size(rows: Rows) -> int:
    """How many rows there are; those of large transactions are in files."""
    if isinstance(rows, pa.Table):
        return int(rows.num_rows)
    return sum(parquet.read_metadata(file.path).num_rows for file in rows.files)


def measure(source: PostgresSource, after: str, what: str) -> str:
    """Captures all there is; prints changed rows a second, of wall time and of this process alone."""
    began, cpu, changed, transactions = time.perf_counter(), time.process_time(), 0, 0
    while True:
        batch = source.capture("s", after, 50_000)
        if batch.log_position == after:
            break
        after = batch.log_position
        transactions += len(batch.transactions)
        changed += sum(size(rows) for each in batch.transactions for rows in each.rows.values())
        source.acknowledge("s", after)
    seconds, own = time.perf_counter() - began, time.process_time() - cpu
    print(
        f"{what}: {transactions} transactions, {changed} changed rows in {seconds:.2f} s "
        f"({changed / seconds:,.0f}/s; {changed / own:,.0f}/s of our core)"
    )
    return after


if __name__ == "__main__":
    main()

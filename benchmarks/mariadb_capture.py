"""Row changes a second from the binary log to Arrow, beside a server of our own.

    python benchmarks/mariadb_capture.py [--rows N]

The log is written beforehand, so that only reading, decoding and converting is measured.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from rollview.sources.mariadb import MariaDBSource
from servers.mariadb import MariaDBServer

_COLUMNS = (
    "id BIGINT PRIMARY KEY, customer INT NOT NULL, price DECIMAL(15,2), day DATE, at DATETIME(6),"
    " note VARCHAR(60)"
)
_ROW = "({0}, {0} % 1000, {0} / 100, '2024-02-29', '2024-02-29 12:34:56.789', 'a note about order {0}')"


def main() -> None:
    """Measures three shapes of transactions."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=200_000)
    count = arguments.parse_args().rows
    server = MariaDBServer().start()
    try:
        shapes = {"one row per transaction": (count // 10, 1), "1,000 rows per transaction": (count, 1000)}
        for name, (rows, per_transaction) in shapes.items():
            _measure(server, name, rows, per_transaction, update=False)
        _measure(server, "updates of 1,000 rows per transaction", count, 1000, update=True)
    finally:
        server.close()


def _measure(server: MariaDBServer, name: str, rows: int, per_transaction: int, update: bool) -> None:
    dsn = server.create_database("bench")
    source = MariaDBSource("s", dsn, {})
    with closing(server.connect("bench")) as connection:
        connection.query(f"CREATE TABLE orders ({_COLUMNS})")
        if update:
            _insert(connection, rows, per_transaction)
        source.setup(source.tables())
        log_position = source.current_position("s")
        if update:
            for first in range(0, rows, per_transaction):
                last = first + per_transaction
                connection.query(f"UPDATE orders SET price = price + 1 WHERE id >= {first} AND id < {last}")
        else:
            _insert(connection, rows, per_transaction)
    began, changes, transactions = time.perf_counter(), 0, 0
    while True:
        batch = source.capture("s", log_position, 200_000)
        if batch.log_position == log_position:
            break
        log_position = batch.log_position
        transactions += len(batch.transactions)
        changes += sum(each.num_rows for captured in batch.transactions for each in captured.rows.values())
    seconds = time.perf_counter() - began
    source.close()
    rate = (
        f"{changes / seconds:,.0f} row changes a second, {transactions / seconds:,.0f} transactions a second"
    )
    print(f"{name}: {changes:,} changes in {seconds:.2f} s = {rate}")


def _insert(connection: object, rows: int, per_transaction: int) -> None:
    for first in range(0, rows, per_transaction):
        values = ", ".join(_ROW.format(number) for number in range(first, min(rows, first + per_transaction)))
        connection.query(f"INSERT INTO orders VALUES {values}")  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()

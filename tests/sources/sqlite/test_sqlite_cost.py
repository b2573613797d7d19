"""What capture costs a writer, and how fast it is. `pytest -s -m slow` on this file prints the table."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlite_history import database, ready

TABLE = "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b INTEGER, c REAL, d TEXT, e INTEGER)"
ROWS = [(i, f"text {i}", i, i * 0.5, "more text", i % 7) for i in range(20_000)]
WRITES: dict[str, Callable[[sqlite3.Connection, list[tuple[object, ...]]], object]] = {
    "insert": lambda connection, rows: connection.executemany(
        "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", rows
    ),
    "update": lambda connection, rows: connection.executemany(
        "UPDATE t SET b = b + 1 WHERE id = ?", [row[:1] for row in rows]
    ),
    "replace": lambda connection, rows: connection.executemany(
        "REPLACE INTO t VALUES (?, ?, ?, ?, ?, ?)", rows
    ),
    "delete": lambda connection, rows: connection.executemany(
        "DELETE FROM t WHERE id = ?", [row[:1] for row in rows]
    ),
}


def microseconds_per_row(connection: sqlite3.Connection, rows_per_transaction: int) -> dict[str, float]:
    """The processor time of each kind of write."""
    costs = {}
    for name, write in WRITES.items():
        start = time.process_time()
        for i in range(0, len(ROWS), rows_per_transaction):
            connection.execute("BEGIN")
            write(connection, list(ROWS[i : i + rows_per_transaction]))
            connection.execute("COMMIT")
        costs[name] = (time.process_time() - start) / len(ROWS) * 1e6
    return costs


@pytest.mark.slow
@pytest.mark.parametrize("rows_per_transaction", [1, 1000])
def test_what_writers_pay_and_how_fast_capture_is(tmp_path: Path, rows_per_transaction: int) -> None:
    with closing(database(tmp_path / "plain.db", TABLE)) as connection:
        plain = microseconds_per_row(connection, rows_per_transaction)
    path = tmp_path / "captured.db"
    with closing(database(path, TABLE)) as connection:
        source, log_position = ready(path)
        first = int(log_position.partition("@")[0])
        captured = microseconds_per_row(connection, rows_per_transaction)
        start = time.process_time()
        while (batch := source.capture("s", log_position, 50_000)).log_position != log_position:
            log_position = batch.log_position
        seconds = time.process_time() - start
        source.close()
    assert int(log_position.partition("@")[0]) - first == 5 * len(ROWS)
    lines = [f"\n{rows_per_transaction} rows per transaction, processor time per row:"]
    for name, before in plain.items():
        after = captured[name]
        lines.append(f"  {name:8} {before:6.1f} µs, captured {after:6.1f} µs, {after / before:4.1f} times")
    lines.append(f"  capture: {(5 * len(ROWS)) / seconds:,.0f} changes per second")
    sys.stdout.write("\n".join(lines) + "\n")
    assert all(captured[name] < 30 * plain[name] for name in plain)

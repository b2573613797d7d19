"""A program that knows nothing of rollview and writes a SQLite database: one process of a test.

Every transaction writes its own id into two tables, several times, and updates rows of earlier ones in
passing. `python sqlite_writer.py PATH NAME SECONDS [CACHE_PAGES]`; it says a word after the first commit.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import time

TABLES = (
    "CREATE TABLE item(id INTEGER PRIMARY KEY, txn TEXT NOT NULL, n INTEGER NOT NULL)",
    "CREATE TABLE mark(txn TEXT NOT NULL, n INTEGER NOT NULL, note TEXT, PRIMARY KEY (txn, n))",
)


def write(path: str, name: str, seconds: float, cache_pages: int) -> None:
    """Commits transactions, and now and then rolls one back, until the time is over."""
    chance = random.Random(name)
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    connection.execute("PRAGMA synchronous = OFF")
    # A small cache makes SQLite write pages of an unfinished transaction into the WAL.
    connection.execute(f"PRAGMA cache_size = {cache_pages}")
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        number += 1
        txn = f"{name}-{number}"
        connection.execute("BEGIN IMMEDIATE")
        for n in range(chance.choice([1, 2, 3, 40])):
            connection.execute("INSERT INTO item(txn, n) VALUES (?, ?)", (txn, n))
            connection.execute("REPLACE INTO mark VALUES (?, ?, ?)", (txn, n, "x" * chance.choice([1, 900])))
        if chance.random() < 0.3:
            connection.execute("UPDATE item SET txn = ?, n = -1 WHERE id % 50 = ?", (txn, number % 50))
        if number > 1 and chance.random() < 0.1:
            connection.execute("ROLLBACK")
            continue
        connection.execute("COMMIT")
        if number == 1:
            sys.stdout.write("committed\n")
            sys.stdout.flush()


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else -2000)

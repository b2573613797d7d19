"""What an administrator does to a table, while somebody writes to it and to another one.

`t` is the table that it happens to, `healthy` the one that must continue: every transaction writes both.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pymysql
from mariadb_database import Database, History, Row
from pymysql.constants import ER

from rollview.algebra.relation import Table

CREATE_T = "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), n INT, KEY by_n (n)) ENGINE = InnoDB"
_STEPS = 10
_REPEATS = 10


@contextmanager
def writing(database: Database) -> Iterator[threading.Barrier]:
    """Two writers at work, who wait for the barrier twice: before the act, and when it has been done."""
    barrier = threading.Barrier(3, timeout=60)
    threads = [threading.Thread(target=_write, args=(database, number, barrier)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    try:
        yield barrier
    except BaseException:
        barrier.abort()
        raise
    finally:
        for thread in threads:
            thread.join()


def _write(database: Database, number: int, barrier: threading.Barrier) -> None:
    with closing(database.connect(autocommit=False)) as connection, connection.cursor() as cursor:
        for step in range(3 * _STEPS):
            if step in (_STEPS, 2 * _STEPS):
                barrier.wait()
            identity = number * 1_000_000 + step
            cursor.execute("INSERT INTO healthy VALUES (%s, 'x')", (identity,))
            try:
                cursor.execute("INSERT INTO t (id, n) VALUES (%s, %s)", (identity, step))
                cursor.execute("UPDATE t SET n = n + 1 WHERE id = %s", (identity - 3,))
            except pymysql.err.Error:
                # The table may be gone, or another one; the transaction continues without it.
                pass
            connection.commit()


def prepare(database: Database) -> dict[str, Table]:
    """The two tables, captured; they as they were then."""
    database.execute(
        CREATE_T,
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "INSERT INTO parent SELECT seq FROM seq_0_to_100",
        "INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2), (3, 'three', 3)",
        "CREATE TABLE healthy (id INT PRIMARY KEY, v VARCHAR(9))",
        "INSERT INTO healthy VALUES (1, 'one')",
    )
    database.setup("t", "healthy")
    return database.tables()


def do(database: Database, statements: Sequence[str]) -> History:
    """Runs statements among writers; all that is captured of it."""
    history = History(database.source)
    with writing(database) as barrier:
        history.capture()
        barrier.wait()
        _carry_out(database, statements)
        barrier.wait()
        history.capture()
    history.capture()
    return history


def _carry_out(database: Database, statements: Sequence[str]) -> None:
    """An act that a deadlock with a writer has ended is repeated, as its owner would do.

    DDL is a transaction of its own; of any other one more would be lost than this statement.
    """
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET lock_wait_timeout = 30")
        for statement in statements:
            is_alone = statement.lstrip().upper().startswith(("CREATE", "ALTER", "DROP", "RENAME"))
            for attempt in range(_REPEATS + 1):
                try:
                    cursor.execute(statement)
                    break
                except pymysql.err.OperationalError as error:
                    if error.args[0] != ER.LOCK_DEADLOCK or not is_alone or attempt == _REPEATS:
                        raise


def summed(history: History, table: str, start: Counter[Row]) -> Counter[Row]:
    """A table's rows after all that was captured."""
    total = Counter(start)
    for change in history.changes(table):
        for row, count in change.items():
            total[row] += count
    return Counter({row: count for row, count in total.items() if count})

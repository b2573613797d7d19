"""Two real servers, writers that never stop, and what every view must show at every csn.

The oracle is DuckDB over the captured history: the first state of each table, which was read before anybody
wrote, plus the change log up to a csn. That the history itself is right is judged at the end, when it must
add up to what the servers hold.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pymysql
import sqlglot
from deltalake import DeltaTable

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from servers.mariadb import MariaDBServer
from servers.postgres import PostgresServer

Row = tuple[Any, ...]
CRM_SLOT = "stress_crm"
TROUBLES = (
    psycopg.OperationalError,
    psycopg.errors.DeadlockDetected,
    pymysql.err.OperationalError,
    pymysql.err.InterfaceError,
)


class Servers:
    """A PostgreSQL and a MariaDB of our own, `crm` in the one and `shop` in the other."""

    def __init__(self) -> None:
        self.postgres, self.mariadb = PostgresServer(durable=True), MariaDBServer()
        self.postgres.start()
        self.mariadb.start()
        self.dsns = {
            "crm": self.postgres.create_database("crm"),
            "shop": self.mariadb.create_database("shop"),
        }

    def connect(self, source: str) -> Any:
        """A plain connection; transactions are begun and ended by hand."""
        if source == "crm":
            return psycopg.connect(self.dsns["crm"])
        return self.mariadb.connect("shop", autocommit=False)

    def run(self, source: str, *statements: str) -> None:
        """Statements in a transaction of their own."""
        with closing(self.connect(source)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def rows(self, source: str, table: str, columns: str) -> Counter[Row]:
        """A table as it is now."""
        with closing(self.connect(source)) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT {columns} FROM {table}")
            return Counter(cursor.fetchall())

    def close(self) -> None:
        """Stops and removes both."""
        self.postgres.remove()
        self.mariadb.close()


class Writers:
    """Threads that each repeat a transaction of their own until they are stopped."""

    def __init__(self, works: list[Callable[[], None]], pause_seconds: float) -> None:
        self.committed = 0
        self._pause = pause_seconds
        self._stopped = threading.Event()
        self._at_work = threading.Event()
        self._at_work.set()
        self._troubles: list[BaseException] = []
        self._threads = [threading.Thread(target=self._repeat, args=(work,)) for work in works]

    def start(self) -> None:
        """Begins."""
        for thread in self._threads:
            thread.start()

    def rest(self) -> None:
        """Lets all pause, until `go_on`."""
        self._at_work.clear()

    def go_on(self) -> None:
        """Ends the pause."""
        self._at_work.set()

    def stop(self) -> None:
        """Ends all; trouble that was none of a server's restarts comes out here."""
        self._stopped.set()
        self.go_on()
        for thread in self._threads:
            thread.join()
        if self._troubles:
            raise self._troubles[0]

    def _repeat(self, work: Callable[[], None]) -> None:
        while not self._stopped.wait(random.random() * 2 * self._pause):
            self._at_work.wait()
            try:
                work()
                self.committed += 1
            except TROUBLES:
                time.sleep(0.2)
            except BaseException as trouble:
                self._troubles.append(trouble)
                return


class Writer:
    """One writer with its own connection, which it reopens after an error."""

    def __init__(self, servers: Servers, source: str, seed: str) -> None:
        self.servers, self.source = servers, source
        self.chance = random.Random(seed)
        self._connection: Any = None

    def transaction(self, statements: Callable[[Any], None]) -> None:
        """Runs statements and commits, or sometimes thinks better of it."""
        try:
            if self._connection is None:
                self._connection = self.servers.connect(self.source)
            with self._connection.cursor() as cursor:
                statements(cursor)
            if self.chance.random() < 0.1:
                self._connection.rollback()
            else:
                self._connection.commit()
        except Exception:
            with suppress(Exception):
                self._connection.close()
            self._connection = None
            raise


class Oracle:
    """What the views must show, from the lake's change logs and the first states."""

    def __init__(self, tables: dict[str, str], views: dict[str, str], first: dict[str, Counter[Row]]) -> None:
        """`tables` gives by `source.table` the columns with DuckDB types."""
        self.tables, self.views, self.first = tables, views, first
        self._captured: dict[str, list[str]] = {}

    def database(self, lake: Path) -> duckdb.DuckDBPyConnection:
        """All logs and first states, loaded once."""
        database = duckdb.connect()
        for qualified, columns in self.tables.items():
            source, table = qualified.split(".")
            database.execute(f"CREATE SCHEMA IF NOT EXISTS {source}")
            database.execute(f"CREATE TABLE {source}.{table}_log ({columns}, _count BIGINT, _csn BIGINT)")
            rows = [(*row, count, 0) for row, count in self.first[qualified].items()]
            if rows:
                places = ", ".join("?" * len(rows[0]))
                database.executemany(f"INSERT INTO {source}.{table}_log VALUES ({places})", rows)
            log = DeltaTable(str(lake / "changes" / source / table)).to_pyarrow_table()
            self._captured[qualified] = log.column_names
            database.register("log", log)
            database.execute(f"INSERT INTO {source}.{table}_log BY NAME SELECT * FROM log")
            database.unregister("log")
        return database

    def columns(self, table: str) -> list[str]:
        """The names of a table's columns that are captured: those that views use."""
        names = [column.split()[0] for column in self.tables[table].split(", ")]
        return [name for name in names if name in self._captured[table]]

    def show(self, database: duckdb.DuckDBPyConnection, csn: int) -> None:
        """Makes tables and views show a csn."""
        for qualified in self.tables:
            names = ", ".join(self.columns(qualified))
            source, table = qualified.split(".")
            # A row that is there twice must count twice.
            database.execute(
                f"""CREATE OR REPLACE TABLE {source}.{table} AS
                SELECT {names} FROM (SELECT {names}, sum(_count) AS n FROM {source}.{table}_log
                    WHERE _csn <= {csn} GROUP BY ALL HAVING sum(_count) <> 0), unnest(range(n::BIGINT))"""
            )
        for view, sql in self.views.items():
            query = sqlglot.transpile(sql, read="spark", write="duckdb")[0]
            database.execute(f"CREATE OR REPLACE VIEW {view} AS {query}")

    def negative(self, database: duckdb.DuckDBPyConnection, csn: int) -> list[str]:
        """Tables that the history says hold fewer than no rows of a kind."""
        wrong = []
        for qualified in self.tables:
            names = ", ".join(self.columns(qualified))
            source, table = qualified.split(".")
            found = database.execute(
                f"""SELECT count(*) FROM (SELECT {names} FROM {source}.{table}_log
                WHERE _csn <= {csn} GROUP BY ALL HAVING sum(_count) < 0)"""
            ).fetchone()
            if found and found[0]:
                wrong.append(qualified)
        return wrong

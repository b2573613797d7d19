"""DuckDB as the judge of views over small tables: it answers their own texts, state after state.

The database stays, with tables and views as DuckDB understands them. From one state to the next only the
tables that differ are filled again: opening a database takes longer than all answers in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import duckdb
import sqlglot
from sqlglot import exp

Row = tuple[Any, ...]


class Oracle:
    """A database with tables and views; `tables` have columns as DuckDB takes them, views texts of Spark."""

    def __init__(self, tables: Mapping[str, str], views: Mapping[str, str]) -> None:
        self.views = dict(views)
        # One thread: the others would wait for work longer than it takes.
        self._database = duckdb.connect(config={"threads": 1})
        self._rows: dict[str, Sequence[Row]] = {}
        for schema in {name.partition(".")[0] for name in tables}:
            self._database.execute(f"CREATE SCHEMA {schema}")
        for name, columns in tables.items():
            self._database.execute(f"CREATE TABLE {name} ({columns})")
            self._rows[name] = ()
        for name, sql in views.items():
            self._database.execute(f"CREATE VIEW {name} AS {_translated(sql)}")

    def answers(self, views: Iterable[str], rows: Mapping[str, Sequence[Row]]) -> dict[str, Counter[Row]]:
        """What views show over these rows of all tables."""
        for name, wanted in rows.items():
            if wanted != self._rows[name]:
                self._database.execute(f"DELETE FROM {name}")
                insert(self._database, name, wanted)
                self._rows[name] = wanted
        found = {view: self._database.execute(f"SELECT * FROM {view}").fetchall() for view in views}
        return {view: Counter(map(frozen, answer)) for view, answer in found.items()}

    def close(self) -> None:
        self._database.close()


def insert(database: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Row]) -> None:
    """Fills a table by one statement."""
    if rows:
        row = f"({','.join('?' * len(rows[0]))})"
        values = [value for each in rows for value in each]
        database.execute(f"INSERT INTO {table} VALUES {','.join([row] * len(rows))}", values)


def frozen(value: Any) -> Any:
    """Rows, structs and arrays as tuples."""
    if isinstance(value, dict):
        return frozen(list(value.values()))
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


@cache
def _translated(sql: str) -> str:
    statement = sqlglot.parse_one(sql, dialect="spark")
    query = statement.expression if isinstance(statement, exp.Create) else statement
    return query.sql(dialect="duckdb")

"""A SQLite database in WAL mode, written by plain `sqlite3`."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import date
from decimal import Decimal
from typing import Any

from rollview.sources.source import Source
from rollview.testing import Driver, Row, Write

_TYPES = {
    "bigint": "INTEGER",
    "string": "TEXT",
    "double": "REAL",
    "binary": "BLOB",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp_ntz": "DATETIME",
    "decimal(15,2)": "DECIMAL(15,2)",
}


class SQLiteDriver(Driver):
    """Every transaction uses a connection of its own, as another program would."""

    gaps = {  # noqa: RUF012
        **{
            f"type {kind}": "no declared SQLite type means this one; its numbers are bigint and double,"
            " its times zoneless"
            for kind in ("int", "smallint", "float", "timestamp")
        },
        "captured later": "only the process that watched the commits knows where they ended; who looks later"
        " may find several as one",
    }

    def create(self, rows: Mapping[str, Sequence[Row]]) -> None:
        with closing(self._connect()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            for name, columns in self.schemas.items():
                fields = ", ".join(f"{column} {_TYPES[kind]}" for column, kind in columns)
                connection.execute(f"CREATE TABLE {name} ({fields})")
                places = ", ".join("?" * len(columns))
                given = [_stored(row) for row in rows.get(name, ())]
                connection.executemany(f"INSERT INTO {name} VALUES ({places})", given)

    def open(self) -> Source:
        from rollview.sources.sqlite import SQLiteSource

        return SQLiteSource("s", self.folder / "s.db", {})

    def commit(self, writes: Sequence[Write]) -> None:
        with closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for write in writes:
                columns = [name for name, _ in self.schemas[write.table]]
                if write.before is None:
                    places = ", ".join("?" * len(columns))
                    connection.execute(
                        f"INSERT INTO {write.table} VALUES ({places})", _stored(write.after or ())
                    )
                elif write.after is None:
                    connection.execute(f"DELETE FROM {write.table} WHERE {columns[0]} = ?", write.before[:1])
                else:
                    sets = ", ".join(f"{column} = ?" for column in columns)
                    values = _stored((*write.after, write.before[0]))
                    connection.execute(f"UPDATE {write.table} SET {sets} WHERE {columns[0]} = ?", values)
            connection.execute("COMMIT")

    def rows(self, table: str) -> Counter[Row]:
        columns = ", ".join(name for name, _ in self.schemas[table])
        with closing(self._connect()) as connection:
            return Counter(connection.execute(f"SELECT {columns} FROM {table}").fetchall())

    def traces(self) -> Any:
        with closing(self._connect()) as connection:
            return sorted(connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall())

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.folder / "s.db", isolation_level=None)


def _stored(row: Row) -> Row:
    """Values as a user of SQLite stores them: text for what it has no type for."""
    return tuple(
        str(value) if isinstance(value, Decimal) else value.isoformat() if isinstance(value, date) else value
        for value in row
    )

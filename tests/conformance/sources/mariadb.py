"""A MariaDB database, written by plain pymysql. All drivers of a process share one server."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rollview.sources.source import Source
from rollview.testing import Driver, Row, Write
from servers.mariadb import shared_server

_TYPES = {
    "bigint": "BIGINT",
    "int": "INT",
    "smallint": "SMALLINT",
    "double": "DOUBLE",
    "float": "FLOAT",
    "decimal(15,2)": "DECIMAL(15,2)",
    "string": "VARCHAR(500) COLLATE utf8mb4_general_ci",
    "boolean": "BIT(1)",
    "date": "DATE",
    "timestamp": "TIMESTAMP(6) NULL",
    "timestamp_ntz": "DATETIME(6)",
    "binary": "VARBINARY(100)",
}
_numbers = itertools.count(1)


class MariaDBDriver(Driver):
    """One database per driver; writers use a connection of their own."""

    def create(self, rows: Mapping[str, Sequence[Row]]) -> None:
        self._server = shared_server()
        self._database = f"conformance_{os.getpid()}_{next(_numbers)}"
        self._dsn = self._server.create_database(self._database)
        self._writer = self._server.connect(self._database, autocommit=False)
        self._execute("SET time_zone = '+00:00'")
        for name, columns in self.schemas.items():
            fields = ", ".join(f"{column} {_TYPES[kind]}" for column, kind in columns)
            self._execute(f"CREATE TABLE {name} ({fields})")
            for row in rows.get(name, ()):
                self._insert(name, row)
        self._writer.commit()

    def open(self) -> Source:
        from rollview.sources.mariadb import MariaDBSource

        return MariaDBSource("s", self._dsn, {})

    def commit(self, writes: Sequence[Write]) -> None:
        for write in writes:
            columns = [name for name, _ in self.schemas[write.table]]
            if write.before is None:
                self._insert(write.table, write.after or ())
            elif write.after is None:
                self._execute(f"DELETE FROM {write.table} WHERE {columns[0]} = %s", write.before[:1])
            else:
                sets = ", ".join(f"{column} = %s" for column in columns)
                values = (*_stored(write.after), write.before[0])
                self._execute(f"UPDATE {write.table} SET {sets} WHERE {columns[0]} = %s", values)
        self._writer.commit()

    def rows(self, table: str) -> Counter[Row]:
        columns = ", ".join(name for name, _ in self.schemas[table])
        found = Counter(self._execute(f"SELECT {columns} FROM {table}"))
        self._writer.commit()
        return found

    def traces(self) -> Any:
        """Tables with their columns, and what the account may do."""
        found = self._execute(
            "SELECT table_name, column_name, column_type FROM information_schema.columns"
            " WHERE table_schema = %s ORDER BY 1, 2",
            (self._database,),
        )
        grants = self._execute("SHOW GRANTS")
        self._writer.commit()
        return found, grants

    def close(self) -> None:
        super().close()
        self._writer.close()
        self._server.drop_database(self._database)

    def _insert(self, table: str, row: Row) -> None:
        places = ", ".join(["%s"] * len(row))
        self._execute(f"INSERT INTO {table} VALUES ({places})", _stored(row))

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> tuple[Any, ...]:
        with self._writer.cursor() as cursor:
            cursor.execute(statement, values)
            return tuple(cursor.fetchall())


def _stored(row: Row) -> Row:
    """Values as an application writes them: a time with a zone in that of the session."""
    return tuple(value.replace(tzinfo=None) if isinstance(value, datetime) else value for value in row)

"""A PostgreSQL database, written by plain psycopg. All drivers of a process share one server."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from rollview.sources.source import Source
from rollview.testing import Driver, Row, Write
from servers.postgres import shared_server

_TYPES = {
    "bigint": "bigint",
    "int": "integer",
    "smallint": "smallint",
    "double": "double precision",
    "float": "real",
    "decimal(15,2)": "numeric(15,2)",
    "string": "text",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "binary": "bytea",
}
_numbers = itertools.count(1)


class PostgresDriver(Driver):
    """One database per driver; writers use a connection of their own."""

    def create(self, rows: Mapping[str, Sequence[Row]]) -> None:
        self._server = shared_server()
        self._database = f"conformance_{os.getpid()}_{next(_numbers)}"
        self._dsn = self._server.create_database(self._database)
        self._writer = psycopg.connect(self._dsn)
        for name, columns in self.schemas.items():
            fields = ", ".join(f"{column} {_TYPES[kind]}" for column, kind in columns)
            self._writer.execute(f"CREATE TABLE {name} ({fields})")
            for row in rows.get(name, ()):
                self._insert(name, row)
        self._writer.commit()

    def open(self) -> Source:
        from rollview.sources.postgres import PostgresSource

        return PostgresSource("s", self._dsn, {})

    def commit(self, writes: Sequence[Write]) -> None:
        for write in writes:
            columns = [name for name, _ in self.schemas[write.table]]
            if write.before is None:
                self._insert(write.table, write.after or ())
            elif write.after is None:
                self._writer.execute(f"DELETE FROM {write.table} WHERE {columns[0]} = %s", write.before[:1])
            else:
                sets = ", ".join(f"{column} = %s" for column in columns)
                self._writer.execute(
                    f"UPDATE {write.table} SET {sets} WHERE {columns[0]} = %s",
                    (*write.after, write.before[0]),
                )
        self._writer.commit()

    def rows(self, table: str) -> Counter[Row]:
        columns = ", ".join(name for name, _ in self.schemas[table])
        found = Counter(self._writer.execute(f"SELECT {columns} FROM {table}").fetchall())
        self._writer.commit()
        return found

    def traces(self) -> Any:
        """Tables with their replica identities, publications, large objects, slots of this database."""
        queries = (
            "SELECT relname::text, relkind::text, relreplident::text FROM pg_class"
            " WHERE relnamespace = 'public'::regnamespace ORDER BY 1",
            "SELECT pubname::text, obj_description(oid, 'pg_publication') FROM pg_publication ORDER BY 1",
            "SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database() ORDER BY 1",
            "SELECT oid::int8, obj_description(oid, 'pg_largeobject') FROM pg_largeobject_metadata",
        )
        found = [self._writer.execute(query).fetchall() for query in queries]
        self._writer.commit()
        return found

    def close(self) -> None:
        super().close()
        self._writer.close()
        self._server.drop_database(self._database)

    def _insert(self, table: str, row: Row) -> None:
        places = ", ".join(["%s"] * len(row))
        self._writer.execute(f"INSERT INTO {table} VALUES ({places})", row)

"""A reading: one snapshot, seen by one connection or by several, and what it saw."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import psycopg
from psycopg.conninfo import conninfo_to_dict

from rollview.errors import NotSetUp
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import (
    Connection,
    Connections,
    explained,
    text_literal,
    transaction,
)
from rollview.sources.postgres.log.watch import Watch
from rollview.sources.postgres.read.read_point import present, read_point_of, write_marker
from rollview.sources.postgres.registration import Registered
from rollview.sources.settings import Workers

# Not READ ONLY: keys are put into temporary tables. A setting of the server may not end it early.
_MODES = "ISOLATION LEVEL REPEATABLE READ"


@dataclass(frozen=True)
class Reading:
    """A transaction that sees one state. `tables` are the captured ones; those to be read are intact."""

    connections: Connections
    connection: Connection
    tables: Mapping[str, Registered]
    workers: Workers

    @property
    def source(self) -> str:
        """The source's name."""
        return self.connections.address.source

    def captured(self, name: str, columns: Iterable[str]) -> Registered:
        """A captured table with these columns; only of those it is known what a reading saw."""
        table = self.tables.get(name)
        if table is None:
            raise _not_captured("table", f"{self.source}.{name}")
        for column in columns:
            if column not in table.by_name:
                raise _not_captured("column", f"{self.source}.{name}.{column}")
        return table

    def share(self) -> Share:
        """The exported snapshot, by which others see the same state as long as this reading lasts."""
        row = self.connection.execute("SELECT pg_export_snapshot()").fetchone()
        assert row is not None
        address = self.connections.address
        # The server runs when it is handed out.
        parameters = conninfo_to_dict(address.conninfo)
        return Share(replace(address, parameters=parameters, embedded=None), row[0])


def _not_captured(kind: str, place: str) -> NotSetUp:
    return NotSetUp(f"{kind} {place} is not captured", subject=place, hint="run `rollview setup`")


@dataclass(frozen=True)
class Share:
    """A state that a reading elsewhere holds on to. It can be pickled."""

    address: Address
    exported: str

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection of its own that sees the state."""
        with (
            explained(self.address),
            psycopg.connect(self.address.conninfo, autocommit=True, prepare_threshold=None) as connection,
            transaction(connection, _MODES),
        ):
            connection.execute(f"SET TRANSACTION SNAPSHOT {text_literal(self.exported)}".encode())
            yield connection


class ReadOutcome:
    """The read point of a reading; known when it is over."""

    read_point = ""


@contextmanager
def reading(
    connections: Connections, workers: Workers, watch: Watch, wanted: Mapping[str, Collection[str]]
) -> Iterator[tuple[Reading, ReadOutcome]]:
    """A reading of these columns of tables. Its marker is put into the log at the end, after all else.

    The tables are locked, as any query locks them, with their partitions, before the snapshot is taken: what
    their names stand for, and what they are, stays the same from the look at them until the end. Partitions
    that come meanwhile with rows are noticed by the capture up to the marker.
    """
    outcome = ReadOutcome()
    with connections.connection() as connection:
        # Setup may have another table registered by the time that they are locked; then those are.
        locked = watch.registered(connection, wanted)
        while True:
            with transaction(connection, _MODES):
                _lock(connection, connections, watch, [locked[name] for name in wanted if name in locked])
                now = present(connection)
                tables = watch.expect_intact(connection, wanted)
                if all(name not in tables or tables[name] == locked.get(name) for name in wanted):
                    yield Reading(connections, connection, tables, workers), outcome
                    break
            locked = tables
        outcome.read_point = read_point_of(now.snapshot, write_marker(connection), now.server)


def _lock(
    connection: Connection, connections: Connections, watch: Watch, tables: Sequence[Registered]
) -> None:
    named = ", ".join(sorted(table.qualified for table in tables))
    try:
        if named:
            connection.execute(f"LOCK TABLE {named} IN ACCESS SHARE MODE".encode())
    except psycopg.errors.UndefinedTable:
        with connections.connection() as other:
            watch.expect_intact(other, {table.name: table.by_name for table in tables})
        raise

"""A reading: one snapshot, seen by one connection or by several, and what it saw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from rollview.sources.postgres.connections import Connection, Connections, text_literal, transaction
from rollview.sources.postgres.registration import Registered, expect_intact
from rollview.sources.postgres.sight import mark, sight_of, snapshot_text
from rollview.sources.server.errors import NotSetUp

# Not READ ONLY: keys are put into temporary tables. A setting of the server may not end it early.
_MODES = "ISOLATION LEVEL REPEATABLE READ"


@dataclass(frozen=True)
class Reading:
    """A transaction that sees one state. `tables` are the captured ones, which are as they were at setup."""

    connections: Connections
    connection: Connection
    tables: Mapping[str, Registered]
    snapshot: str

    @property
    def source(self) -> str:
        """The source's name."""
        return self.connections.address.source

    def captured(self, name: str) -> Registered:
        """A captured table; only of those it is known what a reading saw."""
        if name not in self.tables:
            raise NotSetUp(
                f"table {self.source}.{name} is not captured",
                thing=f"{self.source}.{name}",
                hint="run `rollview setup`",
            )
        return self.tables[name]

    @contextmanager
    def companions(self, count: int) -> Iterator[list[Connection]]:
        """More connections that see the same state."""
        row = self.connection.execute("SELECT pg_export_snapshot()").fetchone()
        assert row is not None
        with ExitStack() as stack:
            opened = []
            for _ in range(count):
                connection = stack.enter_context(self.connections.connection())
                stack.enter_context(transaction(connection, _MODES))
                connection.execute(f"SET TRANSACTION SNAPSHOT {text_literal(row[0])}".encode())
                opened.append(connection)
            yield opened


class Sighted:
    """What a reading saw; known when it is over."""

    sight = ""


@contextmanager
def reading(connections: Connections) -> Iterator[tuple[Reading, Sighted]]:
    """A reading. Its marker is put into the log at the end, when nothing else is to be done."""
    sighted = Sighted()
    with connections.connection() as connection:
        with transaction(connection, _MODES):
            snapshot = snapshot_text(connection)
            tables = expect_intact(connection, connections.address)
            yield Reading(connections, connection, tables, snapshot), sighted
        sighted.sight = sight_of(snapshot, mark(connection))

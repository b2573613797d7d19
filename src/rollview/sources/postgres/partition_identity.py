"""New partitions log their old rows in full, if we may see to that.

A new partition has the replica identity of every new table, whatever that of the others is: only keys of
deleted and updated rows are logged, and without a key the server refuses to delete and update. Insertions are
logged all the same, so that nothing is lost until an old row is changed. Where our role owns the table, or
the administrator has left a function in the schema, capture sets the replica identity as soon as it sees a
new partition. Elsewhere an event trigger of the administrator can do it (docs/how-to/postgresql.md).
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import psycopg

from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection, transaction
from rollview.sources.postgres.partitions import Partition, to_alter
from rollview.sources.postgres.schema_function import schema_functions
from rollview.sources.postgres.watch import Observation

_LOCK_MILLISECONDS = 200
_PAUSE_SECONDS = 10.0


def lacking(observed: Observation) -> list[Partition]:
    """The partitions whose old rows are not logged in full."""
    tables = observed.fingerprint.tables.values()
    return [each for table in tables for each in table.partitions if each in to_alter([each])]


class PartitionIdentity:
    """Sets replica identities. A partition that is locked is tried again after a while."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._due: dict[int, float] = {}

    def set(self, connection: Connection, partitions: Iterable[Partition]) -> None:
        """Those of partitions that we may alter. Nobody else waits for long behind us."""
        now = time.monotonic()
        due = [each for each in partitions if now >= self._due.get(each.id, now)]
        functions = {} if all(each.is_ours for each in due) else schema_functions(connection, self._address)
        for each in due:
            self._due[each.id] = now + _PAUSE_SECONDS
            function = functions.get(each.schema)
            statement = f"ALTER TABLE {each.qualified} REPLICA IDENTITY FULL"
            if not each.is_ours and function is not None and each.id in function.tables:
                statement = function.log(each)
            elif not each.is_ours:
                continue
            try:
                with transaction(connection):
                    connection.execute(f"SET LOCAL lock_timeout = {_LOCK_MILLISECONDS}".encode())
                    connection.execute(statement.encode())
            except psycopg.Error:
                # It is locked, or gone by now. Nothing is lost until an old row is changed.
                if connection.broken:
                    raise

"""New partitions log their old rows in full, if we may see to that.

A new partition has the replica identity of every new table, whatever that of the others is: only keys of
deleted and updated rows are logged, and without a key the server refuses to delete and update. Insertions are
logged all the same, so that nothing is lost until an old row is changed. Where our role owns the table,
capture sets the replica identity as soon as it sees a new partition. Elsewhere an event trigger of the
administrator can do it (docs/how-to/postgresql.md).
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import psycopg

from rollview.sources.postgres.connections import Connection, transaction
from rollview.sources.postgres.partitions import Partition, to_alter
from rollview.sources.postgres.watch import Observation

_LOCK_MILLISECONDS = 200
_PAUSE_SECONDS = 10.0


def lacking(observed: Observation) -> list[Partition]:
    """The partitions whose old rows are not logged in full."""
    tables = observed.fingerprint.tables.values()
    return [each for table in tables for each in table.partitions if each in to_alter([each])]


class PartitionIdentity:
    """Sets replica identities. A partition that is locked is tried again after a while."""

    def __init__(self) -> None:
        self._due: dict[int, float] = {}

    def set(self, connection: Connection, partitions: Iterable[Partition]) -> None:
        """Those of partitions that belong to us. Nobody else waits for long behind us."""
        for each in partitions:
            now = time.monotonic()
            if not each.is_ours or now < self._due.get(each.id, now):
                continue
            self._due[each.id] = now + _PAUSE_SECONDS
            try:
                with transaction(connection):
                    connection.execute(f"SET LOCAL lock_timeout = {_LOCK_MILLISECONDS}".encode())
                    connection.execute(f"ALTER TABLE {each.qualified} REPLICA IDENTITY FULL".encode())
            except psycopg.Error:
                # It is locked, or gone by now. Nothing is lost until an old row is changed.
                if connection.broken:
                    raise

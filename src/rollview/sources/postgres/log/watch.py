"""Compares the source with what is registered of it, as often as something is read from it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import psycopg

from rollview.errors import SourceChanged, SourceFailed
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection, Connections, transaction
from rollview.sources.postgres.log.damage import (
    Damage,
    Fingerprint,
    damage,
    damage_of_all,
    glance,
    read_fingerprint,
)
from rollview.sources.postgres.log.pgoutput import Relation
from rollview.sources.postgres.log.slot import not_set_up
from rollview.sources.postgres.partitions import Partition, links_of, to_alter
from rollview.sources.postgres.position import Partitions
from rollview.sources.postgres.registration import Registered, Registration, decode, registration_id
from rollview.sources.postgres.setup.schema_function import schema_functions
from rollview.sources.source import reload_hint, setup_hint

_MOST_SEEN = 100


@dataclass(frozen=True)
class Observation:
    """The registration, the fingerprint of now, and by name the tables that are damaged."""

    registration: Registration
    fingerprint: Fingerprint
    damaged: Mapping[str, Damage]

    @property
    def partitions(self) -> Partitions:
        """Those of all partitioned tables."""
        return {
            table.id: links_of(self.fingerprint.tables[table.id].partitions)
            for table in self.registration.tables.values()
            if table.is_partitioned and table.id in self.fingerprint.tables
        }


class Watch:
    """Remembers what it has seen, so that one short query is enough unless something has changed.

    Several threads may use it.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._known = Registration()
        self._seen: dict[frozenset[str] | None, tuple[str, Observation]] = {}

    def observe(self, connection: Connection, names: Collection[str] | None = None) -> Observation:
        """The source as it is now, as far as these tables are concerned; all, unless they are named.

        Refuses where setup has not been, and where what it has registered is unknown.
        """
        key = frozenset(names) if names is not None else None
        while True:
            known = self._known
            wanted = [each for each in known.tables.values() if names is None or each.name in names]
            digest = glance(connection, self._address, wanted)
            before = self._seen.get(key)
            if before is not None and before[0] == digest and before[1].registration is known:
                return before[1]
            fingerprint = read_fingerprint(connection, self._address, wanted)
            if fingerprint is None:
                raise not_set_up(self._address)
            registration = decode(fingerprint.comment)
            if registration is None:
                raise self._unknown()
            if registration != known:
                self._known = registration
                continue
            observed = Observation(known, fingerprint, self._damaged(known, fingerprint, wanted))
            if glance(connection, self._address, wanted) == digest:
                if len(self._seen) >= _MOST_SEEN:
                    self._seen = {}
                self._seen[key] = digest, observed
            return observed

    def registered(self, connection: Connection, names: Collection[str]) -> Mapping[str, Registered]:
        """The captured tables as they were last seen, looked at again if one of these is not among them."""
        if not self._known.tables.keys() >= set(names):
            return self.observe(connection, names).registration.tables
        return self._known.tables

    def expect_intact(
        self, connection: Connection, wanted: Mapping[str, Collection[str]] | None = None
    ) -> Mapping[str, Registered]:
        """The captured tables, of which these columns are as they were at setup, and may be read as a whole.

        All tables and columns, unless they are named.
        """
        observed = self.observe(connection, None if wanted is None else wanted.keys())
        source = self._address.source
        for name, damaged in observed.damaged.items():
            place = f"{source}.{name}"
            if wanted is None or not damaged.columns or not set(damaged.columns).isdisjoint(wanted[name]):
                raise SourceChanged(damaged.reason, subject=place, hint=setup_hint(place))
        for name, registered in observed.registration.tables.items():
            table = observed.fingerprint.tables.get(registered.id)
            if table is not None and table.is_secured:
                raise SourceFailed(
                    f"row security hides rows of table {source}.{name} from us",
                    subject=f"{source}.{name}",
                    hint="its owner can switch it off, or give our role BYPASSRLS",
                )
        return observed.registration.tables

    def _damaged(
        self, known: Registration, fingerprint: Fingerprint, tables: Collection[Registered]
    ) -> dict[str, Damage]:
        if of_all := damage_of_all(known, fingerprint, self._address.publication):
            return {table.name: Damage(of_all) for table in tables}
        source = self._address.source
        found = {table.name: damage(table, fingerprint, f"{source}.{table.name}") for table in tables}
        return {name: each for name, each in found.items() if each is not None}

    def _unknown(self) -> SourceChanged:
        return SourceChanged(
            f"source {self._address.source}: the comment on large object {registration_id(self._address)},"
            " which says what is captured, is not the one that `rollview setup` wrote",
            subject=self._address.source,
            hint=reload_hint(self._address.source),
        )


# New partitions log their old rows in full, if we may see to that.
#
# A new partition has the replica identity of every new table, whatever that of the others is: only keys of
# deleted and updated rows are logged, and without a key the server refuses to delete and update. Insertions
# are logged all the same, so that nothing is lost until an old row is changed. Where our role owns the table,
# or the administrator has left a function in the schema, capture sets the replica identity as soon as it sees
# a new partition. Elsewhere an event trigger of the administrator can do it (docs/how-to/postgresql.md).

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


# Whose partition a relation of the log is, if its log position does not know it yet.
#
# It is asked when rows of a partition come before anybody has looked at the server after it was made one.
# The log may be ahead of what can be seen by an instant; so what is not found is looked for again.


_PATIENCE_SECONDS = 1.0
_LOOK_AGAIN_SECONDS = 0.02
# A table that is in the publication for its own sake is no detached partition.
_OWNER = """
    WITH RECURSIVE above AS (
        SELECT h.inhparent FROM pg_inherits h WHERE h.inhrelid = %(id)s::oid
        UNION ALL
        SELECT h.inhparent FROM above JOIN pg_inherits h ON h.inhrelid = above.inhparent)
    SELECT (SELECT inhparent::int8 FROM above WHERE inhparent = ANY(%(tables)s::oid[])),
        EXISTS (SELECT FROM pg_publication_tables t
                JOIN pg_class c ON c.relname = t.tablename
                JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = t.schemaname
                WHERE t.pubname = %(publication)s AND c.oid = %(id)s::oid)
"""


def find_owner(
    connections: Connections, address: Address, relation: Relation, tables: Sequence[Registered]
) -> tuple[Sequence[Registered], bool]:
    """The one of these tables that a relation is a partition of; none if it is published for its own sake.

    All of them, and True, if it is no partition any more: its former parent is not known.
    """
    by_id = {table.id: table for table in tables}
    sought = {"id": relation.id, "tables": list(by_id), "publication": address.publication}
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        with connections.connection() as connection:
            row = connection.execute(_OWNER, sought).fetchone()
        assert row is not None
        if row[0] is not None:
            return (by_id[row[0]],), False
        if row[1]:
            return (), False
        if time.monotonic() > deadline:
            return tables, True
        time.sleep(_LOOK_AGAIN_SECONDS)

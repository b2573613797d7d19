"""Whose partition a relation of the log is, if its log position does not know it yet.

It is asked when rows of a partition come before anybody has looked at the server after it was made one. The
log may be ahead of what can be seen by an instant; so what is not found is looked for again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connections
from rollview.sources.postgres.pgoutput import Relation
from rollview.sources.postgres.registration import Registered

_PATIENCE_SECONDS = 1.0
_PAUSE_SECONDS = 0.02
# What is in the publication for its own sake is no partition that went astray.
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

    All of them, and True, if it is no partition any more: nobody can tell which one it was below of.
    """
    by_id = {table.id: table for table in tables}
    sought = {"id": relation.id, "tables": list(by_id), "publication": address.slot}
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
        time.sleep(_PAUSE_SECONDS)

"""Transactions that are writing tables, waited for without holding anybody up.

A transaction that has written a table before it was published would be captured by half. A lock on the table
would tell that there is none, but others would have to wait behind it, and only an owner may take it. So
those that hold a lock of theirs are waited for. Whoever comes later finds the table published.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from rollview.errors import SourceFailed
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connection

_STEP_SECONDS = 0.05
# Whoever writes rows of a table may have locked only the part of it, or the child, that has them. A
# transaction without an id has not written anything yet.
_WRITERS = """
    WITH RECURSIVE family(id) AS (
        SELECT unnest(%s::oid[])
        UNION SELECT h.inhrelid FROM pg_inherits h JOIN family f ON h.inhparent = f.id)
    SELECT DISTINCT w.virtualtransaction, x.transactionid::text::int8
    FROM pg_locks w LEFT JOIN pg_locks x
      ON x.virtualtransaction = w.virtualtransaction AND x.locktype = 'transactionid' AND x.granted
    WHERE w.locktype = 'relation' AND w.granted AND w.relation IN (SELECT id FROM family)
      AND w.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND w.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
      AND w.pid IS DISTINCT FROM pg_backend_pid()
"""


def await_writers(connection: Connection, address: Address, tables: Collection[int]) -> tuple[int, ...]:
    """Waits until all that are writing these tables now have ended; their transaction ids, 32 bits each."""
    if not tables:
        return ()
    found = _writers(connection, tables)
    waiting = {transaction for transaction, _ in found}
    deadline = time.monotonic() + address.timeout
    while waiting:
        if time.monotonic() > deadline:
            raise SourceFailed(
                f"source {address.source}: a transaction that has written to one of its tables was still open"
                f" after {address.timeout:g} s",
                subject=address.source,
                hint="end that transaction (see pg_stat_activity and pg_prepared_xacts), or wait longer:"
                " option `timeout`; then try again",
            )
        time.sleep(_STEP_SECONDS)
        waiting &= {transaction for transaction, _ in _writers(connection, tables)}
    return tuple(sorted({xid for _, xid in found if xid is not None}))


def _writers(connection: Connection, tables: Collection[int]) -> list[tuple[str, int | None]]:
    return [(each, xid) for each, xid in connection.execute(_WRITERS, (list(tables),))]

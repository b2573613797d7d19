"""Locks on the keys by which tables are joined: who has them sees what the others did.

Two writers of joined tables that do not see each other's rows would both miss what these join to. So each
locks the join keys that its rows lead to, hop by hop, before it looks at the other tables: shared on the side
with more rows per key, exclusive on the other. At READ COMMITTED it then sees all that was committed before
it got the locks.

At REPEATABLE READ and SERIALIZABLE it does not: its snapshot is older. So every writer leaves a *trace* of
each lock: key, side, transaction. A transaction with a fixed snapshot asks, when it has its locks, for traces
of the other side by transactions that have committed since the snapshot was taken. It cannot see them, but a
unique index does: it inserts the very rows, and the server refuses it (`40001`) where one is there, as it
does where two such transactions change one row. When it is tried again, it has a newer snapshot. Without such
a trace its snapshot shows all that counts, and the rows that it inserted are taken back.

Old traces are deleted, which a transaction with an older snapshot must not overlook either: whoever deletes
them changes a row that it locks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rollview.sources.postgres.connections import Connection, quote, text_literal
from rollview.sources.postgres.deltas.triggers import JoinedRows, Reached, quoted, rows_of
from rollview.sources.postgres.structure import PostgresColumn

_BUCKETS = 1024
_MOST_TRANSACTIONS = 20_000
_MOST_ROWS = 200_000
"""So many transactions since a snapshot, and traces of them, are looked for; a newer one has fewer."""

_PURGED, _PROBE = -2, -1
"""What stands for the side in the row that says that traces were deleted, and in one that gets a fresh id."""

_LOCK_SECONDS = 1
_UNDONE = "RV000"
TRACES = "trace"
"""What the name of a table of traces ends in."""


@dataclass(frozen=True)
class KeyLocks:
    """The locks of one view's writers: what its objects are called, and what is joined."""

    name: str
    traces: str
    check: str
    rows: JoinedRows

    def statements(self) -> Iterator[str]:
        """What creates the traces, and the function that looks for them."""
        yield f"CREATE TABLE {self.traces} (lock int8, side int2, xid int8, PRIMARY KEY (lock, side, xid))"
        yield f"INSERT INTO {self.traces} VALUES (0, {_PURGED}, 0)"
        yield f"DROP FUNCTION IF EXISTS {self.check}(int8[], int2)"
        yield (
            f"CREATE FUNCTION {self.check}(locks int8[], other int2) RETURNS void LANGUAGE plpgsql"
            f" SET search_path = pg_catalog, pg_temp AS {quoted(self._check_body())}"
        )
        yield f"REVOKE ALL ON FUNCTION {self.check}(int8[], int2) FROM PUBLIC"

    def _check_body(self) -> str:
        view = self.rows.definition.name
        refused = f"view {view} is kept immediately, and this transaction began too long ago"
        return f"""#variable_conflict use_column
DECLARE
    rollview_saw pg_snapshot := pg_current_snapshot();
    rollview_own int8 := pg_current_xact_id()::text::int8;
    rollview_fresh int8;
    rollview_since int8[];
    rollview_latest int8 := pg_snapshot_xmax(pg_current_snapshot())::text::int8;
BEGIN
    -- Fails if traces have been deleted since the snapshot.
    PERFORM FROM {self.traces} WHERE lock = 0 AND side = {_PURGED} AND xid = 0 FOR SHARE;
    BEGIN
        INSERT INTO {self.traces} VALUES (0, {_PROBE}, rollview_own)
            RETURNING xmin::text::int8 INTO rollview_fresh;
        rollview_fresh := rollview_own + (rollview_fresh - rollview_own) % 4294967296;
        IF rollview_fresh < rollview_own THEN
            rollview_fresh := rollview_fresh + 4294967296;
        END IF;
        IF rollview_fresh - rollview_latest <= {_MOST_TRANSACTIONS} THEN
            SELECT array_agg(x.xid) INTO rollview_since
            FROM (SELECT n AS xid FROM generate_series(rollview_latest, rollview_fresh - 1) AS n
                  UNION SELECT r::text::int8 FROM pg_snapshot_xip(rollview_saw) AS r) AS x
            WHERE x.xid <> rollview_own AND pg_xact_status(x.xid::text::xid8) = 'committed';
        END IF;
        IF rollview_fresh - rollview_latest > {_MOST_TRANSACTIONS}
                OR cardinality(rollview_since)::int8 * cardinality(locks) > {_MOST_ROWS} THEN
            RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = {text_literal(refused)},
                HINT = 'try the transaction again';
        END IF;
        -- The server refuses a row that is there already, unless the snapshot shows it.
        INSERT INTO {self.traces}
        SELECT l.lock, other, x.xid FROM unnest(rollview_since) AS x(xid), unnest(locks) AS l(lock)
        ORDER BY 1, 3
        ON CONFLICT DO NOTHING;
        RAISE EXCEPTION USING ERRCODE = '{_UNDONE}';
    EXCEPTION WHEN SQLSTATE '{_UNDONE}' THEN
        NULL;
    END;
END"""

    def acquire(self, position: int, rows: str) -> Iterator[str]:
        """Locks the keys by which rows at one place are joined; writers of one side share theirs."""
        steps = self.rows.reached(position)
        for number, step in enumerate(steps):
            kind = "pg_advisory_xact_lock_shared" if _is_shared(self.rows, step) else "pg_advisory_xact_lock"
            texts = [key_text(other, f"r{step.parent}.{quote(other.name)}") for _, other in step.on]
            known = " AND ".join(f"r{step.parent}.{quote(other.name)} IS NOT NULL" for _, other in step.on)
            edge = f"{self.name}/{min(step.place, step.parent)}/{max(step.place, step.parent)}"
            bucket = f"hashtextextended(concat_ws('|', {', '.join(texts)}), 0) & {_BUCKETS - 1}"
            key = f"hashtextextended(concat_ws('/', {text_literal(edge)}, {bucket}), 0)"
            path = self._path(steps[:number], position, step.parent)
            yield f"SELECT array_agg(DISTINCT {key} ORDER BY {key}) INTO rollview_locks"
            yield f"FROM ({rows}) AS r{position}{path} WHERE {known};"
            yield "IF rollview_locks IS NOT NULL THEN"
            yield f"    PERFORM {kind}(l) FROM unnest(rollview_locks) AS l;"
            yield f"    INSERT INTO {self.traces} SELECT l, {step.parent}, pg_current_xact_id()::text::int8"
            yield "    FROM unnest(rollview_locks) AS l ON CONFLICT DO NOTHING;"
            yield "    IF current_setting('transaction_isolation') NOT LIKE 'read %' THEN"
            yield f"        PERFORM {self.check}(rollview_locks, {step.place}::int2);"
            yield "    END IF;"
            yield "END IF;"

    def _path(self, steps: Sequence[Reached], position: int, place: int) -> str:
        """The joins that lead from the changed rows to a relation."""
        found, wanted = list[str](), place
        while wanted != position:
            step = next(each for each in steps if each.place == wanted)
            table = rows_of(self.rows.structures[wanted])
            found.insert(0, f" JOIN {table} AS r{wanted} ON {step.condition}")
            wanted = step.parent
        return "".join(found)


def purge_traces(connection: Connection, traces: str) -> None:
    """Deletes traces of transactions that everybody sees who begins now; not while somebody needs them."""
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'".encode())
        connection.execute(f"UPDATE {traces} SET xid = 0 WHERE lock = 0 AND side = {_PURGED}".encode())
        connection.execute(
            f"DELETE FROM {traces} WHERE side >= 0"
            " AND xid < pg_snapshot_xmin(pg_current_snapshot())::text::int8".encode()
        )


def key_text(column: PostgresColumn, sql: str) -> str:
    """A value of a key, such that equal ones have the same text."""
    return f"trim_scale({sql})" if column.kind == "numeric" else sql


def _is_shared(rows: JoinedRows, step: Reached) -> bool:
    """Whether writers that come from the parent's side share its locks: the side that has more rows per key.

    Then those from the other side exclude everybody.
    """

    def is_key(place: int, columns: set[str]) -> bool:
        key = rows.structures[place].key
        return bool(key) and set(key) <= columns

    own = is_key(step.place, {column.name for column, _ in step.on})
    parent = is_key(step.parent, {column.name for _, column in step.on})
    return step.parent < step.place if own == parent else own

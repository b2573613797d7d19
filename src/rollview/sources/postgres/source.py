"""A PostgreSQL database as a source. The parts are in the modules beside this one, put together here.

The source txid of a transaction is its id in 64 bits, and a log position is a position in the log. A read
point is a snapshot with the position of a marker that was put into the log after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rollview.errors import CaptureRefused, InputError, SourceFailed, SourceUnavailable
from rollview.sources.deltas import DeltaDefinition, Marked
from rollview.sources.postgres.address import address_of, dataset_of
from rollview.sources.postgres.connections import Connection, Connections
from rollview.sources.postgres.deltas.install import (
    DeltaTables,
    add_deltas,
    check_deltas,
    delta_table,
    first_unseen,
    keep_deltas,
    read_marks,
    remove_deltas,
)
from rollview.sources.postgres.embedded.server import PREFIX as EMBEDDED
from rollview.sources.postgres.log.log_reader import LogReader
from rollview.sources.postgres.log.slot import expect_log, slot_of
from rollview.sources.postgres.log.watch import Watch, lacking
from rollview.sources.postgres.position import LogPosition, reach_of
from rollview.sources.postgres.read import read_point as read_points
from rollview.sources.postgres.read.keys import can_push, comparable
from rollview.sources.postgres.read.load import load
from rollview.sources.postgres.read.lookup import columns_of, look_up_all
from rollview.sources.postgres.read.reading import reading
from rollview.sources.postgres.registration import read_registration
from rollview.sources.postgres.setup.global_parts import call_of
from rollview.sources.postgres.setup.install import check, install, uninstall
from rollview.sources.postgres.setup.schema_function import schema_script
from rollview.sources.postgres.structure import structures
from rollview.sources.settings import Threads, Workers, temporary_folder
from rollview.sources.source import (
    Batch,
    Comparison,
    Lookup,
    ReadResult,
    Seen,
    SetupResult,
    SourceSettings,
    SourceTxids,
    Table,
)

_ORIGIN_SECONDS = 1.0
_ESTIMATE = """
    SELECT sum(greatest(c.reltuples, 0)) FROM pg_class c WHERE c.relkind = 'r' AND c.oid IN (
        SELECT t.relid::oid FROM pg_partition_tree(to_regclass(%(table)s)) t
        UNION SELECT to_regclass(%(table)s)::oid)
"""


class PostgresSource:
    """The tables of a PostgreSQL database.

    Options: `schemas` (those that views may read, the first without naming it; public and all others unless
    given), `slot` (names the replication slot and the publication; two projects that capture one database
    need two), `publication` (one that its owner looks after), `coordinators` (the roles that may announce
    parts of global transactions), `timeout` in seconds.
    """

    kind = "postgres"
    worker_module = "rollview.sources.postgres.read.lookup"

    def __init__(
        self,
        name: str,
        dsn: str,
        options: Mapping[str, str] = {},
        workers: Workers | None = None,
        new_folder: Callable[[], Path] = temporary_folder,
    ) -> None:
        self.name = name
        self._workers = workers or Threads()
        self._address = address_of(name, dsn, options)
        self._connections = Connections(self._address)
        self._watch = Watch(self._address)
        self._log = LogReader(self._address, self._connections, new_folder=new_folder)
        self._deltas = DeltaTables(self._address, self._connections)

    @classmethod
    def open(cls, settings: SourceSettings) -> PostgresSource:
        """As the project file describes it; a `path` in place of `dsn` is a server of the project's own."""
        if "path" in settings.options and "dsn" not in settings.options:
            dsn, options = f"{EMBEDDED}{settings.path()}", settings.without("path")
        else:
            dsn = settings.required("dsn", "dsn: postgresql://user:${PASSWORD}@host:5432/database")
            options = settings.without("dsn")
        return cls(settings.name, dsn, options, settings.workers, settings.new_folder)

    def tables(self) -> tuple[Table, ...]:
        """Every table of the schemas, also those that setup would refuse."""
        with self._connections.connection() as connection:
            found = structures(connection, self._address)
        return tuple(
            structure.as_table(self.name)
            for structure in found.values()
            if structure.schema != self._address.delta_schema
        )

    def check(self, tables: Sequence[Table]) -> SetupResult:
        """The server's settings, our privileges, the tables; statements for the administrator if need be."""
        with self._connections.connection() as connection:
            return check(connection, self._address, tables)

    def setup(self, tables: Sequence[Table]) -> SetupResult:
        """Replica identities and the publication in one transaction, then the slot."""
        self._log.release()
        with self._connections.connection() as connection:
            return install(connection, self._address, tables)

    def schema_statements(self, schema: str) -> tuple[str, ...]:
        """A script that leaves a function in the schema, which captures and releases its tables for us."""
        with self._connections.connection() as connection:
            return schema_script(connection, self._address, schema)

    def remove(self) -> SetupResult:
        """Drops the slot and the publication, and gives tables the replica identity that they had."""
        self._log.release()
        with self._connections.connection() as connection:
            made = remove_deltas(connection, self._address)
            removed = uninstall(connection, self._address)
        return replace(removed, done=(*made.done, *removed.done))

    def describe(self) -> Mapping[str, str]:
        """The server, and how much of its log it keeps for us. If it is unavailable, only that."""
        how = {"capture": f"logical replication (pgoutput), slot {self._address.slot}"}
        try:
            with self._connections.connection() as connection:
                registration = read_registration(connection, self._address)
                slot = slot_of(connection, self._address)
                observed = self._watch.observe(connection) if registration is not None else None
                partial = [each.shown for each in lacking(observed)] if observed is not None else []
                version = connection.info.parameter_status("server_version") or "unknown"
        except (SourceUnavailable, SourceFailed, CaptureRefused) as error:
            return {**how, "server": f"unavailable: {error.message}"}
        kept = "not set up"
        if slot is not None:
            kept = "lost" if slot.is_lost else slot.warning or f"{slot.kept_bytes / (1 << 20):.1f} MB"
        return {
            **how,
            "server": f"PostgreSQL {version}",
            "kept log": kept,
            "tables": ", ".join(registration.tables if registration is not None else ()) or "not set up",
            **({"replica identity": f"not FULL: {', '.join(partial)}"} if partial else {}),
            **({"global transactions": call_of(self._address)} if self._address.coordinators else {}),
        }

    def kept_log_bytes(self) -> int | None:
        """The bytes of log that the server keeps for our slot; None without a usable one."""
        with self._connections.connection() as connection:
            slot = slot_of(connection, self._address)
        return None if slot is None or slot.is_lost else slot.kept_bytes

    def dataset(self, table: str) -> tuple[str, str]:
        """`postgres://host:port` and `database.schema.table`."""
        return dataset_of(self._address, table)

    def current_position(self, site: str) -> str:
        """The end of the log, once all that was logged before it can be seen."""
        self._expect(site)
        with self._connections.connection() as connection:
            self._watch.expect_intact(connection)
            before = None
            while before != (partitions := self._watch.observe(connection).partitions):
                # Those of exactly this position: otherwise one more look at both.
                before, now = partitions, read_points.present(connection)
            position = now.position
            expect_log(connection, self._address, position)
            self._await_visible(connection)
            slot = slot_of(connection, self._address)
            row = connection.execute("SELECT current_setting('max_prepared_transactions')::int").fetchone()
        assert row is not None
        # Transactions that were prepared before this position and are committed after it must be read again.
        start = min(slot.confirmed, position) if slot is not None and row[0] else position
        return str(LogPosition(position, start, now.server, partitions))

    def _await_visible(self, connection: Connection) -> None:
        """Waits for transactions that have logged their commit and are not visible yet.

        They would be neither captured nor seen by the first reading. Which those are cannot be seen from
        outside, but it takes them no longer than an instant, unless they wait for a standby.
        """
        running = read_points.snapshot_of(read_points.snapshot_text(connection)).in_progress
        deadline = time.monotonic() + _ORIGIN_SECONDS
        while running and time.monotonic() < deadline:
            time.sleep(0.005)
            running &= read_points.snapshot_of(read_points.snapshot_text(connection)).in_progress
        waiting = connection.execute(
            "SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_xid::text::int8 = ANY(%s)",
            ([xid % (1 << 32) for xid in running],),
        ).fetchone()
        if waiting is not None:
            raise SourceUnavailable(
                f"source {self.name}: committed transactions wait for a synchronous standby",
                subject=self.name,
                hint="try again when the standby is back",
            )

    def reach(self, site: str, position: str, captured: str) -> int:
        """The transactions that an LSN includes: commits that end before it."""
        self._expect(site)
        return reach_of(self.name, position, captured)

    def capture(self, site: str, after: str, limit: int) -> Batch:
        """The transactions after a log position, from the stream."""
        self._expect(site)
        return self._log.take(after, limit)

    def replay(self, site: str, after: str, source_txids: Sequence[int], upto: str) -> Batch:
        """The same from the server's log, which keeps it until it may be forgotten."""
        self._expect(site)
        return self._log.replay(after, source_txids, upto)

    def acknowledge(self, site: str, upto: str) -> None:
        """Confirms the position to the server."""
        self._expect(site)
        self._log.acknowledge(upto)
        self._deltas.purge()

    def can_compare(self, key_type: str, column_type: str) -> bool:
        """Numbers by value, all else by the column's own type."""
        return comparable(key_type, column_type)

    def can_push(self, comparison: Comparison, column_type: str) -> bool:
        """Numbers, dates, and texts that are equal."""
        return can_push(comparison, column_type)

    def lookup(self, plan: Sequence[Lookup]) -> ReadResult:
        """All from one snapshot."""
        with reading(self._connections, self._workers, self._watch, columns_of(plan)) as (opened, outcome):
            rows = look_up_all(opened, plan)
        return ReadResult(rows, outcome.read_point)

    def read(self, tables: Mapping[Table, Sequence[str]], scratch: Path) -> ReadResult:
        """Whole tables, all from one snapshot."""
        wanted = {table.name: columns for table, columns in tables.items()}
        with reading(self._connections, self._workers, self._watch, wanted) as (opened, outcome):
            rows = load(opened, tables, scratch)
        return ReadResult(rows, outcome.read_point)

    def estimated_rows(self, table: str) -> int:
        """The estimate of the server's statistics for a table and its partitions."""
        with self._connections.connection() as connection:
            (rows,) = connection.execute(_ESTIMATE, {"table": table}).fetchone() or (0,)
            return int(rows or 0)

    def seen(self, site: str, read_point: str, source_txids: SourceTxids) -> Seen | None:
        """The versions that a snapshot saw, once its marker has been captured."""
        self._expect(site)
        return read_points.seen(read_point, source_txids)

    def delta_obstacle(self, definition: DeltaDefinition) -> str:
        """Partitions, and joins that the server cannot find as Spark does."""
        return self._deltas.obstacle(definition)

    def delta_table(self, definition: DeltaDefinition) -> Table:
        return delta_table(self._address, definition)

    def known_deltas(self) -> frozenset[str]:
        """Those that are there, whole or not."""
        return self._deltas.known()

    def check_deltas(self, definitions: Sequence[DeltaDefinition]) -> SetupResult:
        """Statements for the administrator if we may not create triggers, or the schema."""
        with self._connections.connection() as connection:
            return check_deltas(connection, self._address, definitions)

    def add_deltas(self, definitions: Sequence[DeltaDefinition]) -> SetupResult:
        with self._connections.connection() as connection:
            return add_deltas(connection, self._address, definitions)

    def keep_deltas(self, definitions: Sequence[DeltaDefinition]) -> SetupResult:
        """Drops the others."""
        with self._connections.connection() as connection:
            return keep_deltas(connection, self._address, definitions)

    def first_unseen(self, marks: Sequence[str]) -> int:
        """The oldest snapshot's first transaction in progress."""
        return first_unseen(marks)

    def read_marks(self, marks: Sequence[tuple[str, int]], before: Sequence[int]) -> list[Marked]:
        return read_marks(marks, before)

    def close(self) -> None:
        """Ends the stream and the idle connections."""
        self._log.close()
        self._connections.close()

    def _expect(self, site: str) -> None:
        if site != self.name:
            raise InputError(
                f"source {self.name} has no site {site}", subject=site, hint=f"its only site is {self.name}"
            )

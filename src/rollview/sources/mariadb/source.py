"""A MariaDB database as a source. The parts are in the modules beside this one; here they are put together.

The source txid of a transaction is the place in the binary log at which its commit ends, as a number. A log
position is the place up to which capture has looked. A read point is the place of the last transaction that a
reading saw.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rollview.ascii_text import whole_number
from rollview.errors import (
    CaptureRefused,
    InputError,
    NotSetUp,
    OptionError,
    RollviewError,
    SourceChanged,
    SourceUnavailable,
)
from rollview.sources.mariadb.binlog.capture import Capture
from rollview.sources.mariadb.binlog.fingerprint import Fingerprint
from rollview.sources.mariadb.binlog.server_log import in_doubt, knows_xa, written_position
from rollview.sources.mariadb.connection import Server, parse_address
from rollview.sources.mariadb.position import (
    check_gtids,
    gtid_numbers,
    includes,
    parse_log_position,
    parse_read_point,
    place_reached,
)
from rollview.sources.mariadb.read.lookup import PlannedLookups, can_push, comparable, load
from rollview.sources.mariadb.read.snapshot import Snapshots
from rollview.sources.mariadb.registered import REGISTRY, Registered, read_registered
from rollview.sources.mariadb.setup.install import (
    check,
    clear_markers,
    database_statements,
    install,
    uninstall,
)
from rollview.sources.mariadb.setup.requirements import check_version, unfit_settings
from rollview.sources.mariadb.structure import is_forbidden, structures_of
from rollview.sources.settings import seconds_option, temporary_folder
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
    setup_hint,
)

_TIMEOUT_SECONDS = 60.0
_IN_DOUBT_SECONDS = 10.0
_MOMENT_SECONDS = 0.01
_PREPARING_SECONDS = 0.5
_OPTIONS = ("registry", "server_id", "timeout")
_REGISTRY = re.compile("[A-Za-z0-9_]{1,40}")


class MariaDBSource:
    """The tables of one database of a MariaDB server.

    Options: `timeout`, seconds to wait for the server to say something; `server_id`, by which the server
    knows the reader of its log; without it every stream takes one at random, so that several can read; and
    `registry`, which separates what is captured for this project from what is captured for others.
    """

    kind = "mariadb"

    def __init__(
        self,
        name: str,
        dsn: str,
        options: Mapping[str, str] = {},
        new_folder: Callable[[], Path] = temporary_folder,
    ) -> None:
        self.name = name
        address, password = parse_address(name, dsn)
        server_id, timeout = _numbers(name, options)
        address = replace(address, registry=_registry(name, options))
        self._server = Server(name, address, password, timeout)
        self._snapshots = Snapshots(self._server)
        self._fingerprint = Fingerprint(self._server)
        self._capture = Capture(self._server, server_id, self._fingerprint, new_folder)
        self._tables: dict[str, Registered] = {}

    @classmethod
    def open(cls, settings: SourceSettings) -> MariaDBSource:
        """As the project file describes it."""
        dsn = settings.required("dsn", "dsn: mariadb://user:${PASSWORD}@host:3306/database")
        return cls(settings.name, dsn, settings.without("dsn"), settings.new_folder)

    def tables(self) -> tuple[Table, ...]:
        """Every table with the columns that can be mapped, also those that setup would refuse.

        A captured table that we may no longer see is still one: setup says what to grant.
        """
        with self._server.session() as connection, connection.cursor() as cursor:
            check_version(self.name, cursor)
            single_byte = self._server.charsets(connection).single_byte
            structures = structures_of(cursor, self._server.address.database, single_byte)
            captured = read_registered(cursor, self._server.address) or {}
            hidden = [
                table.as_table(self.name)
                for name, table in captured.items()
                if name not in structures and is_forbidden(cursor, name)
            ]
        return (*(structure.as_table(self.name) for structure in structures.values()), *hidden)

    def check(self, tables: Sequence[Table]) -> SetupResult:
        """The server's settings, our privileges, the tables; statements for the administrator if need be."""
        # Privileges that were granted since count for new connections only.
        self._server.close()
        return check(self._server, tables)

    def setup(self, tables: Sequence[Table]) -> SetupResult:
        """Checks the server and writes down, in the database, which tables are captured."""
        self._server.close()
        prepared = install(self._server, tables)
        self._tables = {}
        if prepared.done:
            self._capture.restart()
        return prepared

    def schema_statements(self, schema: str) -> tuple[str, ...]:
        """The rights to read the log and all tables of the database, and our own two tables."""
        self._server.close()
        return database_statements(self._server, schema)

    def remove(self) -> SetupResult:
        """Drops the two tables that setup made."""
        self._capture.restart()
        self._tables = {}
        return uninstall(self._server)

    def describe(self) -> Mapping[str, str]:
        """The server, how far its log is written, and how much of it is kept for how long."""
        known = {"address": self._server.shown, "capture": "transactions from the binary log"}
        try:
            with self._server.session() as connection, connection.cursor() as cursor:
                version = check_version(self.name, cursor)
                tables = read_registered(cursor, self._server.address)
                unfit = unfit_settings(cursor)
                written = written_position(cursor)
                cursor.execute("SHOW BINARY LOGS")
                sizes = [int(row[1]) for row in cursor.fetchall()]
                cursor.execute("SELECT @@binlog_expire_logs_seconds")
                ((seconds,),) = cursor.fetchall()
        except RollviewError as error:
            return {**known, "server": f"unavailable or unusable: {error.message}"}
        kept = f"{sum(sizes) / 1e6:.1f} MB in {len(sizes)} files"
        limit = f"deleted after {seconds / 86_400:g} days" if seconds else "not deleted by age"
        return {
            **known,
            "server": f"MariaDB {version}",
            "log": f"{written.file}:{written.offset}; {kept}, {limit}",
            "tables": "not set up" if tables is None else ", ".join(tables) or "none",
            **({"settings": f"{'; '.join(unfit)}: run `rollview setup`"} if unfit else {}),
        }

    def dataset(self, table: str) -> tuple[str, str]:
        """`mysql://host:port` and `database.table`."""
        at = self._server.address
        return f"mysql://{at.host}:{at.port}", f"{at.database}.{table}"

    def current_position(self, site: str) -> str:
        """The end of the log now.

        An XA transaction that is in doubt now may be resolved later, but its rows are already in the log. So
        reading begins early enough for those, once all have been decided that were prepared before.
        """
        self._expect(site)
        with self._server.session() as connection, connection.cursor() as cursor:
            start = written_position(cursor)
            if knows_xa(cursor):
                # XA PREPARE is written to the log first, and listed a moment later.
                time.sleep(_PREPARING_SECONDS)
            earlier = in_doubt(cursor)
            deadline = time.monotonic() + _IN_DOUBT_SECONDS
            while earlier and (earlier := earlier & in_doubt(cursor)):
                if time.monotonic() > deadline:
                    shown = ", ".join(gtrid.decode(errors="replace") for _, gtrid, _ in sorted(earlier))
                    raise CaptureRefused(
                        f"source {self.name}: XA transactions stay in doubt, and their rows are in an earlier"
                        f" part of the binary log: {shown}",
                        subject=self.name,
                        hint="resolve them (XA RECOVER, XA COMMIT, XA ROLLBACK), then run `rollview setup`",
                    )
                time.sleep(_MOMENT_SECONDS)
            reached = written_position(cursor)
        prepared = self._capture.begin_at(start).reached if reached != start else None
        return str(self._capture.begin_at(reached, prepared))

    def reach(self, site: str, position: str, captured: str) -> int | Callable[[str], bool]:
        """The transactions that a GTID, a list of them, or a place in the binary log includes."""
        self._expect(site)
        if (numbers := gtid_numbers(position)) is None:
            return place_reached(self.name, position, captured)
        with self._server.session() as connection, connection.cursor() as cursor:
            check_gtids(cursor, self.name, position, parse_log_position(captured).reached)
        return lambda gtid: includes(numbers, gtid)

    def capture(self, site: str, after: str, limit: int) -> Batch:
        """The transactions after a log position, up to what is written now."""
        self._expect(site)
        return self._capture.take(after, limit)

    def replay(self, site: str, after: str, source_txids: Sequence[int], upto: str) -> Batch:
        """The same from the log once more."""
        self._expect(site)
        return self._capture.replay(after, source_txids, upto)

    def acknowledge(self, site: str, upto: str) -> None:
        """The server deletes its log by its own rules; what lies beside it is deleted here."""
        self._expect(site)
        self._capture.acknowledge(upto)
        clear_markers(self._server)

    def can_compare(self, key_type: str, column_type: str) -> bool:
        """By the columns' own types and collations, which find equal values and perhaps others."""
        return comparable(key_type, column_type)

    def can_push(self, comparison: Comparison, column_type: str) -> bool:
        """Numbers, dates, and texts that are equal."""
        return can_push(comparison, column_type)

    def lookup(self, plan: Sequence[Lookup]) -> ReadResult:
        """All from one snapshot."""
        with (
            self._reading([each.table for each in plan]) as (connection, tables),
            PlannedLookups(self._server, connection, tables, plan) as lookups,
            self._snapshots.opened(connection, {each.name for each in tables}) as point,
        ):
            answers = lookups.answers()
            self._check_intact(connection, [each.table for each in plan], tables)
            return ReadResult(answers, json.dumps(str(point)))

    def read(self, tables: Mapping[Table, Sequence[str]], scratch: Path) -> ReadResult:
        """Whole tables, all from one snapshot."""
        with self._reading(list(tables)) as (connection, known):
            wanted = list(zip(known, tables.values(), strict=True))
            with self._snapshots.opened(connection, {each.name for each in known}) as point:
                rows = load(self._server, connection, wanted, scratch)
                self._check_intact(connection, list(tables), known)
                return ReadResult(rows, json.dumps(str(point)))

    def estimated_rows(self, table: str) -> int:
        """The estimate of the server's statistics."""
        with self._server.session() as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT table_rows FROM information_schema.tables"
                " WHERE table_schema = DATABASE() AND table_name = %s",
                (table,),
            )
            found = cursor.fetchone()
            return int(found[0] or 0) if found else 0

    def seen(self, site: str, read_point: str, source_txids: SourceTxids) -> Seen | None:
        """All transactions that end at the place of the snapshot or before.

        A transaction that capture does not know is not captured yet; capture then says whether it is the
        same one.
        """
        self._expect(site)
        point = parse_read_point(json.loads(read_point))
        if not point.is_in(parse_log_position(source_txids.log_position)):
            return None
        return Seen(source_txids.latest(point.position.ordinal))

    def close(self) -> None:
        """Ends the stream and closes all connections."""
        self._capture.close()
        self._server.close()

    @contextmanager
    def _reading(self, tables: Sequence[Table]) -> Iterator[tuple[Any, list[Registered]]]:
        """A connection and the tables as they are registered; an error of a changed table names it."""
        try:
            with self._server.session() as connection:
                yield connection, [self._registered(connection, table) for table in tables]
        except SourceUnavailable:
            # A table that was altered cannot be read either.
            with self._server.session() as connection:
                known = [self._registered(connection, table) for table in tables]
                self._check_intact(connection, tables, known)
            raise

    def _check_intact(self, connection: Any, tables: Sequence[Table], known: Sequence[Registered]) -> None:
        """Refuses tables that differ from their registration. A table just read cannot be altered now."""
        if not self._fingerprint.damaged(connection, {each.name: each for each in known}):
            return
        # Another process may have run setup since.
        with connection.cursor() as cursor:
            self._tables = read_registered(cursor, self._server.address) or {}
        now = {each.name: self._tables.get(each.name, each) for each in known}
        damaged = self._fingerprint.damaged(connection, now)
        for table in tables:
            damage = damaged.get(table.name)
            if damage is not None and damage.concerns(table.columns):
                loss = damage.loss_of(table.qualified)
                raise SourceChanged(loss.message, subject=table.qualified, hint=loss.hint)

    def _registered(self, connection: Any, table: Table) -> Registered:
        """A captured table as it was at setup; only of those it is known what a reading saw."""
        types = dict(zip(table.columns, table.types, strict=True))
        known = self._tables.get(table.name)
        if known is None or not types.items() <= known.types.items():
            # Another process may have run setup since.
            with connection.cursor() as cursor:
                self._tables = read_registered(cursor, self._server.address) or {}
            known = self._tables.get(table.name)
        if known is None:
            raise NotSetUp(
                f"table {table.qualified} is not captured",
                subject=table.qualified,
                hint="run `rollview setup`",
            )
        if not types.items() <= known.types.items():
            raise SourceChanged(
                f"table {table.qualified} is no longer captured with the same columns",
                subject=table.qualified,
                hint=setup_hint(table.qualified),
            )
        return known

    def _expect(self, site: str) -> None:
        if site != self.name:
            raise InputError(
                f"source {self.name} has no site {site}", subject=site, hint=f"its only site is {self.name}"
            )


def _registry(name: str, options: Mapping[str, str]) -> str:
    chosen = options.get("registry", "")
    if chosen and not _REGISTRY.fullmatch(chosen):
        hint = "up to 40 letters, digits and underscores"
        raise OptionError(f"source {name}: {chosen} cannot name a registry", subject="registry", hint=hint)
    return f"{REGISTRY}_{chosen}" if chosen else REGISTRY


def _numbers(name: str, options: Mapping[str, str]) -> tuple[int | None, float]:
    for option in sorted(options.keys() - set(_OPTIONS)):
        hint = f"the options are {', '.join(f'`{known}`' for known in _OPTIONS)}"
        raise OptionError(f"source {name}: unknown option {option}", subject=option, hint=hint)
    text = options.get("server_id")
    server_id = None if text is None else whole_number(text)
    if text is not None and (server_id is None or not 0 < server_id < 1 << 32):
        message = f"source {name}: server_id is not a number: {text}"
        raise OptionError(message, subject="server_id", hint="a whole number from 1 to 4294967295")
    return server_id, seconds_option(name, options, _TIMEOUT_SECONDS)

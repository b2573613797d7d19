"""A SQLite database as a source. The parts are in the modules beside this one; here they are put together.

The source txid of a transaction is the counter at its commit, and a log position is the counter up to which
capture has looked, with a stamp. A read point is the counter that a reading saw.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from rollview.errors import InputError, OptionError, ReadPointLost, SourceChanged
from rollview.sources.settings import seconds_option
from rollview.sources.source import (
    Batch,
    CapturedTransaction,
    Comparison,
    Lookup,
    Loss,
    ReadResult,
    Seen,
    SetupResult,
    SourceSettings,
    SourceTxids,
    Table,
    reload_hint,
    setup_hint,
)
from rollview.sources.sqlite.captured import (
    CUTS_TABLE,
    FORGOTTEN_TABLE,
    CapturedTable,
    captured_tables,
    is_installed,
)
from rollview.sources.sqlite.change_log import LogPosition, remade, stamp_of, transactions
from rollview.sources.sqlite.connection import opened, quote, transaction
from rollview.sources.sqlite.database import Database, DatabaseSnapshot, cut_origin
from rollview.sources.sqlite.install import InstallPlan, install, plan_install, uninstall
from rollview.sources.sqlite.lookup import can_push, comparable, load, look_up_all
from rollview.sources.sqlite.structure import BUILT_IN, structure_of, table_names
from rollview.sources.sqlite.triggers import log_name, old_name, unlogged
from rollview.sources.sqlite.watch import CommitWatch

_TIMEOUT_SECONDS = 30.0
_FORGET_RECORDS = 5_000
_NO_WAL = (
    "the database is not in WAL mode: transactions between two polls are captured as one, and readers hold"
    " up writers; `PRAGMA journal_mode = WAL`, once, at the source changes that"
)


_RESTORED = "the database was restored to an earlier state, for example from a backup"


class SQLiteSource:
    """The tables of one SQLite file. The only option is `timeout`: seconds to wait for a locked file."""

    kind = "sqlite"

    def __init__(self, name: str, path: Path, options: Mapping[str, str] = {}) -> None:
        self.name = name
        self.path = Path(path)
        self._database = Database(name, self.path, _timeout(name, options))
        self._watch = CommitWatch(self._database)

    @classmethod
    def open(cls, settings: SourceSettings) -> SQLiteSource:
        return cls(settings.name, settings.path(), settings.without("path"))

    def tables(self) -> tuple[Table, ...]:
        """Every table, also those that setup would refuse."""
        with opened(self.path, self._database.timeout) as connection, transaction(connection):
            structures = [structure_of(connection, name) for name in table_names(connection)]
        return tuple(structure.as_table(self.name) for structure in structures if structure is not None)

    def check(self, tables: Sequence[Table]) -> SetupResult:
        """Also that the file can be written: it is locked as for setup, for a moment."""
        with opened(self.path, self._database.timeout) as connection:
            with transaction(connection, "IMMEDIATE"):
                plan = plan_install(connection, self.name, tables)
            return _setup_result(connection, plan)

    def setup(self, tables: Sequence[Table]) -> SetupResult:
        """Puts the change logs and triggers in place, in one transaction."""
        self._watch.release()
        self._database.start_afresh()
        with self._database.opened() as connection:
            with transaction(connection, "IMMEDIATE"):
                plan = plan_install(connection, self.name, tables)
                install(connection, plan)
            return _setup_result(connection, plan)

    def remove(self) -> SetupResult:
        """Drops the change logs and triggers, in one transaction."""
        self._watch.release()
        self._database.start_afresh()
        with self._database.opened() as connection, transaction(connection, "IMMEDIATE"):
            return SetupResult(done=tuple(uninstall(connection)))

    def describe(self) -> Mapping[str, str]:
        """The file, the journal mode, and so whether transactions are distinguished."""
        with self._database.opened() as connection:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            tables = captured_tables(connection) if is_installed(connection) else {}
        from_wal = "transactions from the WAL, while capture runs"
        granularity = from_wal if mode == "wal" else "one composite transaction per poll"
        return {
            "path": str(self.path),
            "capture": granularity,
            "journal": mode,
            "tables": ", ".join(tables) or "not set up",
        }

    def dataset(self, table: str) -> tuple[str, str]:
        """The file's path, and below it the table."""
        return "file", f"{self.path.absolute()}/{table}"

    def current_position(self, site: str) -> str:
        """The counter now. It is recorded at the source, so that `seen` knows it from a state passed over."""
        self._expect(site)
        with self._watch.snapshot() as snapshot:
            start = snapshot.state.version
        with self._database.opened() as connection:
            return str(LogPosition(start, cut_origin(connection, start)))

    def capture(self, site: str, after: str, limit: int) -> Batch:
        """The transactions after a counter, as far as a snapshot sees them, and what was damaged by then."""
        self._expect(site)
        start = LogPosition.parse(after)
        with self._watch.snapshot() as snapshot:
            self._expect_log(snapshot, start, start.counter)
            lost = self._losses(snapshot, start.counter)
            source_txids = self._source_txids(snapshot, start.counter, limit)
            if not source_txids:
                return Batch((), after, lost)
            found = self._transactions(snapshot, start.counter, source_txids)
            end = source_txids[-1]
            return Batch(found, str(LogPosition(end, stamp_of(snapshot, end))), lost)

    def _losses(self, snapshot: DatabaseSnapshot, after: int) -> dict[str, Loss]:
        """The tables that are damaged, and those whose log begins only behind a counter."""
        lost = {
            f"{self.name}.{table.name}": remade(f"{self.name}.{table.name}")
            for table in snapshot.found.tables.values()
            if after < table.since
        }
        return lost | {
            f"{self.name}.{name}": Loss(f"source {self.name}: {reason}", setup_hint(f"{self.name}.{name}"))
            for name, reason in snapshot.found.damaged.items()
        }

    def _transactions(
        self, snapshot: DatabaseSnapshot, after: int, source_txids: Sequence[int]
    ) -> tuple[CapturedTransaction, ...]:
        """As the log has them, with what is known of how many they were; one record is of one."""
        found = transactions(snapshot, self.name, after, source_txids)
        bounds = pairwise((after, *source_txids))
        kept = snapshot.connection.execute(
            f"SELECT origin, version FROM {CUTS_TABLE} WHERE version > ? AND typeof(origin) = 'integer'",
            (after,),
        )
        single = set(kept.fetchall())

        def is_single(start: int, end: int) -> bool:
            return end - start == 1 or (start, end) in single or self._watch.knows_all(start)

        return tuple(
            replace(each, merged=int(is_single(start, end)))
            for each, (start, end) in zip(found, bounds, strict=True)
        )

    def _source_txids(self, snapshot: DatabaseSnapshot, after: int, limit: int) -> list[int]:
        """Where to end transactions. Counters number changes, so their difference says how many there are."""
        present = snapshot.state.version
        cuts = snapshot.connection.execute(
            f"SELECT version FROM {CUTS_TABLE} WHERE version > ? AND version <= ?", (after, present)
        )
        ends = {present, *(version for (version,) in cuts)} if present > after else set()
        if snapshot.wal:
            ends |= self._watch.commits(after, present)
        ordered = sorted(ends)
        return ordered[:1] + [end for end in ordered[1:] if end - after <= limit]

    def replay(self, site: str, after: str, source_txids: Sequence[int], upto: str) -> Batch:
        """The same from the change log alone, whatever has happened to the tables since."""
        self._expect(site)
        start, end = LogPosition.parse(after), LogPosition.parse(upto)
        # The first thing that a process does after a crash: from now on, it watches.
        with self._watch.snapshot() as snapshot:
            self._expect_log(snapshot, start, end.counter)
            return Batch(self._transactions(snapshot, start.counter, source_txids), upto)

    def acknowledge(self, site: str, upto: str) -> None:
        """Deletes log records, some at a time, so that no writer waits long. The counter stays as it is."""
        self._expect(site)
        with self._database.opened() as connection:
            with transaction(connection):
                snapshot = self._database.read_state(connection)
            limit = min(LogPosition.parse(upto).counter, snapshot.state.version)
            connection.execute(f"UPDATE {FORGOTTEN_TABLE} SET version = max(version, ?)", (limit,))
            connection.execute(
                f"DELETE FROM {CUTS_TABLE} WHERE version < ? AND typeof(origin) <> 'text'", (limit,)
            )
            for name, table in snapshot.readable.items():
                if name not in snapshot.found.damaged:
                    # Outside of a writer's statement every note is needless, unless it shows what is missing.
                    connection.execute(f"DELETE FROM {quote(old_name(name))} WHERE NOT ({_kept(table)})")
                _delete_records(connection, log_name(name), limit)

    def can_compare(self, key_type: str, column_type: str) -> bool:
        """One date has one text, one time has several."""
        return comparable(key_type, column_type)

    def can_push(self, comparison: Comparison, column_type: str) -> bool:
        """Numbers, and texts that are equal."""
        return can_push(comparison, column_type)

    def lookup(self, plan: Sequence[Lookup]) -> ReadResult:
        """All from one snapshot."""
        with self._database.snapshot(self._watch.watching) as snapshot:
            rows = look_up_all(snapshot, self.name, plan)
            return ReadResult(rows, json.dumps(snapshot.state.version))

    def read(self, tables: Mapping[Table, Sequence[str]], scratch: Path) -> ReadResult:
        """Whole tables, all from one snapshot."""
        with self._database.snapshot(self._watch.watching) as snapshot:
            rows = load(self._database, snapshot, tables, scratch)
            return ReadResult(rows, json.dumps(snapshot.state.version))

    def estimated_rows(self, table: str) -> int:
        """The largest rowid; a table without rowids is not counted."""
        with closing(self._database.connect()) as connection, suppress(sqlite3.Error):
            (largest,) = connection.execute(f"SELECT max(rowid) FROM main.{quote(table)}").fetchone()
            return int(largest or 0)
        return 0

    def seen(self, site: str, read_point: str, source_txids: SourceTxids) -> Seen | None:
        """The transactions that a counter includes: all up to the one that ended with it."""
        self._expect(site)
        counter: int = json.loads(read_point)
        reached = LogPosition.parse(source_txids.log_position)
        if reached.counter < counter:
            return None
        self._expect_same_history(reached)
        versions = source_txids.versions([counter])
        if counter in versions:
            return Seen(versions[counter])
        if source_txids.latest(counter) == 0 and self._is_origin(counter):
            return Seen(0)
        raise ReadPointLost(
            f"source {self.name}: an answer saw the state {counter}, which capture skipped because the WAL"
            " no longer showed where transactions ended",
            subject=self.name,
            hint="try again; keep capture running while views are propagated",
        )

    def close(self) -> None:
        """Lets go of the snapshot that watches commits."""
        self._watch.release()

    def _is_origin(self, counter: int) -> bool:
        with self._database.opened() as connection:
            row = connection.execute(
                f"SELECT origin FROM {CUTS_TABLE} WHERE version = ?", (counter,)
            ).fetchone()
        return row is not None and isinstance(row[0], str)

    def _expect(self, site: str) -> None:
        if site != self.name:
            raise InputError(
                f"source {self.name} has no site {site}", subject=site, hint=f"its only site is {self.name}"
            )

    def _expect_same_history(self, reached: LogPosition) -> None:
        """Refuses a database whose history is not the captured one."""
        with self._database.opened() as connection, transaction(connection):
            snapshot = self._database.read_state(connection)
            (forgotten,) = connection.execute(f"SELECT version FROM {FORGOTTEN_TABLE}").fetchone()
            if reached.counter > max(forgotten, snapshot.state.version):
                raise self._cannot_continue(reached, _RESTORED)
            if forgotten < reached.counter and not _has_stamp(snapshot, reached):
                raise self._cannot_continue(reached, _RESTORED)

    def _expect_log(self, snapshot: DatabaseSnapshot, after: LogPosition, upto: int) -> None:
        """The log must hold all after a counter; otherwise something has happened that is not in it."""
        row = snapshot.connection.execute(f"SELECT version FROM {FORGOTTEN_TABLE}").fetchone()
        forgotten = row[0]
        if after.counter < snapshot.state.generation:
            raise self._cannot_continue(after, "capture was set up again since then")
        if after.counter < forgotten:
            raise self._cannot_continue(after, "these changes were already discarded at the source")
        # A table released exactly up to here was released by the process that captured it.
        is_known = forgotten == after.counter or _has_stamp(snapshot, after)
        if upto > snapshot.state.version or not is_known:
            raise self._cannot_continue(after, _RESTORED)

    def _cannot_continue(self, after: LogPosition, reason: str) -> SourceChanged:
        return SourceChanged(
            f"source {self.name} cannot be captured from {after.counter} on: {reason}",
            subject=self.name,
            hint=reload_hint(self.name),
        )


def _has_stamp(snapshot: DatabaseSnapshot, reached: LogPosition) -> bool:
    """Whether the database came by the place that a log position names."""
    if not reached.stamp:
        return True
    row = snapshot.connection.execute(
        f"SELECT origin FROM {CUTS_TABLE} WHERE version = ?", (reached.counter,)
    ).fetchone()
    origin = row[0] if row is not None else None
    return reached.stamp in (origin, stamp_of(snapshot, reached.counter))


def _kept(table: CapturedTable) -> str:
    """The notes that are kept, as SQL."""
    foreign = any(collation not in BUILT_IN for _, collation in table.structure.identity)
    return "0" if foreign else unlogged(table.structure, tuple(table.types))


def _setup_result(connection: sqlite3.Connection, plan: InstallPlan) -> SetupResult:
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    return SetupResult(done=plan.changes, warnings=() if mode == "wal" else (_NO_WAL,))


def _delete_records(connection: sqlite3.Connection, log: str, upto: int) -> None:
    while True:
        (first,) = connection.execute(f"SELECT min(version) FROM {quote(log)}").fetchone()
        if first is None or first > upto:
            return
        end = min(upto, first + _FORGET_RECORDS)
        connection.execute(f"DELETE FROM {quote(log)} WHERE version <= ?", (end,))


def _timeout(name: str, options: Mapping[str, str]) -> float:
    unknown = sorted(options.keys() - {"timeout"})
    if unknown:
        raise OptionError(
            f"source {name}: unknown option {unknown[0]}",
            subject=unknown[0],
            hint="the only option is `timeout`",
        )
    return seconds_option(name, options, _TIMEOUT_SECONDS)

"""Watches commits: takes snapshots one after the other and learns where the transactions between them ended.

In WAL mode each snapshot stays open until the next one has been taken and the WAL has been read. An open
snapshot keeps the WAL from being started over, so no commit in between can go unnoticed. It also lets the
WAL grow, so a WAL that has grown long is given the chance to start over. While nobody captures, because a
view is being loaded, say, the watch itself takes the next snapshot every few seconds; after some minutes
without a capture it stops. All that is remembered of a commit is a number.

Commits of a time in which nobody watched are known only as far as the WAL still has them. Which counter it is
from which on all are known, the watch knows, too.

That chance costs no knowledge, not even if this process dies: ends of transactions that nobody has captured
yet are kept in the database before, as cuts. A snapshot of a WAL that is wholly copied into the database does
not use the WAL (it holds read lock 0): the next writer may start it over, while the copying of what is then
written waits for the snapshot. So: take a snapshot, copy (a passive checkpoint), take the next one. If
writers are too busy for that to succeed and the WAL gets very long, they are held up for just this long.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise

from rollview.errors import RollviewError
from rollview.sources.sqlite.captured import State
from rollview.sources.sqlite.connection import explained, opened, transaction
from rollview.sources.sqlite.database import Database, DatabaseSnapshot, cut_end
from rollview.sources.sqlite.wal import WalReader

HOLD_SECONDS = 600.0
FOLLOW_SECONDS = 10.0
LONG_FRAMES = 4_000
VERY_LONG_FRAMES = 16_000
_PATIENCE_SECONDS = 1.0
_KEPT_AT_ONCE = 5_000


class CommitWatch:
    """The commits of one database, as far as they were seen; one snapshot held open in WAL mode."""

    def __init__(
        self,
        database: Database,
        hold_seconds: float = HOLD_SECONDS,
        follow_seconds: float = FOLLOW_SECONDS,
        long_frames: int = LONG_FRAMES,
        very_long_frames: int = VERY_LONG_FRAMES,
    ) -> None:
        self._database = database
        self._hold_seconds = hold_seconds
        self._follow_seconds = follow_seconds
        self._long_frames = long_frames
        self._very_long_frames = very_long_frames
        self._lock = threading.RLock()
        self._reader = WalReader(database.path)
        self._commits: set[int] = set()
        self._kept: set[int] = set()
        self._asked_after = 0
        self._all_known_from: int | None = None
        self._counter_at: tuple[int, int] | None = None
        self._held: sqlite3.Connection | None = None
        self._until = 0.0
        self._timer: threading.Timer | None = None

    @property
    def watching(self) -> bool:
        """Whether every commit from now on will be noticed, unless this process ends."""
        return self._held is not None

    @contextmanager
    def snapshot(self) -> Iterator[DatabaseSnapshot]:
        """The next snapshot. If its use fails, the one before stays."""
        with self._lock, explained(self._database.path):
            connection = self._database.connect()
            try:
                snapshot = self._database.begin(connection)
                if snapshot.wal:
                    self._read_wal(snapshot.state)
                else:
                    self._all_known_from = None
                yield snapshot
            except BaseException:
                connection.close()
                raise
            if snapshot.wal:
                self._until = time.monotonic() + self._hold_seconds
                self._hold(connection)
                self._let_start_over()
            else:
                connection.close()
                self.release()

    def commits(self, after: int, upto: int) -> set[int]:
        """The counters after < c ≤ upto that a transaction is known to have ended with.

        Commits at or before `after` are forgotten.
        """
        with self._lock:
            self._asked_after = after
            self._commits = {commit for commit in self._commits if commit > after}
            return {commit for commit in self._commits if commit <= upto}

    def knows_all(self, after: int) -> bool:
        """Whether every commit after a counter is known, up to the latest snapshot."""
        with self._lock:
            return self._all_known_from is not None and self._all_known_from <= after

    def release(self) -> None:
        """Lets go of the snapshot: the WAL may be started over at any time, and commits be overlooked."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._held is not None:
                self._held.close()
                self._held = None

    def _read_wal(self, state: State) -> None:
        found = self._reader.commits(state.root_page, state.generation)
        self._commits.update(found)
        # A VACUUM may have moved the counter to another page since the last look.
        at = (state.root_page, state.generation)
        is_followed = self._reader.continued or (self.watching and at == self._counter_at)
        if self._reader.failed or not is_followed:
            self._all_known_from = min(found, default=state.version)
        self._counter_at = at

    def _hold(self, connection: sqlite3.Connection) -> None:
        self.release()
        self._held = connection
        self._timer = threading.Timer(self._follow_seconds, self._renew)
        self._timer.daemon = True
        self._timer.start()

    def _renew(self) -> None:
        """Takes the next snapshot while nobody captures, so that the WAL need not grow; at last, none."""
        with self._lock:
            if self._timer is not threading.current_thread():
                return
            try:
                if time.monotonic() > self._until:
                    self.release()
                else:
                    with explained(self._database.path):
                        self._follow()
                        self._let_start_over()
            except RollviewError:
                # The next capture reports what is wrong.
                self.release()

    def _let_start_over(self) -> None:
        if self._reader.frames < self._long_frames:
            return
        self._keep_commits()
        if self._reader.frames < self._very_long_frames:
            self._copy_between_snapshots()
            return
        with self._database.opened() as writer:
            writer.execute(f"PRAGMA busy_timeout = {int(_PATIENCE_SECONDS * 1000)}")
            with suppress(sqlite3.OperationalError):
                writer.execute("BEGIN IMMEDIATE")
            self._copy_between_snapshots()

    def _keep_commits(self) -> None:
        """Writes down the commits that nobody has captured yet: the WAL will not show them again."""
        self._kept &= self._commits
        ends = [(before, end) for before, end in self._known_ends() if end not in self._kept]
        with suppress(RollviewError):
            for first in range(0, len(ends), _KEPT_AT_ONCE):
                some = ends[first : first + _KEPT_AT_ONCE]
                with opened(self._database.path, _PATIENCE_SECONDS) as connection, transaction(connection):
                    for before, end in some:
                        cut_end(connection, end, before)
                self._kept.update(end for _, end in some)

    def _known_ends(self) -> Iterator[tuple[int | None, int]]:
        """The commits that nobody has captured yet, each behind the one before it, if that is known."""
        for before, end in pairwise((self._asked_after, *sorted(self._commits))):
            yield before if self.knows_all(before) else None, end

    def _copy_between_snapshots(self) -> None:
        self._follow()
        with self._database.opened() as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        self._follow()

    def _follow(self) -> None:
        """Moves the held snapshot to the present."""
        connection = self._database.connect()
        try:
            snapshot = self._database.begin(connection)
            if not snapshot.wal:
                raise sqlite3.OperationalError("the journal mode has changed")
            self._read_wal(snapshot.state)
        except BaseException:
            connection.close()
            raise
        self._hold(connection)

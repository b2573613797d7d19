"""Leases: two processes never do the same work, and one that was overtaken cannot write any more.

Every acquisition raises the lease's epoch, the fencing token; a writer under a lease compares
epochs inside the writing transaction. While it is held, a thread renews it every third of its time, and
each renewal is a beat.

When may a held lease be taken? At once, if its holder ran on this kernel and has ended. Otherwise it is
watched on the monotonic clock, and taken if it has no beat for all its time. The wall clock only raises a
suspicion: it does, when it is further than the lease's time from the last renewal, *in either direction*. A
suspected lease is taken if it has no beat for half its time, although a live holder beats every third. So a
clock that is set forward takes nothing from a live holder, and one that is set back by any amount, or on
another host, protects a dead one for no longer than the lease's time after it is first watched. Only a
suspected lease is waited for longer than the caller wants to wait. Whoever waits for one lease watches all of
them, so that those of a holder that died are taken without watching each in its turn.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, select, text, update

from rollview.catalog.database import Database
from rollview.catalog.schema import lease as leases
from rollview.errors import CatalogUnavailable, LeaseHeld, LeaseLost

# Which process this is, and whether another one is gone for certain.
#
# A pid alone is not enough: it is given again. With the time at which the process started it names one
# process of one running kernel; host name, boot id and pid namespace say which kernel, and which container.
# Of a process anywhere else nothing can be known.


@dataclass(frozen=True)
class Process:
    """A process anywhere; `kernel` and `start` are empty where the system does not report them."""

    host: str
    kernel: str
    pid: int
    start: str


def this_process() -> Process:
    """The process that asks."""
    return Process(socket.gethostname(), _kernel(), os.getpid(), _state_and_start(os.getpid())[1])


def is_gone(process: Process) -> bool:
    """Whether the process is known to have ended. False if it runs, and if that cannot be found out here."""
    if (process.host, process.kernel) != (socket.gethostname(), _kernel()):
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # It exists, but belongs to another user.
    state, start = _state_and_start(process.pid)
    # A zombie has ended, it only waits for its parent to notice.
    return state in {"Z", "X"} or bool(start and process.start and start != process.start)


@cache
def _kernel() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _state_and_start(pid: int) -> tuple[str, str]:
    """The state letter and the start in clock ticks since boot (fields 3 and 22 of proc(5) stat)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "", ""
    # The name in parentheses may hold anything, so fields are counted from its end.
    fields = text.rpartition(")")[2].split()
    return fields[0], fields[19]


_POLL_SECONDS = 0.05

_MAKE_ROW = text(
    "INSERT INTO lease (name, epoch, beat, host, kernel, process_start, acquired_at, renewed_at, expires_at) "
    "VALUES (:name, 0, 0, '', '', '', 0, 0, 0) ON CONFLICT DO NOTHING"
)


@dataclass(frozen=True)
class Lease:
    """The right to do a named piece of work, for as long as no one else has a greater epoch."""

    name: str
    epoch: int


_held_here: set[tuple[str, Lease]] = set()
"""The leases of this process, with their catalog. A catalog that failed may say otherwise."""

Pulse = tuple[int, int]
"""A lease's epoch and beat: it stops changing once the holder stops."""


@dataclass(frozen=True)
class _Occupied:
    """A lease that another one holds, or another thread of this process."""

    holder: Process
    since: float
    pulse: Pulse
    seconds: float
    suspected: bool
    silent_since: float


class Leases:
    """The leases of a catalog, as this process sees them."""

    def __init__(self, database: Database, clock: Callable[[], float], seconds: float) -> None:
        """`seconds` is how long a lease lasts without renewal."""
        self._database = database
        self._clock = clock
        self._seconds = seconds
        self._beats: dict[str, tuple[Pulse, float]] = {}
        self._watched_at = time.monotonic()

    @contextmanager
    def hold(self, name: str, wait_seconds: float) -> Iterator[Lease]:
        """Acquires a lease, keeps it renewed, gives it back. Raises LeaseHeld when waiting was in vain."""
        lease = self._acquire(name, wait_seconds)
        try:
            with self._renewed(lease):
                yield lease
        finally:
            _held_here.discard((self._database.place, lease))

    @contextmanager
    def _renewed(self, lease: Lease) -> Iterator[None]:
        done = threading.Event()
        renewal = threading.Thread(
            target=self._keep_renewed, args=(lease, done), name=f"lease {lease.name}", daemon=True
        )
        renewal.start()
        try:
            yield
        finally:
            done.set()
            renewal.join()
            # One that cannot be given back now is taken once it is still, or by this process, which knows
            # that it holds it no more.
            with suppress(CatalogUnavailable):
                self._release(lease)

    def _acquire(self, name: str, wait_seconds: float) -> Lease:
        started = time.monotonic()
        first: Pulse | None = None
        dead: Pulse | None = None
        while True:
            try:
                found = self._try_to_acquire(name, dead)
            except CatalogUnavailable:
                # Perhaps for a lock of one who is silent.
                self._database.end_silent()
                raise
            if isinstance(found, Lease):
                return found
            now = time.monotonic()
            first = first or found.pulse
            silent_seconds = now - found.silent_since
            if silent_seconds >= (found.seconds / 2 if found.suspected else found.seconds):
                self._database.end_silent()
                dead = found.pulse
            elif now - started >= wait_seconds and (found.pulse != first or not found.suspected):
                raise _held(name, found)
            else:
                time.sleep(_POLL_SECONDS)

    def _watch(self, connection: Connection) -> dict[str, tuple[Pulse, float]]:
        """Notes since when each lease is known to have had no beat."""
        now, known = time.monotonic(), leases.c
        # While nobody looked, the catalog may not have answered to the holder either.
        before = self._beats if now - self._watched_at < max(self._seconds / 3, 1.0) else {}
        beats = {}
        held = select(known.name, known.epoch, known.beat).where(known.pid.is_not(None))
        for row in connection.execute(held):
            pulse, since = before.get(row.name, (None, now))
            beats[row.name] = (row.epoch, row.beat), since if pulse == (row.epoch, row.beat) else now
        self._beats, self._watched_at = beats, now
        return beats

    def _try_to_acquire(self, name: str, dead: Pulse | None) -> Lease | _Occupied:
        """Takes the lease if it is free, its holder is gone, or its pulse is a dead one."""
        taken: Lease | None = None
        try:
            with self._database.writing() as connection:
                found = self._in_transaction(connection, name, dead)
                if isinstance(found, _Occupied):
                    return found
                # Before it is committed: another thread that sees it must find it here.
                taken = found
                _held_here.add((self._database.place, taken))
            return taken
        except BaseException:
            # It may have been committed all the same, for a holder that is forgotten.
            if taken:
                _held_here.discard((self._database.place, taken))
            raise

    def _in_transaction(self, connection: Connection, name: str, dead: Pulse | None) -> Lease | _Occupied:
        row = _locked(connection, name)
        if row is None:
            connection.execute(_MAKE_ROW, {"name": name})
            row = _locked(connection, name)
            assert row is not None
        now, me = self._clock(), this_process()
        if row.pid is not None and (row.epoch, row.beat) != dead:
            holder = Process(row.host, row.kernel, row.pid, row.process_start)
            forgotten = holder == me and (self._database.place, Lease(name, row.epoch)) not in _held_here
            if not is_gone(holder) and not forgotten:
                seconds = row.expires_at - row.renewed_at
                suspected = abs(now - row.renewed_at) >= seconds
                pulse = (row.epoch, row.beat)
                since = self._watch(connection)[name][1]
                return _Occupied(holder, row.acquired_at, pulse, seconds, suspected, since)
        connection.execute(
            update(leases)
            .where(leases.c.name == name)
            .values(
                epoch=row.epoch + 1,
                beat=0,
                host=me.host,
                kernel=me.kernel,
                pid=me.pid,
                process_start=me.start,
                acquired_at=now,
                renewed_at=now,
                expires_at=now + self._seconds,
            )
        )
        return Lease(name, row.epoch + 1)

    def _keep_renewed(self, lease: Lease, done: threading.Event) -> None:
        pause = self._seconds / 3
        while not done.wait(pause):
            try:
                if not self._renew(lease):
                    return
                pause = self._seconds / 3
            except CatalogUnavailable:
                pause = self._seconds / 30

    def _renew(self, lease: Lease) -> bool:
        """One more beat; False if the lease has been lost."""
        now = self._clock()
        with self._database.writing() as connection:
            renewed = connection.execute(
                update(leases)
                .where(leases.c.name == lease.name, leases.c.epoch == lease.epoch)
                .values(beat=leases.c.beat + 1, renewed_at=now, expires_at=now + self._seconds)
            )
        return renewed.rowcount == 1

    def _release(self, lease: Lease) -> None:
        with self._database.writing() as connection:
            connection.execute(
                update(leases)
                .where(leases.c.name == lease.name, leases.c.epoch == lease.epoch)
                .values(pid=None)
            )


def fence(connection: Connection, lease: Lease) -> None:
    """Refuses to continue with a lease that has been lost; until the transaction ends it cannot be."""
    row = _locked(connection, lease.name)
    if row is not None and row.epoch == lease.epoch and row.pid is not None:
        return
    successor = "nobody" if row is None or row.pid is None else f"process {row.pid} on {row.host}"
    raise LeaseLost(
        f"the lease {lease.name} was lost (epoch {lease.epoch}); it is now held by {successor}",
        subject=lease.name,
        hint="nothing was written; the process that holds the lease now continues the work",
    )


def _locked(connection: Connection, name: str) -> Row[Any] | None:
    """The lease's row; no one else changes it before this transaction ends."""
    return connection.execute(select(leases).where(leases.c.name == name).with_for_update()).one_or_none()


def _held(name: str, found: _Occupied) -> LeaseHeld:
    since = datetime.fromtimestamp(found.since, UTC).isoformat(timespec="seconds")
    return LeaseHeld(
        f"{name} is held by process {found.holder.pid} on {found.holder.host} since {since}",
        subject=name,
        hint="wait until it has finished, or stop it; if it was killed, its lease expires automatically",
    )

"""Leases: two processes never do the same work, and one that was overtaken cannot write any more.

Every acquisition raises the lease's epoch, the fencing token; whoever writes under a lease compares
epochs inside the writing transaction. While it is held, a thread renews it every third of its time, and
each renewal is a beat.

When may a held lease be taken? At once, if its holder ran on this kernel and has ended. Otherwise the
wall clock only raises a suspicion: it does, when it is further than the lease's time from the last renewal,
*in either direction*. A suspected lease is watched on the monotonic clock, and taken if it has no beat for
half its time, although a live holder beats every third. So a clock that is set forward takes nothing from a
live holder, and one that is set back by any amount protects a dead one for at most two and a half times the
lease's time. Only a suspected lease is waited for longer than the caller wants to wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, select, text, update

from rollview.catalog.database import Database
from rollview.catalog.process import Process, is_gone, this_process
from rollview.catalog.schema import lease as leases
from rollview.errors import CatalogUnavailable, LeaseHeld, LeaseLost

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
"""What this process holds, with the catalog it is in. A catalog that failed may say otherwise."""

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


class Leases:
    """The leases of a catalog, as this process sees them."""

    def __init__(self, database: Database, clock: Callable[[], float], seconds: float) -> None:
        """`seconds` is how long a lease lasts without renewal."""
        self._database = database
        self._clock = clock
        self._seconds = seconds

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
        watched: Pulse | None = None
        watched_since, has_moved = started, False
        dead: Pulse | None = None
        while True:
            found = self._try_to_acquire(name, dead)
            if isinstance(found, Lease):
                return found
            now = time.monotonic()
            if found.pulse != watched:
                has_moved = watched is not None
                watched, watched_since = found.pulse, now
            if found.suspected and now - watched_since >= found.seconds / 2:
                dead = found.pulse
            elif now - started >= wait_seconds and (has_moved or not found.suspected):
                raise _held(name, found)
            else:
                time.sleep(_POLL_SECONDS)

    def _try_to_acquire(self, name: str, dead: Pulse | None) -> Lease | _Occupied:
        """One transaction: takes the lease if it is free, its holder is gone, or its pulse is a dead one."""
        with self._database.writing() as connection:
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
                    return _Occupied(holder, row.acquired_at, pulse, seconds, suspected)
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
            lease = Lease(name, row.epoch + 1)
            # Before it is committed: another thread that sees it must find it here.
            _held_here.add((self._database.place, lease))
            return lease

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
    """Refuses to go on with a lease that has been lost; until the transaction ends it cannot be."""
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
        hint="wait until it has finished, or stop it; if it was killed, its lease expires by itself",
    )

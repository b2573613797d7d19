"""Read points: the snapshot of a reading, and a position in the log by which all of it has been captured.

Commits become visible in another order than they are logged, so what was seen is known by transaction ids:
a transaction is visible if its id is below the snapshot's `xmax` and was not in progress then. A transaction
is logged before anyone can see it, so whatever a snapshot sees is logged before a marker that is put into the
log after it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from rollview.errors import ReadPointLost
from rollview.sources.postgres.connections import Connection
from rollview.sources.postgres.position import log_position_of, position_of
from rollview.sources.source import (
    Seen,
    SourceTxids,
)

MARKER_PREFIX = "rollview.mark"
"""The prefix of messages in the log that a reading waits for."""

_NUDGE_PREFIX = "rollview.nudge"


@dataclass(frozen=True)
class TransactionSnapshot:
    """The transactions that a reading sees: all below `xmax` but those `in_progress`; all below `xmin`."""

    xmin: int
    xmax: int
    in_progress: frozenset[int]

    def sees(self, xid: int) -> bool:
        """Whether a committed transaction is visible."""
        return xid < self.xmin or (xid < self.xmax and xid not in self.in_progress)


@dataclass(frozen=True)
class Present:
    """Where the log ends, what can be seen, and the server with its timeline."""

    position: int
    snapshot: str
    server: str

    @property
    def next_xid(self) -> int:
        """The next transaction id, in 64 bits."""
        return snapshot_of(self.snapshot).xmax


def present(connection: Connection) -> Present:
    """The present. The position also covers commits that have not reached the disk yet."""
    row = connection.execute(
        "SELECT l.lsn::text, pg_current_snapshot()::text, s.system_identifier,"
        # The name of a log file begins with the timeline; the last checkpoint may not know of a new one yet.
        " left(pg_walfile_name(l.lsn), 8) FROM pg_control_system() s, pg_current_wal_insert_lsn() l(lsn)"
    ).fetchone()
    assert row is not None
    return Present(position_of(row[0]), row[1], f"{row[2]}/{int(row[3], 16)}")


def snapshot_text(connection: Connection) -> str:
    """The snapshot of the present transaction; in REPEATABLE READ, of all of it."""
    row = connection.execute("SELECT pg_current_snapshot()::text").fetchone()
    assert row is not None
    return str(row[0])


def snapshot_of(text: str) -> TransactionSnapshot:
    """The snapshot that PostgreSQL writes so: `xmin:xmax:xid,xid`."""
    xmin, xmax, running = text.split(":")
    return TransactionSnapshot(int(xmin), int(xmax), frozenset(int(xid) for xid in running.split(",") if xid))


def write_marker(connection: Connection) -> str:
    """Puts a marker into the log, on the disk when this returns; its position."""
    return _emit(connection, MARKER_PREFIX)


def nudge(connection: Connection) -> None:
    """Makes the server write its log out to here. A record that is cut in two holds up readers for long."""
    _emit(connection, _NUDGE_PREFIX)


def _emit(connection: Connection, prefix: str) -> str:
    row = connection.execute("SELECT pg_logical_emit_message(true, %s, '')::text", (prefix,)).fetchone()
    assert row is not None
    return str(row[0])


def read_point_of(snapshot: str, marker: str, server: str) -> str:
    """A read point as JSON text."""
    return json.dumps({"snapshot": snapshot, "marker": marker, "server": server})


def seen(read_point: str, source_txids: SourceTxids) -> Seen | None:
    """The versions that a reading saw; None while capture has not reached its marker."""
    stored = json.loads(read_point)
    captured = log_position_of(source_txids.log_position)
    if captured.server != stored["server"]:
        raise ReadPointLost(f"it was read from server {stored['server']}, and {captured.server} is captured")
    if captured.position < position_of(stored["marker"]):
        return None
    snapshot = snapshot_of(stored["snapshot"])
    recent = source_txids.since(snapshot.xmin)
    visible = [version for xid, version in recent.items() if snapshot.sees(xid)]
    upto = max([source_txids.latest(snapshot.xmin - 1), *visible])
    hidden = [version for xid, version in recent.items() if not snapshot.sees(xid) and version <= upto]
    return Seen(upto, frozenset(hidden))

"""What the server says about its binary log: how far it is written, which XA transactions are in doubt."""

from __future__ import annotations

import re
from typing import Any

from rollview.errors import CaptureRefused
from rollview.sources.mariadb.position import Position

Xid = tuple[int, bytes, bytes]
_XA = re.compile(r"XA (START|COMMIT|ROLLBACK) X'([0-9a-fA-F]*)',X'([0-9a-fA-F]*)',(-?\d+)")


def written_position(cursor: Any) -> Position:
    """The end of the binary log: all that has been committed lies before it."""
    cursor.execute("SHOW MASTER STATUS")
    row = cursor.fetchone()
    if row is None:
        raise CaptureRefused("the server writes no binary log", hint="run `rollview setup`")
    return Position(row[0], int(row[1]))


def snapshot_position(cursor: Any) -> Position:
    """The end of the last transaction that the connection's consistent snapshot sees."""
    cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
    found = {name.lower(): value for name, value in cursor.fetchall()}
    if not found.get("binlog_snapshot_file"):
        raise CaptureRefused("the server does not report what a snapshot sees", hint="run `rollview setup`")
    return Position(found["binlog_snapshot_file"], int(found["binlog_snapshot_position"]))


def in_doubt(cursor: Any) -> frozenset[Xid]:
    """The XA transactions that are prepared, or whose decision has not come into effect yet."""
    cursor.execute("XA RECOVER")
    found = set()
    for form, gtrid_bytes, bqual_bytes, data in cursor.fetchall():
        raw = data if isinstance(data, bytes) else data.encode("utf-8", "surrogateescape")
        found.add((int(form), raw[:gtrid_bytes], raw[gtrid_bytes : gtrid_bytes + bqual_bytes]))
    return frozenset(found)


def xa_events(cursor: Any, begin: Position, end: Position, most: int) -> list[tuple[str, Xid]] | None:
    """START, COMMIT and ROLLBACK of XA transactions between two places; None if that is too far."""
    if begin.file != end.file or end.offset - begin.offset > most:
        return None
    if begin.offset >= end.offset:
        return []
    cursor.execute("SHOW BINLOG EVENTS IN %s FROM %s", (begin.file, begin.offset))
    found = []
    for _, offset, kind, _, _, info in cursor.fetchall():
        text = info if isinstance(info, str) else info.decode(errors="replace")
        if offset < end.offset and kind in ("Gtid", "Query") and (match := _XA.match(text)):
            xid = (int(match[4]), bytes.fromhex(match[2]), bytes.fromhex(match[3]))
            found.append((match[1], xid))
    return found

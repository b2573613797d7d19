"""The server's identity and its binary log: how far it is written, and what it lacks."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollview.errors import CaptureRefused
from rollview.sources.mariadb.position import Position

Xid = tuple[int, bytes, bytes]
_USE = re.compile(r"use `(?:[^`]|``)*`; ")
_XA = re.compile(r"XA (START|COMMIT|ROLLBACK) X'([0-9a-fA-F]*)',X'([0-9a-fA-F]*)',(-?\d+)")
_SECOND_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class ServerState:
    """The identity of a server, its number of resets, and why its log may lack changes, if it may.

    `resets` grows with RESET MASTER, and with others that do no harm.
    """

    identity: str
    resets: int
    lacks: str


def server_identity(cursor: Any) -> str:
    """Which server this is. With a new address or host it is another one, although its log continues."""
    return _identity(_variables(cursor))


def server_state(cursor: Any, database: str) -> ServerState:
    """As it is now."""
    known = _variables(cursor)
    resets, replicas = _resets_and_replicas(cursor)
    return ServerState(_identity(known), resets, _lacks(cursor, database, known, replicas))


def _resets_and_replicas(cursor: Any) -> tuple[int, int]:
    cursor.execute("SHOW GLOBAL STATUS WHERE variable_name IN ('Com_reset', 'Slaves_running')")
    counted = {name.lower(): int(value) for name, value in cursor.fetchall()}
    return counted["com_reset"], counted["slaves_running"]


def _variables(cursor: Any) -> dict[str, str]:
    cursor.execute(
        "SHOW GLOBAL VARIABLES WHERE variable_name IN"
        " ('server_id', 'server_uid', 'hostname', 'port', 'log_bin', 'log_slave_updates')"
    )
    return {name.lower(): value for name, value in cursor.fetchall()}


def _identity(known: Mapping[str, str]) -> str:
    named = "/".join(known.get(name, "") for name in ("server_id", "server_uid", "hostname", "port"))
    return named.replace("@", "")


def _lacks(cursor: Any, database: str, known: Mapping[str, str], replicas: int) -> str:
    if known["log_bin"] not in ("ON", "1"):
        return "the server writes no binary log"
    if replicas and known["log_slave_updates"] not in ("ON", "1") and _is_still_replica(cursor):
        return "the server is a replica that does not log what it replicates (log_slave_updates is OFF)"
    cursor.execute("SHOW MASTER STATUS")
    _, _, only, ignored = cursor.fetchone()[:4]
    if only and database not in only.split(","):
        return f"the server logs only {only} (binlog_do_db)"
    if ignored and database in ignored.split(","):
        return f"the server does not log {database} (binlog_ignore_db)"
    return ""


def _is_still_replica(cursor: Any) -> bool:
    """A server that shuts down counts itself among the replicas, but does not answer a second time."""
    time.sleep(_SECOND_LOOK_SECONDS)
    _, replicas = _resets_and_replicas(cursor)
    return replicas > 0


def compares_names_in_any_case(cursor: Any) -> bool:
    """Whether `T` and `t` are the same table to the server."""
    cursor.execute("SELECT @@lower_case_table_names")
    ((setting,),) = cursor.fetchall()
    return bool(setting)


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


def knows_xa(cursor: Any) -> bool:
    """Whether anybody has prepared an XA transaction since the server started."""
    cursor.execute("SHOW GLOBAL STATUS LIKE 'Com_xa_prepare'")
    row = cursor.fetchone()
    return row is None or int(row[1]) > 0


def xa_events(cursor: Any, begin: Position, end: Position, most: int) -> list[tuple[str, Xid]] | None:
    """START, COMMIT and ROLLBACK of XA transactions between two places; None if that is too far."""
    events = _events(cursor, begin, end, most)
    if events is None:
        return None
    found = []
    for kind, text in events:
        if kind in ("Gtid", "Query") and (match := _XA.match(text)):
            xid = (int(match[4]), bytes.fromhex(match[2]), bytes.fromhex(match[3]))
            found.append((match[1], xid))
    return found


def statements(cursor: Any, begin: Position, end: Position, most: int) -> list[str] | None:
    """The statements between two places, without USE; None if that is too far."""
    events = _events(cursor, begin, end, most)
    if events is None:
        return None
    return [_USE.sub("", text) for kind, text in events if kind.startswith("Query")]


def _events(cursor: Any, begin: Position, end: Position, most: int) -> list[tuple[str, str]] | None:
    """Kind and text of the events between two places; None if that is too far."""
    if begin.file != end.file or end.offset - begin.offset > most:
        return None
    if begin.offset >= end.offset:
        return []
    cursor.execute("SHOW BINLOG EVENTS IN %s FROM %s", (begin.file, begin.offset))
    return [
        (kind, info if isinstance(info, str) else info.decode(errors="replace"))
        for _, offset, kind, _, _, info in cursor.fetchall()
        if offset < end.offset
    ]

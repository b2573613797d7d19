"""Events of the binary log: their forms, as bytes, taken apart as far as capture needs them.

https://mariadb.com/kb/en/replication-protocol/ describes each event.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

QUERY, ROTATE, FORMAT_DESCRIPTION, XID, TABLE_MAP, INCIDENT, XA_PREPARE = 2, 4, 15, 16, 19, 26, 38
GTID, QUERY_COMPRESSED, EXECUTE_LOAD_QUERY = 162, 165, 18
WRITTEN = frozenset({23, 30, 166, 169})
UPDATED = frozenset({24, 31, 167, 170})
DELETED = frozenset({25, 32, 168, 171})
ROWS = WRITTEN | UPDATED | DELETED
_SECOND_FORM = frozenset({30, 31, 32, 169, 170, 171})
_COMPRESSED_ROWS = frozenset(range(166, 172))
_HEADER = struct.Struct("<IBIIIH")
HEADER_BYTES = _HEADER.size
_CHECKSUM_BYTES = 4
_ARTIFICIAL = 0x20
_GTID = struct.Struct("<QIB")
_GROUP_COMMIT, _TRANSACTIONAL, _STANDALONE, _PREPARED_XA, _COMPLETED_XA = 2, 4, 1, 64, 128
_QUERY = struct.Struct("<IIBHH")
_ANSI_QUOTES, _NO_BACKSLASH_ESCAPES, _STRICT = 1 << 2, 1 << 20, 1 << 21 | 1 << 22
_CLIENT_CHARSET, _CATALOG = 4, 6
_STATUS_BYTES = {0: 4, 1: 8, 3: 4}


class Event(NamedTuple):
    """One event: kind, time, what follows its header, and where it ends; 0 if it is not in the log."""

    kind: int
    timestamp: int
    server: int
    end: int
    body: bytes


class Gtid(NamedTuple):
    """The beginning of a group of events. `xid` is set where the group prepares or decides an XA transaction.

    A *standalone* group is a single statement without a commit. One that is not `transactional` also changed
    tables that cannot be rolled back.
    """

    text: str
    standalone: bool
    transactional: bool
    prepares: bool
    decides: bool
    xid: tuple[int, bytes, bytes] | None


class LoggedStatement(NamedTuple):
    """A statement, the database that it was run in, and what of the session's `sql_mode` says how to read it.

    `strict`: values that do not fit were errors. `escapes`: a backslash in a text escapes what follows.
    `ansi_quotes`: double quotes are those of names.

    The server writes what it has put together itself in UTF-8, and everything else as the client sent it.
    So a text that is not ASCII is read in both ways: `as_sent` are the bytes, where `client` is the number
    of the client's collation.
    """

    text: str
    database: str = ""
    strict: bool = True
    escapes: bool = True
    ansi_quotes: bool = False
    as_sent: bytes = b""
    client: int = 0


def parse_event(packet: bytes, checksums: bool) -> Event:
    """An event as a dump sends it: a zero, the header, the body, perhaps a checksum."""
    timestamp, kind, server, _, end, flags = _HEADER.unpack_from(packet, 1)
    last = len(packet)
    if checksums or kind == ROTATE:
        last -= _CHECKSUM_BYTES
        if zlib.crc32(memoryview(packet)[1:last]) != int.from_bytes(packet[last:], "little"):
            # The server makes up rotations of its own, with or without a checksum.
            if kind == ROTATE:
                return Event(kind, timestamp, server, 0, packet[1 + HEADER_BYTES :])
            raise ValueError(f"an event of kind {kind} before {end} has a wrong checksum")
    return Event(kind, timestamp, server, 0 if flags & _ARTIFICIAL else end, packet[1 + HEADER_BYTES : last])


def has_checksums(packet: bytes) -> bool:
    """Whether the events after this format description end with a checksum; it always has one itself."""
    return packet[-_CHECKSUM_BYTES - 1] == 1


def parse_rotate(body: bytes) -> tuple[str, int]:
    """The file that follows, and where to begin in it."""
    return body[8:].decode(), int.from_bytes(body[:8], "little")


def parse_gtid(event: Event) -> Gtid:
    """The beginning of a group."""
    sequence, domain, flags = _GTID.unpack_from(event.body)
    xid = None
    if flags & (_PREPARED_XA | _COMPLETED_XA):
        at = _GTID.size + (8 if flags & _GROUP_COMMIT else 0)
        form = int.from_bytes(event.body[at : at + 4], "little", signed=True)
        middle = at + 6 + event.body[at + 4]
        xid = (form, event.body[at + 6 : middle], event.body[middle : middle + event.body[at + 5]])
    return Gtid(
        f"{domain}-{event.server}-{sequence}",
        bool(flags & _STANDALONE),
        bool(flags & _TRANSACTIONAL),
        bool(flags & _PREPARED_XA),
        bool(flags & _COMPLETED_XA),
        xid,
    )


def parse_query(event: Event) -> LoggedStatement:
    """A statement."""
    body = event.body
    _, _, database_bytes, _, status_bytes = _QUERY.unpack_from(body)
    begin = _QUERY.size
    if event.kind == EXECUTE_LOAD_QUERY:
        # The file that was loaded, and where its name is in the text.
        begin += 13
    status = body[begin : begin + status_bytes]
    begin += status_bytes
    end = begin + database_bytes
    text = body[end + 1 :]
    if event.kind == QUERY_COMPRESSED:
        text = _decompressed(text)
    mode, client = _sql_mode(status), _client_collation(status)
    return LoggedStatement(
        text.decode(errors="replace"),
        body[begin:end].decode(errors="replace"),
        strict=bool(mode & _STRICT),
        escapes=not mode & _NO_BACKSLASH_ESCAPES,
        ansi_quotes=bool(mode & _ANSI_QUOTES),
        as_sent=b"" if text.isascii() else text,
        client=client,
    )


def _sql_mode(status: bytes) -> int:
    """The session's `sql_mode` comes first, or second behind its flags."""
    at = 5 if status[:1] == b"\x00" else 0
    return int.from_bytes(status[at + 1 : at + 9], "little") if status[at : at + 1] == b"\x01" else 0


def _client_collation(status: bytes) -> int:
    """Behind flags, `sql_mode`, catalog and steps of AUTO_INCREMENT. 0 if it is missing."""
    at = 0
    while at < len(status) and status[at] != _CLIENT_CHARSET:
        kind = status[at]
        if kind == _CATALOG:
            at += 2 + status[at + 1]
        elif kind in _STATUS_BYTES:
            at += 1 + _STATUS_BYTES[kind]
        else:
            return 0
    return int.from_bytes(status[at + 1 : at + 3], "little")


def parse_rows(event: Event) -> tuple[bytes, int]:
    """A row event's data, not compressed, and the place of the number of columns in it."""
    body = event.body
    at = 8
    if event.kind in _SECOND_FORM:
        at += int.from_bytes(body[8:10], "little")
    if event.kind not in _COMPRESSED_ROWS:
        return body, at
    # The images follow the bitmaps of columns, of which an update has two.
    width, after = length_of(body, at)
    after += (width + 7) // 8 * (2 if event.kind in UPDATED else 1)
    return body[:after] + _decompressed(body[after:]), at


def _decompressed(data: bytes) -> bytes:
    """MariaDB's own wrapping: a byte with the algorithm and the size of the length, the length, the data."""
    if (data[0] & 0x70) >> 4 != 0:
        raise ValueError("an event is compressed in an unknown way")
    return zlib.decompress(data[1 + (data[0] & 0x07) :])


def length_of(data: bytes, at: int) -> tuple[int, int]:
    """A number of the protocol's variable length, and the place behind it."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size

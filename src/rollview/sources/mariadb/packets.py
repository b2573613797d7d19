"""MariaDB's client protocol below pymysql: packets as they come, for binary logs and for large results.

pymysql connects and authenticates. It reads one packet after the other through several layers of Python and
cannot give up waiting without losing its place, so the two things that must be fast or patient are here.
https://mariadb.com/kb/en/0-packet/ and https://mariadb.com/kb/en/result-set-packets/ describe the forms.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pymysql
from pymysql.err import raise_mysql_exception

_LONGEST_PACKET = 0xFFFFFF
_CHUNK_BYTES = 1 << 18
_OK, _EOF, _NULL = 0x00, 0xFE, 0xFB
_COM_QUERY = 0x03
_LENGTH_BYTES = {252: 2, 253: 3, 254: 8}
Row = tuple[bytes | None, ...]


class PacketReader:
    """The packets that a server sends on a connection after a command, some of them perhaps much later."""

    def __init__(self, connection: Any) -> None:
        # pymysql has no public name for its socket.
        self._socket = connection._sock
        self._data = b""
        self._at = 0

    def next(self, patience_seconds: float) -> bytes | None:
        """The next packet, or None if it did not come in time; it can then be asked for again."""
        # Mostly it has already been received.
        data, begin = self._data, self._at + 4
        length = (
            data[begin - 4] + (data[begin - 3] << 8) + (data[begin - 2] << 16) if len(data) >= begin else -1
        )
        if 0 <= length < _LONGEST_PACKET and len(data) >= begin + length:
            self._at = begin + length
            return data[begin : self._at]
        return self._received(patience_seconds)

    def _received(self, patience_seconds: float) -> bytes | None:
        deadline = time.monotonic() + patience_seconds
        parts: list[bytes] = []
        at = self._at
        while True:
            if not self._fill(at + 4, deadline):
                return None
            at -= self._shifted
            length = int.from_bytes(self._data[at : at + 3], "little")
            if not self._fill(at + 4 + length, deadline):
                return None
            at -= self._shifted
            body = self._data[at + 4 : at + 4 + length]
            at += 4 + length
            if length < _LONGEST_PACKET:
                self._at = at
                return b"".join((*parts, body)) if parts else body
            parts.append(body)

    def _fill(self, end: int, deadline: float) -> bool:
        """Receives until the buffer holds `end` bytes; says how far what it held has moved to the front."""
        self._shifted = 0
        if len(self._data) >= end:
            return True
        chunks, have = [self._data[self._at :]], len(self._data)
        self._shifted = self._at
        try:
            while have < end:
                # The full answer may be there already, so patience is at least a moment.
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                chunk = self._socket.recv(_CHUNK_BYTES)
                if not chunk:
                    raise ConnectionResetError("the server closed the connection")
                chunks.append(chunk)
                have += len(chunk)
        except TimeoutError:
            return False
        finally:
            self._data, self._at = b"".join(chunks), 0
        return True


def check(packet: bytes) -> bytes:
    """The packet, unless it reports an error."""
    if packet[:1] == b"\xff":
        raise_mysql_exception(packet)
    return packet


def select(connection: Any, query: str, patience_seconds: float) -> Iterator[Row]:
    """The rows of a query, each value as the text that the server sent; to be read to the end."""
    connection._execute_command(_COM_QUERY, query)
    reader = PacketReader(connection)
    first = _expect(reader, patience_seconds)
    if first[0] == _OK:
        return
    width = first[0] if first[0] < _NULL else int.from_bytes(first[1:3], "little")
    for _ in range(width + 1):
        _expect(reader, patience_seconds)
    while True:
        packet = _expect(reader, patience_seconds)
        if packet[0] == _EOF and len(packet) < 9:
            return
        yield _values(packet, width)


def _expect(reader: PacketReader, patience_seconds: float) -> bytes:
    packet = reader.next(patience_seconds)
    if packet is None:
        raise pymysql.err.OperationalError(2013, f"no answer in {patience_seconds:.0f} s")
    return check(packet)


def _values(packet: bytes, width: int) -> Row:
    values: list[bytes | None] = []
    at = 0
    for _ in range(width):
        length = packet[at]
        at += 1
        if length == _NULL:
            values.append(None)
            continue
        if length > _NULL:
            size = _LENGTH_BYTES[length]
            length = int.from_bytes(packet[at : at + size], "little")
            at += size
        values.append(packet[at : at + length])
        at += length
    return tuple(values)

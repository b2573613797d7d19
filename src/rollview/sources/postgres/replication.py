"""The connection that reads the log: PostgreSQL's streaming replication protocol, over libpq.

https://www.postgresql.org/docs/current/protocol-replication.html describes the messages. The server sends
what was committed in order of commit, each transaction in one piece. What it may forget it is told only by
`report`.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Callable

import psycopg
from psycopg import pq

from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import quote, text_literal
from rollview.sources.postgres.position import position_text
from rollview.sources.postgres.slot import GIDS_SINCE

MESSAGES_SINCE = 140000
"""From this version on the log tells messages that were put in it."""

KEEPALIVE = 0x6B
HEADER_BYTES = 25
"""Every piece of data begins with its kind, two positions and a time."""

_REPORT = struct.Struct(">c4QB")
_KEEPALIVE = struct.Struct(">cQQB")
_UNREADABLE: dict[str, type[psycopg.Error]] = {
    "42704": psycopg.errors.UndefinedObject,
    "58P01": psycopg.errors.UndefinedFile,
}
"""Errors in the middle of the log: there was no publication then, or the server has removed the file."""

_MICROSECONDS_TO_2000 = 946_684_800_000_000


class Replication:
    """An open stream, from a position on. All methods raise `psycopg.OperationalError` when it breaks."""

    def __init__(self, address: Address, start: int) -> None:
        self._address = address
        self._connection = pq.PGconn.connect(address.replication_conninfo.encode())
        self.received = start
        """How far the server has looked: it has sent every commit before this position."""
        if self._connection.status != pq.ConnStatus.OK:
            raise psycopg.OperationalError(_error(self._connection))
        version = self.version = self._connection.server_version
        publication = text_literal(quote(address.publication))
        options = f"publication_names {publication}, proto_version '{3 if version >= GIDS_SINCE else 1}'"
        options += ", messages 'true'" if version >= MESSAGES_SINCE else ""
        options += ", two_phase 'on'" if version >= GIDS_SINCE else ""
        command = f'START_REPLICATION SLOT "{address.slot}" LOGICAL {position_text(start)} ({options})'
        result = self._connection.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            state = result.error_field(pq.DiagnosticField.SQLSTATE) or b""
            self.close()
            if state == b"55006":
                raise psycopg.errors.ObjectInUse("the replication slot has another reader")
            raise psycopg.OperationalError(result.error_message.decode(errors="replace"))
        self._connection.nonblocking = 1
        self.next = self._reader()

    def _reader(self) -> Callable[[], bytes | None]:
        """What gives the next message, or None if there is none right now; called for every row."""
        connection = self._connection
        get = connection.get_copy_data

        def next_message() -> bytes | None:
            length, data = get(1)
            if length == 0:
                connection.consume_input()
                length, data = get(1)
            if length > 0:
                return bytes(data)
            if length == 0:
                return None
            raise _ended(connection)

        return next_message

    def wait(self, seconds: float) -> None:
        """Waits until there may be a message, but not longer than this."""
        select.select([self._connection.socket], [], [], max(seconds, 0.0))

    def look(self, message: bytes) -> None:
        """Takes note of a keepalive, and answers it if an answer is wanted."""
        _, received, _, wants_answer = _KEEPALIVE.unpack_from(message)
        self.received = max(self.received, received)
        if wants_answer:
            self.report(0)

    def report(self, confirmed: int, ask: bool = False) -> None:
        """Says that all before a position is kept safely (0: nothing new), and may ask for a sign of life.

        A server takes a position that is not after an earlier one for what it is: nothing new.
        """
        now = time.time_ns() // 1000 - _MICROSECONDS_TO_2000
        written = max(confirmed, self.received)
        self._connection.put_copy_data(_REPORT.pack(b"r", written, confirmed, confirmed, now, ask))
        while self._connection.flush():
            select.select([], [self._connection.socket], [], self._address.timeout)

    def close(self) -> None:
        """Ends the stream; the server keeps what was not confirmed."""
        self._connection.finish()


def _ended(connection: pq.abc.PGconn) -> psycopg.Error:
    """Why the server has ended the stream. Of what it cannot read any more it says so in its own way."""
    result = connection.get_result()
    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode() if result is not None else ""
    told = (
        (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode() if result is not None else ""
    )
    if state in _UNREADABLE:
        return _UNREADABLE[state](told)
    return psycopg.OperationalError(f"the server has ended the stream: {told or _error(connection)}")


def _error(connection: pq.abc.PGconn) -> str:
    return connection.error_message.decode(errors="replace").strip() or "the connection was lost"

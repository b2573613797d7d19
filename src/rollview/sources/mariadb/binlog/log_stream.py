"""The binary log as a stream of events, each with the place at which it ends.

The server sends what is there and then whatever is written. The stream stays open between two looks, and it
says None when nothing has come for a while.
"""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from typing import Any

import pymysql

from rollview.errors import LogLost, SourceFailed
from rollview.sources.mariadb.binlog import events
from rollview.sources.mariadb.binlog.events import Event
from rollview.sources.mariadb.binlog.server_log import server_identity
from rollview.sources.mariadb.connection import Server
from rollview.sources.mariadb.packets import PacketReader, check
from rollview.sources.mariadb.position import Position, first_mark
from rollview.sources.source import reload_hint

_COM_BINLOG_DUMP = 0x12
_FIRST_EVENT = 4
_KIND_AT = 5
_OWN_IDS = (1 << 31, (1 << 32) - 1)
_START_SECONDS = 10.0
_LARGEST_OFFSET = 0xFFFFFFFF


class LogStream:
    """An open dump; `server` is the identity of the server that sends it."""

    def __init__(self, server: Server, start: Position, server_id: int | None) -> None:
        self._server = server
        self._file, self._next_file = start.file, ""
        self._first_mark = first_mark(start.file)
        self._offset = self._created = 0
        self._checksums = False
        with server.explained():
            self._connection = server.connect()
            try:
                with self._connection.cursor() as cursor:
                    self.server = server_identity(cursor)
                self._reader = self._dump(start, server_id)
                self._begin(start)
            except BaseException:
                self.close()
                raise

    def _dump(self, start: Position, server_id: int | None) -> PacketReader:
        connection: Any = self._connection
        # Capability 4 means that GTID events are understood; otherwise the server hides them.
        connection.query("SET @mariadb_slave_capability = 4, @master_binlog_checksum = @@binlog_checksum")
        # Of two readers with one id the server ends the older one, so that each stream takes its own.
        number = random.randint(*_OWN_IDS) if server_id is None else server_id
        # A place beyond 4 GiB cannot be asked for: then the whole file comes, and most of it is skipped.
        offset = start.offset if start.offset <= _LARGEST_OFFSET else _FIRST_EVENT
        request = struct.pack("<IHI", max(offset, _FIRST_EVENT), 0, number) + start.file.encode()
        connection._execute_command(_COM_BINLOG_DUMP, request)
        return PacketReader(connection)

    def _begin(self, start: Position) -> None:
        """Takes the events that the server puts before the first one asked for."""
        while not self._created:
            if self._take(_START_SECONDS) is None:
                raise pymysql.err.OperationalError(2013, "the server sends no binary log")
        if start.created not in (0, self._created):
            raise LogLost(
                f"source {self._server.source}: {start.file} is not the file that was captured: the binary"
                " logs were reset, or this is a different server",
                subject=self._server.source,
                hint=reload_hint(self._server.source),
            )
        if start.offset <= _LARGEST_OFFSET:
            self._offset = max(self._offset, start.offset)

    def next(self, patience_seconds: float) -> Event | None:
        """The next event that is in the log; None if none came in time. The caller explains errors."""
        while (event := self._take(patience_seconds)) is not None:
            if event.end:
                return event
        return None

    @property
    def ordinal(self) -> int:
        """The end of the last event that was given out, as a number."""
        return self._first_mark + self._offset

    def position(self) -> Position:
        """The same as a place."""
        return Position(self._file, self._offset, self._created)

    def _take(self, patience_seconds: float) -> Event | None:
        packet = self._reader.next(patience_seconds)
        if packet is None:
            return None
        if packet[0] != 0:
            check(packet)
            raise pymysql.err.OperationalError(2013, "the server ended the binary log's stream")
        if packet[_KIND_AT] == events.FORMAT_DESCRIPTION:
            self._checksums = events.has_checksums(packet)
        try:
            event = events.parse_event(packet, self._checksums)
        except ValueError as error:
            message = f"source {self._server.source}: the binary log is damaged: {error}"
            raise SourceFailed(message, subject=self._server.source) from error
        if event.end:
            if self._next_file:
                self._enter(self._next_file)
            # Offsets are written with 32 bits, and grow.
            grown = (self._offset >> 32 << 32) + event.end
            self._offset = grown if grown >= self._offset else grown + (1 << 32)
        if event.kind == events.FORMAT_DESCRIPTION:
            self._created = event.timestamp
        elif event.kind == events.ROTATE and not event.end:
            # The server announces each file before its first event, which then says the file's age.
            file, _ = events.parse_rotate(event.body)
            self._next_file = "" if file == self._file else file
        return event

    def _enter(self, file: str) -> None:
        self._file = file
        self._first_mark = first_mark(file)
        self._offset = 0
        self._next_file = ""

    def close(self) -> None:
        with suppress(pymysql.err.Error, OSError):
            # Without a farewell, which the server would not read while it sends.
            self._connection._force_close()

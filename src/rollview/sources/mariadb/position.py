"""Places in the binary log.

Files are numbered, and offsets grow within a file, so places are ordered; a transaction's `source_txid` is
the place of its end as one number. `created` is the time at which the file was begun: after RESET MASTER
another file has the old name, and this distinguishes them. A place means something at one server only: what
is kept of it has the server's identity beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from pymysql.cursors import Cursor

from rollview.errors import InputError, PointError
from rollview.sources.source import not_captured

_OFFSET_BITS = 40


@lru_cache
def first_mark(file: str) -> int:
    """The number of a file's beginning."""
    return int(file.rpartition(".")[2]) << _OFFSET_BITS


@dataclass(frozen=True)
class Position:
    """A place between two events of a log file."""

    file: str
    offset: int
    created: int = 0

    @property
    def ordinal(self) -> int:
        """The place as a number that grows along the log."""
        return first_mark(self.file) + self.offset

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}:{self.created}"


@dataclass(frozen=True)
class LogPosition:
    """How far capture has looked, and where it must begin to read in order to continue from there.

    The two differ while a transaction is prepared but not decided: its rows were written at its PREPARE.
    `server` is the identity of the server, empty if it is not known.
    """

    reached: Position
    prepared: Position | None = None
    server: str = ""

    @property
    def start(self) -> Position:
        return self.prepared or self.reached

    def __str__(self) -> str:
        place = f"{self.reached}<{self.prepared}" if self.prepared else str(self.reached)
        return f"{place}@{self.server}" if self.server else place


@dataclass(frozen=True)
class ReadPoint:
    """The place of the last transaction that a reading saw, and the server that was read."""

    position: Position
    server: str

    def is_in(self, log: LogPosition) -> bool:
        """Whether the place lies in the log that was captured, as far as that was captured.

        A server that took the place of another, or has reset its log, restarts the numbers of its places. Its
        file was begun later than one that was captured with a greater number.
        """
        if log.server not in ("", self.server) or log.reached.ordinal < self.position.ordinal:
            return False
        if self.position.file == log.reached.file:
            return log.reached.created in (0, self.position.created)
        return log.reached.created == 0 or self.position.created <= log.reached.created

    def __str__(self) -> str:
        return f"{self.position}@{self.server}"


def parse_position(text: str) -> Position:
    """The inverse of `str`."""
    try:
        file, offset, created = text.rsplit(":", 2)
        position = Position(file, int(offset), int(created))
        assert position.ordinal > 0
    except (ValueError, AssertionError):
        raise InputError(f"not a valid binary log position: {text}", subject=text) from None
    return position


def parse_log_position(text: str) -> LogPosition:
    """The inverse of `str`."""
    place, server = _split(text)
    reached, _, prepared = place.partition("<")
    return LogPosition(parse_position(reached), parse_position(prepared) if prepared else None, server)


def parse_read_point(text: str) -> ReadPoint:
    """The inverse of `str`."""
    place, server = _split(text)
    return ReadPoint(parse_position(place), server)


def _split(text: str) -> tuple[str, str]:
    """A place and the identity behind it, in which there is no `@`."""
    place, at, server = text.rpartition("@")
    return (place, server) if at else (text, "")


# Positions as the users of a MariaDB server name them: GTIDs, and places in the binary log.


_GTID = re.compile("([0-9]+)-[0-9]+-([0-9]+)")
_PLACE = re.compile(r"(\S+\.[0-9]+):([0-9]+)")


def gtid_numbers(text: str) -> dict[str, int] | None:
    """For each domain of a list of GTIDs the number in it; None if it is no such list."""
    found = [_GTID.fullmatch(each.strip()) for each in text.split(",")]
    if not all(found):
        return None
    return {match[1]: int(match[2]) for match in found if match}


def includes(numbers: Mapping[str, int], gtid: str) -> bool:
    """Whether the transaction of a GTID is not behind those of a list, in its domain."""
    match = _GTID.fullmatch(gtid)
    return match is not None and int(match[2]) <= numbers.get(match[1], -1)


def check_gtids(cursor: Cursor, source: str, text: str, reached: Position) -> None:
    """Refuses GTIDs that the server had not written yet where capture has come to."""
    cursor.execute("SELECT BINLOG_GTID_POS(%s, %s)", (reached.file, reached.offset))
    row = cursor.fetchone()
    written = gtid_numbers(row[0]) if row and row[0] else None
    wanted = gtid_numbers(text) or {}
    if written is None:
        hint = f"a place in the binary log, such as {source}:{reached.file}:{reached.offset}"
        message = f"source {source} no longer knows which GTIDs have been captured"
        raise PointError(message, subject=text, hint=hint)
    if any(number > written.get(domain, 0) for domain, number in wanted.items()):
        raise not_captured(source, text, row[0] if row else "")


def place_reached(source: str, text: str, captured: str) -> int:
    """The place in the binary log that a text names, which must not lie behind what was captured."""
    match = _PLACE.fullmatch(text.strip())
    reached = parse_log_position(captured).reached
    if match is None or match[1].rpartition(".")[0] != reached.file.rpartition(".")[0]:
        hint = f"a GTID such as {source}:0-1-42, or a place such as {source}:{reached.file}:{reached.offset}"
        raise PointError(f"`{text}` is not a position of source {source}", subject=text, hint=hint)
    place = Position(match[1], int(match[2])).ordinal
    if place > reached.ordinal:
        raise not_captured(source, text, f"{reached.file}:{reached.offset}")
    return place

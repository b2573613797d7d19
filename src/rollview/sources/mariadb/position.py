"""Places in the binary log.

Files are numbered, and offsets grow within a file, so places are ordered; a transaction's mark is the place
of its end as one number. `created` is the time at which the file was begun: after RESET MASTER another file
has the old name, and this tells them apart. A place means something at one server only: what is kept of it
has the server's identity beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rollview.errors import InputError

_OFFSET_BITS = 40


@lru_cache
def first_mark(file: str) -> int:
    """The mark of a file's beginning."""
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
    """How far capture has looked, and where it must begin to read in order to go on from there.

    The two differ while a transaction is prepared but not decided: its rows were written at its PREPARE.
    `server` is the identity of the server, empty if it is not known.
    """

    reached: Position
    prepared: Position | None = None
    server: str = ""

    @property
    def start(self) -> Position:
        """Where reading begins."""
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

        A server that took the place of another, or has reset its log, numbers its places anew. Its file was
        begun later than one that was captured with a greater number.
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

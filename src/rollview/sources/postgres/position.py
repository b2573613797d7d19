"""Positions in the server's log, and the log positions that are made of them.

A log position is a position before which every commit has been captured. Where transactions were prepared
before it and not yet finished, it also says where to begin reading, so that they are met again. A position
means something in one history only, so the server and its timeline are named, too: a backup that is restored,
or a standby that is promoted, begins another one. `0/1A2B3C4 from 0/1A00000 at 7708596515208679467/1`: no
state needs to be kept but the log position.
"""

from __future__ import annotations

from typing import NamedTuple


def position_of(text: str) -> int:
    """A position (LSN) as a number."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def position_text(position: int) -> str:
    """The number as PostgreSQL writes it."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


class LogPosition(NamedTuple):
    """All commits before `position` are captured; reading goes on from `start`, which is not after it.

    `server` is the system identifier and the timeline.
    """

    position: int
    start: int
    server: str

    def __str__(self) -> str:
        start = "" if self.start == self.position else f" from {position_text(self.start)}"
        return f"{position_text(self.position)}{start} at {self.server}"


def log_position_of(text: str) -> LogPosition:
    """The inverse of `str`."""
    place, _, server = text.partition(" at ")
    position, _, start = place.partition(" from ")
    return LogPosition(position_of(position), position_of(start or position), server)

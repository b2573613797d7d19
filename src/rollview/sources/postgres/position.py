"""Positions in the server's log, and the log positions that are made of them.

A log position is a position before which every commit has been captured. Where transactions were prepared
before it and not yet finished, it also says where to begin reading, so that they are met again:
`0/1A2B3C4 from 0/1A00000`. So no state needs to be kept but the log position.
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
    """All commits before `position` are captured; reading goes on from `start`, which is not after it."""

    position: int
    start: int

    def __str__(self) -> str:
        text = position_text(self.position)
        return text if self.start == self.position else f"{text} from {position_text(self.start)}"


def log_position_of(text: str) -> LogPosition:
    """The inverse of `str`."""
    position, _, start = text.partition(" from ")
    return LogPosition(position_of(position), position_of(start or position))

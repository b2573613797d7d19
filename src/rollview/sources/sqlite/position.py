"""A log position: the counter up to which capture has looked, and the stamp of what was there.

A database that was restored from a backup and written since may have come to the same counter by another way.
So a log position also says what was found at its counter: the time in the record of that number, or the token
that was left there when a capture began. As long as the source has not let go of it, it must be the same.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LogPosition:
    """A counter and its stamp; the stamp is empty where there was nothing to take it from."""

    counter: int
    stamp: str = ""

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        """The log position from its text."""
        counter, _, stamp = text.partition("@")
        return cls(int(counter), stamp)

    def __str__(self) -> str:
        return f"{self.counter}@{self.stamp}" if self.stamp else str(self.counter)

"""The papers' two scales: how consistent a view is, and how far a transaction reaches."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Level(IntEnum):
    """The levels of zhuge1996 §4.2; each includes the ones below it."""

    NONE = 0
    CONVERGENCE = 1
    WEAK = 2
    STRONG = 3
    COMPLETE = 4

    def __str__(self) -> str:
        return self.name.lower()


class Scenario(StrEnum):
    """The transaction scenarios of zhuge1996 §3.1, in order of scope."""

    SINGLE_UPDATE = "single-update"
    SOURCE_LOCAL = "source-local"
    GLOBAL = "global"

"""A process of a beyer2000 run: a generator, suspended at an effect, and how its steps are described."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from rollview.algebra.bag import MemoryBag
from rollview.algorithms.beyer2000.ipda_effects import (
    AcquireWrite,
    Apply,
    Insert,
    InsertCommitRecord,
    PassLock,
    ReadClock,
    ReadCommitRecords,
    ReadDelta,
    RecordsOf,
    ReleaseWrite,
)
from rollview.simulator.ipda.world import Statement


@dataclass(frozen=True, slots=True)
class Update:
    """The transaction locks items and changes base rows. Result: what that does to each view."""

    statement: Statement


@dataclass(frozen=True, slots=True)
class LockRows:
    """The transaction locks rows of a stored view, to change them at its commit; it may have to wait."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CommitTransaction:
    """The transaction commits."""


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Reads what transactions that committed at after < time ≤ upto did to a view, as their log tells."""

    view: str
    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class PresentTime:
    """Asks for the last time that is over: base tables can be read as of then. Result: that time."""

    view: str


@dataclass(frozen=True, slots=True)
class Recompute:
    """Computes a view from its base tables as of a time, in place of what is stored.

    `records` is what transactions have done to it since, for whoever judges: nothing of it is used.
    """

    view: str
    records: MemoryBag
    upto: int


VERBS: Mapping[type, str] = {
    Update: "update",
    LockRows: "lock rows",
    ReadLog: "read",
    PresentTime: "present",
    Insert: "insert",
    AcquireWrite: "lock",
    ReadClock: "clock",
    InsertCommitRecord: "record",
    ReleaseWrite: "unlock",
    CommitTransaction: "commit",
    PassLock: "pass",
    ReadDelta: "read",
    ReadCommitRecords: "read",
    RecordsOf: "retrieve",
    Apply: "apply",
    Recompute: "recompute",
}
"""What a step is called in schedules and stories."""


class Process:
    """A generator, the effect that it waits for, and what it has been told so far."""

    def __init__(self, name: str, node: int, steps: Generator[Any, Any, None]) -> None:
        self.name = name
        self.node = node
        self.told: list[object] = []
        self.commit_time: int | None = None
        self._steps = steps
        self.effect: Any = next(steps, None)

    def go_on(self, result: object) -> None:
        """Sends the result of the effect and takes the next one; None at the end."""
        self.told.append(_digest(result))
        try:
            self.effect = self._steps.send(result)
        except StopIteration:
            self.effect = None

    def end(self, how: str) -> None:
        """The process stops where it is."""
        self.told.append(how)
        self._steps.close()
        self.effect = None


def describe(effect: Any, result: Any) -> str:
    """What a step did, for the story."""
    match effect:
        case ReadClock():
            return f"→ {result}"
        case Insert(view, rows, timestamp):
            at = "" if timestamp is None else f" at {timestamp}"
            return f"{rows} into Δ{view}{at}"
        case InsertCommitRecord(table, timestamp):
            return f"{timestamp} into {table}"
        case AcquireWrite(tables) | ReleaseWrite(tables):
            return ", ".join(tables)
        case PassLock(_, upto) | Apply(upto=upto) | Recompute(upto=upto):
            return f"upto {upto}"
        case LockRows(items):
            return ", ".join(items)
        case PresentTime():
            return f"as of {result}"
        case ReadLog(_, after, upto):
            return f"({after}, {upto}] → {result}"
        case ReadDelta(_, after, upto, _) | ReadCommitRecords(_, after, upto):
            return f"({after}, {'∞' if upto is None else upto}] → {result}"
    return ""


def _digest(result: object) -> object:
    """A result as something that can be compared and hashed."""
    if isinstance(result, MemoryBag):
        return frozenset(result.counts.items())
    if isinstance(result, tuple):
        return tuple(_digest(each) for each in result)
    return result

"""The four policies of beyer2000 §1 in one database: what a transaction does besides, and how a view follows.

| policy | inside the transaction | later |
|---|---|---|
| snapshot | nothing | the view is computed from its base tables |
| immediate | rows of the stored view are locked and, at the commit, changed | nothing |
| ipda | the view delta is stored, with a commit record (Algorithm 2) | it is found and applied |
| dpda | nothing; the log has what was changed | the view delta is made from the log, and applied |

This tries out storing and finding, and who waits for whom. Propagation is tried elsewhere.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rollview.algebra.bag import column_getter
from rollview.algebra.net_effect import in_order
from rollview.algebra.view import View
from rollview.algorithms.beyer2000 import ipda
from rollview.algorithms.beyer2000.ipda_effects import (
    AcquireWrite,
    Apply,
    AwaitClock,
    Insert,
    InsertCommitRecord,
    PassLock,
    ReadClock,
    ReadCommitRecords,
    ReadDelta,
    RecordsOf,
    RefreshTime,
    ReleaseWrite,
)
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.simulator.database_worlds import Statement, UpdateTransaction


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
    """Reads what transactions that committed at after < time ≤ upto did to a view, from their log."""

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
"""The names of steps in schedules and stories."""


class Process:
    """A generator, the effect that it waits for, and what it has received so far."""

    def __init__(self, name: str, node: int, steps: Generator[Any, Any, None]) -> None:
        self.name = name
        self.node = node
        self.received: list[object] = []
        self.commit_time: int | None = None
        self._steps = steps
        self.effect: Any = next(steps, None)

    def resume(self, result: object) -> None:
        """Sends the result of the effect and takes the next one; None at the end."""
        self.received.append(_digest(result))
        try:
            self.effect = self._steps.send(result)
        except StopIteration:
            self.effect = None

    def end(self, how: str) -> None:
        """The process stops where it is."""
        self.received.append(how)
        self._steps.close()
        self.effect = None


def describe(effect: Any, result: Any) -> str:
    """A line of the story for a step."""
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


Steps = Generator[Any, Any, None]
Deltas = tuple[tuple[str, MemoryBag], ...]


class Policy(StrEnum):
    """When a view delta is made, and when it is applied."""

    SNAPSHOT = "snapshot"
    IMMEDIATE = "immediate"
    IPDA = "ipda"
    DPDA = "dpda"


def transaction_steps(
    policy: Policy, variant: ipda.Variant, transaction: UpdateTransaction, views: Sequence[View]
) -> Steps:
    """A transaction with what the policy makes it do."""
    touched: list[str] = []
    by_name = {view.name: view for view in views}
    for statement in transaction.statements:
        deltas: Deltas = yield Update(statement)
        touched += [view for view, _ in deltas]
        if policy is Policy.IMMEDIATE and (items := _rows(by_name, deltas)):
            yield LockRows(items)
        if policy is Policy.IPDA:
            yield from ipda.store_view_delta(variant, deltas)
    if policy is Policy.IPDA:
        yield from ipda.record_commit(variant, touched)
    yield CommitTransaction()


def refresh_steps(policy: Policy, variant: ipda.Variant, view: View, upto: int) -> Steps:
    """A refresh of a view to a time; an immediate view is always there."""
    if policy is Policy.IPDA:
        yield from ipda.apply(variant, view, upto)
    if policy in (Policy.IPDA, Policy.IMMEDIATE):
        return
    after: int = yield RefreshTime(view.name)
    if upto <= after:
        return
    yield AwaitClock(upto)
    if policy is Policy.SNAPSHOT:
        # It can only be computed as of now.
        upto = yield PresentTime(view.name)
    records: MemoryBag = yield ReadLog(view.name, after, upto)
    if policy is Policy.SNAPSHOT:
        yield Recompute(view.name, records, upto)
        return
    yield Apply(view.name, in_order(view.root, view.root.net_effect(records)), records, upto)


def _rows(views: dict[str, View], deltas: Deltas) -> tuple[str, ...]:
    """The rows of stored views that deltas change: the groups, or the rows themselves."""
    found = []
    for name, rows in deltas:
        root = views[name].root
        key_of = column_getter(rows.columns, root.key or root.state_columns)
        found += [f"{name} {list(key_of(row))}" for row in rows.counts]
    return tuple(dict.fromkeys(found))

"""Immediate propagate, deferred apply: how view deltas are stored by transactions and found again by apply.

**Source.** beyer2000 §4: Algorithm 1 (§4), the IPDA lock (§4.2), commit records and the commit table
(§4.5), one clock (§4.7), Algorithm 2 (§4.8). Net effect: §5, in `algebra/net_effect.py`.

**Guarantees.** Algorithm 2 with the IPDA lock and one clock, with commit records or with the commit
table: all six properties of §3, so views refreshed to one time are consistent with each other (Theorem
1). Algorithm 1 is here for teaching and is not `selectable`: it loses updates; with the lock it no
longer does, but transactions are still torn between views and reordered.

**Assumes.** Strict two-phase locking of base tables; one apply process at a time for a view; delta
records are never changed, and never pruned while a view needs them; one clock that never runs backwards.

**Symbols.** ΔV → the delta table, called by its view's name; t1 → `after`; t2 → `upto`; xids → a bag of
`_xid`.

**Deviations.**
- Algorithm 2, Step 1, takes the IPDA read lock on ΔV. With the commit table, the record that a reader
  can miss is in that table, so both sides lock it and not ΔV; otherwise updates are lost as in §4.1.
- §4.2 describes the fine-grained lock for one insertion with a clock reading of its own. Commit records
  of one transaction share a reading, so all their tables are locked before it and each is released after
  its insertion. Locks taken insertion by insertion would come after the reading, and protect nothing.
- A lock and the time associated with it are one step. If the clock is remote (§4.7), the lock must be
  there before the clock is asked, and let no reader pass until the time is known.
- Property 6 is meant for the assigned commit time, as Lemma 5 says in parentheses: a transaction that
  has read the clock and not yet committed is in the view at that time, although it was not committed
  then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from rollview.algebra.bag import Bag, keep
from rollview.algebra.expression import Column
from rollview.algebra.net_effect import in_order
from rollview.algebra.view import View
from rollview.algorithms.beyer2000.ipda_effects import (
    COMMIT_TABLE,
    XID,
    AcquireWrite,
    Apply,
    ApplyProcess,
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
    Writer,
)

B = TypeVar("B", bound=Bag)


class Timing(StrEnum):
    """Which times are stored, and where."""

    RECORDS = "the time of writing, on every record"
    COMMIT_RECORDS = "the commit time, as a commit record in every delta table touched"
    COMMIT_TABLE = "the commit time, in the commit table"


class Granularity(StrEnum):
    """How a writer holds the IPDA lock: not at all, for a whole statement, or for each insertion."""

    NONE = "no lock"
    COARSE = "coarse lock"
    FINE = "fine lock"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to store and find view deltas."""

    name: str
    timing: Timing
    lock: Granularity
    one_clock: bool = True

    @property
    def selectable(self) -> bool:
        """Whether it may serve real views: Algorithm 2 with all that its proof needs."""
        return self.timing is not Timing.RECORDS and self.lock is not Granularity.NONE and self.one_clock


def _variants(number: int, timing: Timing, where: str) -> list[Variant]:
    name = f"algorithm {number}{where}"
    return [
        *(Variant(f"{name}, {lock.value}", timing, lock) for lock in Granularity),
        Variant(f"{name}, {Granularity.COARSE.value}, several clocks", timing, Granularity.COARSE, False),
    ]


VARIANTS = {
    variant.name: variant
    for variant in (
        *_variants(1, Timing.RECORDS, ""),
        *_variants(2, Timing.COMMIT_RECORDS, " with commit records"),
        *_variants(2, Timing.COMMIT_TABLE, " with the commit table"),
    )
}
"""Algorithm 1 as printed is the one without a lock; the others show what each part of the cure is for."""


def store_view_delta(variant: Variant, deltas: Sequence[tuple[str, Bag]]) -> Writer:
    """Inserts what one statement did to each view, inside the statement's transaction."""
    if variant.timing is not Timing.RECORDS:
        for view, rows in deltas:
            yield Insert(view, rows, None)
        return
    views = tuple(view for view, _ in deltas)
    if variant.lock is Granularity.COARSE and views:
        yield AcquireWrite(views)
    for view, rows in deltas:
        if variant.lock is Granularity.FINE:
            yield AcquireWrite((view,))
        timestamp: int = yield ReadClock()
        yield Insert(view, rows, timestamp)
        if variant.lock is Granularity.FINE:
            yield ReleaseWrite((view,))
    if variant.lock is Granularity.COARSE and views:
        yield ReleaseWrite(views)


def record_commit(variant: Variant, touched: Sequence[str]) -> Writer:
    """Writes the commit records, after all of the transaction's work and before it commits (§4.5)."""
    if variant.timing is Timing.RECORDS or not touched:
        return
    tables = tuple(dict.fromkeys(commit_records_in(variant, view) for view in touched))
    if variant.lock is not Granularity.NONE:
        yield AcquireWrite(tables)
    timestamp: int = yield ReadClock()
    for table in tables:
        yield InsertCommitRecord(table, timestamp)
        if variant.lock is Granularity.FINE:
            yield ReleaseWrite((table,))
    if variant.lock is Granularity.COARSE:
        yield ReleaseWrite(tables)


def commit_records_in(variant: Variant, view: str) -> str:
    """The table that has the commit records for a view: its delta table, or the commit table."""
    return COMMIT_TABLE if variant.timing is Timing.COMMIT_TABLE else view


def lets_pass(writers: Iterable[int], upto: int) -> bool:
    """The rule of the IPDA lock: a reader passes if every writer took its lock after all that it reads."""
    return all(taken > upto for taken in writers)


def apply(variant: Variant, view: View, upto: int) -> ApplyProcess:
    """Rolls a view to a time that has passed; a view that is already there stays."""
    after: int = yield RefreshTime(view.name)
    if upto <= after:
        return
    yield AwaitClock(upto)
    if variant.lock is not Granularity.NONE:
        yield PassLock(commit_records_in(variant, view.name), upto)
    if variant.timing is Timing.RECORDS:
        yield from _initial_steps(view, after, upto)
    else:
        yield from _corrected_steps(view, commit_records_in(variant, view.name), after, upto)


def _initial_steps(view: View, after: int, upto: int) -> ApplyProcess:
    """Algorithm 1: the last record of a transaction is taken for its commit."""
    # Step 1: the transactions that wrote in the window, all of them committed.
    window: Bag = yield ReadDelta(view.name, after, upto, read_locks=True)
    xids = window.distinct([XID])
    # Step 2: those that continued past its end are left for a later refresh.
    later: Bag = yield ReadDelta(view.name, upto, None, read_locks=False)
    xids = _without(xids, later.distinct([XID]))
    # Step 3.
    yield from _retrieve_and_apply(view, xids, upto)


def _corrected_steps(view: View, table: str, after: int, upto: int) -> ApplyProcess:
    """Algorithm 2, behind its Step 1, the lock."""
    # Step 2: the transactions with a commit time in the window.
    commits: Bag = yield ReadCommitRecords(table, after, upto)
    # Step 3.
    yield from _retrieve_and_apply(view, commits.distinct([XID]), upto)


def _retrieve_and_apply(view: View, xids: Bag, upto: int) -> ApplyProcess:
    """Step 3 of both: all records of these transactions, whenever they were written, at once."""
    records: Bag = yield RecordsOf(view.name, xids)
    net = view.root.net_effect(records)
    yield Apply(view.name, in_order(view.root, net), records, upto)


def _without(xids: B, others: B) -> B:
    """The transactions of the first bag that are not in the second."""
    renamed = others.project([(f"{XID}'", Column(XID))])
    both = xids.join(renamed, [(XID, f"{XID}'")]).project(keep([XID]))
    return xids.plus(both.negate()).net_effect()

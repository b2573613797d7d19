"""The six properties of beyer2000 §3, judged on a finished run, each with a witness if it fails.

The checker knows nothing of timestamps, locks or schedules. It sees which records were applied to which
view at which refresh, what became of every transaction, and what readers saw; views are computed from
scratch.

A transaction is *in* a state of a view if a record of it has been applied, *wholly in* it if every record
of it has been applied once. Real time is preserved if every transaction has an effective commit time,
between its last lock and its commit (Lemma 3), such that it is wholly in exactly the states that were rolled
to that time or a later one. Together with the contents this implies the five other properties, as the paper
says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import combinations

from rollview.algebra.bag import column_getter
from rollview.algebra.expression import Row
from rollview.algorithms.beyer2000.ipda import VARIANTS, Variant
from rollview.algorithms.beyer2000.ipda_effects import XID
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.memory.evaluate import evaluate
from rollview.lab.simulator.database_simulation import explore
from rollview.lab.simulator.database_worlds import IpdaRun, IpdaWorld, every_example
from rollview.lab.simulator.world import first_state, make_changes


class Property(StrEnum):
    """The properties that §3 requires of an implementation."""

    NO_LOST_UPDATES = "no lost updates"
    NO_REDUNDANT_UPDATES = "no redundant updates"
    ATOMIC_PER_VIEW = "atomic in a view"
    ATOMIC_ACROSS_VIEWS = "atomic across views"
    NO_REORDERING = "no reordering"
    REAL_TIME = "real time preserved"


@dataclass(frozen=True)
class Witness:
    """A run that misses a property: the world and the choices that lead there, and what is wrong."""

    world: IpdaWorld
    choices: tuple[int, ...]
    reason: str


Findings = Mapping[Property, str]
"""The properties that a run misses, each with the reason."""


def check_ipda(run: IpdaRun) -> Findings:
    """Judges one run."""
    judged = _Judged(run)
    found = {judge: next(reasons(judged), "") for judge, reasons in _JUDGES.items()}
    return {missed: reason for missed, reason in found.items() if reason}


def ipda_spectrum(
    variants: Mapping[str, Variant] = VARIANTS, worlds: tuple[IpdaWorld, ...] | None = None
) -> dict[str, dict[Property, Witness | None]]:
    """For each variant and property a run that misses it, or None if it held over all schedules."""
    return {name: _row(variant, worlds or every_example()) for name, variant in variants.items()}


def _row(variant: Variant, worlds: tuple[IpdaWorld, ...]) -> dict[Property, Witness | None]:
    row: dict[Property, Witness | None] = dict.fromkeys(Property)
    for world in worlds:
        for run in explore(world, variant):
            for missed, reason in check_ipda(run).items():
                row[missed] = row[missed] or Witness(world, run.choices, reason)
    return row


@dataclass(frozen=True)
class _State:
    """A view after a refresh: for each transaction the records applied so far."""

    view: str
    upto: int
    applied: Mapping[str, MemoryBag]
    contents: MemoryBag

    def has(self, xid: str) -> bool:
        return xid in self.applied


class _Judged:
    """A run with its states and the order of its transactions worked out."""

    def __init__(self, run: IpdaRun) -> None:
        self.run = run
        self.views = {view.name: view for view in run.world.views}
        self.committed = {xid: fate for xid, fate in run.fates.items() if fate.committed}
        self.states = tuple(self._states())

    def _states(self) -> Iterator[_State]:
        applied: dict[str, dict[str, MemoryBag]] = {view: {} for view in self.views}
        for refreshed in self.run.refreshed:
            so_far = dict(applied[refreshed.view])
            for xid, records in _per_transaction(refreshed.records).items():
                so_far[xid] = so_far[xid].plus(records) if xid in so_far else records
            applied[refreshed.view] = so_far
            yield _State(refreshed.view, refreshed.upto, so_far, refreshed.contents)

    def touching(self, view: str) -> Iterator[tuple[str, MemoryBag]]:
        """The committed transactions that wrote records for a view, with these."""
        for xid, fate in self.committed.items():
            if view in fate.written:
                yield xid, fate.written[view]

    @cached_property
    def follows(self) -> dict[str, set[str]]:
        """The transactions that each comes after, directly or not; these have all ended before it."""
        closed: dict[str, set[str]] = {}
        for xid, fate in self.run.fates.items():
            closed[xid] = set(fate.follows).union(*(closed[other] for other in fate.follows))
        return closed

    def behind(self, state: _State) -> set[str]:
        """The transactions applied, and those before them that left the view as it was."""
        before = set().union(*(self.follows.get(xid, ()) for xid in state.applied))
        return {*state.applied, *(xid for xid in before if state.view not in self.committed[xid].written)}


def contents_after(world: IpdaWorld, view: str, transactions: Collection[str]) -> MemoryBag:
    """The reader's rows after exactly these transactions, computed from scratch."""
    state = first_state(world.initial)
    done = (each for each in world.transactions if each.name in transactions)
    statements = (statement for transaction in done for statement in transaction.statements)
    make_changes(state, (change for statement in statements for change in statement.changes))
    return evaluate(next(each for each in world.views if each.name == view).root, state)


def _per_transaction(records: MemoryBag) -> dict[str, MemoryBag]:
    xid_of = column_getter(records.columns, [XID])
    parts: dict[str, dict[Row, int]] = {}
    for row, count in records.counts.items():
        parts.setdefault(xid_of(row)[0], {})[row] = count
    return {xid: MemoryBag(records.columns, counts) for xid, counts in parts.items()}


def _lost(judged: _Judged) -> Iterator[str]:
    last = {state.view: state for state in judged.states}
    for view in judged.views:
        for xid, written in judged.touching(view):
            applied = last[view].applied.get(xid) if view in last else None
            if applied is None or any(row not in applied.counts for row in written.counts):
                yield f"{xid} committed, and records of it never reach {view}{_because(judged)}"


def _redundant(judged: _Judged) -> Iterator[str]:
    for state in judged.states:
        for xid, written in judged.touching(state.view):
            applied = state.applied.get(xid)
            if applied and any(abs(applied.counts.get(row, 0)) > abs(n) for row, n in written.counts.items()):
                yield f"{state.view} at {state.upto} has a record of {xid} more than once"


def _torn(judged: _Judged) -> Iterator[str]:
    for state in judged.states:
        for xid, written in judged.touching(state.view):
            if state.has(xid) and set(state.applied[xid].counts) != set(written.counts):
                yield f"{state.view} at {state.upto} has some records of {xid} and not all"


def _torn_between_views(judged: _Judged) -> Iterator[str]:
    for one, other in combinations(judged.states, 2):
        earlier, later = (one, other) if one.upto <= other.upto else (other, one)
        pairs = [(earlier, later)] if earlier.upto < later.upto else [(one, other), (other, one)]
        for having, lacking in pairs:
            both = dict(judged.touching(having.view)).keys() & dict(judged.touching(lacking.view)).keys()
            for xid in sorted(both) if having.view != lacking.view else ():
                if having.has(xid) and not lacking.has(xid):
                    yield (
                        f"{having.view} at {having.upto} has {xid}, {lacking.view} at {lacking.upto} does not"
                    )


def _reordered(judged: _Judged) -> Iterator[str]:
    for state in judged.states:
        touching = dict(judged.touching(state.view))
        for later in touching:
            for earlier in sorted(judged.follows[later] & touching.keys()):
                if state.has(later) and not state.has(earlier):
                    yield f"{state.view} at {state.upto} has {later} without {earlier}, which it follows"


def _untimely(judged: _Judged) -> Iterator[str]:
    if judged.run.stopped:
        yield judged.run.stopped
    for state in judged.states:
        written = dict(judged.touching(state.view))
        for xid, applied in state.applied.items():
            if xid not in written:
                yield f"{state.view} at {state.upto} has records of {xid}, which never committed"
            elif applied != written[xid]:
                yield f"{state.view} at {state.upto} does not have {xid} exactly once"
        if state.contents != contents_after(judged.run.world, state.view, judged.behind(state)):
            yield f"{state.view} at {state.upto} shows {state.contents}, which is not what was applied"
    for xid, fate in judged.committed.items():
        states = [state for state in judged.states if xid in dict(judged.touching(state.view))]
        without = [state.upto for state in states if not state.has(xid)]
        having = [state.upto for state in states if state.has(xid)]
        earliest = max([fate.locked_at, *(time + 1 for time in without)])
        latest = min([fate.committed_at, *having])
        if earliest > latest:
            yield (
                f"{xid} got its last lock at {fate.locked_at} and committed at {fate.committed_at}, but views"
                f" rolled to {having or 'no time'} have it and views rolled to {without or 'no time'} do not"
            )


def _because(judged: _Judged) -> str:
    return f": {judged.run.stopped}" if judged.run.stopped else ""


_JUDGES: Mapping[Property, Callable[[_Judged], Iterator[str]]] = {
    Property.NO_LOST_UPDATES: _lost,
    Property.NO_REDUNDANT_UPDATES: _redundant,
    Property.ATOMIC_PER_VIEW: _torn,
    Property.ATOMIC_ACROSS_VIEWS: _torn_between_views,
    Property.NO_REORDERING: _reordered,
    Property.REAL_TIME: _untimely,
}

"""One database with delta tables: it serves the effects of beyer2000's processes, or says that they must
wait.

Base tables are locked strictly, item by item. A statement's view deltas are found by computing the views
from scratch before and after it: propagation is not what is tried out here, storing and finding is. The
stored views have a unique index where the view has a key, and a row that is not there cannot be deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from rollview.algebra.bag import column_getter
from rollview.algebra.expression import Row
from rollview.algebra.history import Change
from rollview.algebra.net_effect import in_order
from rollview.algebra.valid_time import ValidTime, ended, of_refreshed
from rollview.algebra.view import View
from rollview.algorithms.beyer2000.ipda import lets_pass
from rollview.algorithms.beyer2000.ipda_effects import TIMESTAMP, XID, Apply, ReadCommitRecords, ReadDelta
from rollview.errors import CorruptView
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.memory.evaluate import evaluate_blocks
from rollview.lab.simulator.world import first_state, make_changes

Deltas = tuple[tuple[str, MemoryBag], ...]


@dataclass(frozen=True)
class Fate:
    """The fate of a transaction.

    `follows` are the transactions it comes after: they committed before it began, or before it got a lock
    that they had held. `locked_at` and `committed_at` are true times: of its last lock, and of its commit.
    `written` has its records per view, with their timestamps; it is empty if it did not commit.
    """

    committed: bool
    follows: frozenset[str]
    locked_at: int
    committed_at: int
    commit_time: int | None
    written: Mapping[str, MemoryBag]


NEVER_COMMITTED = Fate(False, frozenset(), 0, 0, None, {})


@dataclass(frozen=True)
class Refreshed:
    """A state that a view was rolled to: the records applied, and what readers see from then on."""

    view: str
    upto: int
    records: MemoryBag
    contents: MemoryBag


@dataclass
class _Open:
    """A transaction under way."""

    follows: set[str] = field(default_factory=set)
    began: bool = False
    locked_at: int = 0
    changes: list[Change] = field(default_factory=list)


class Database:
    """Base tables, delta tables, commit records, stored views, and all locks."""

    def __init__(self, views: Iterable[View], initial: Mapping[str, Iterable[Row]], clock: Callable[[], int]):
        self.views = {view.name: view for view in views}
        self._clock = clock
        self._initial = first_state(initial)
        self._base = {name: dict(rows) for name, rows in self._initial.items()}
        self._committed: list[tuple[int, list[Change]]] = []
        self._blocks = {
            name: tuple(evaluate_blocks(view.root, self._base)) for name, view in self.views.items()
        }
        self._states = {
            name: view.root.state_of(iter(self._blocks[name])) for name, view in self.views.items()
        }
        self._records: dict[str, list[tuple[str, int | None, MemoryBag]]] = {name: [] for name in self.views}
        self._commit_records: dict[str, list[tuple[str, int]]] = {}
        self._items: dict[str, str] = {}
        self._released: dict[str, set[str]] = {}
        self._writers: dict[str, dict[str, int]] = {}
        self._open: dict[str, _Open] = {}
        self.fates: dict[str, Fate] = {}
        self.refresh_times = dict.fromkeys(self.views, 0)
        self.shown = {name: [(ValidTime(0), self._presented(name))] for name in self.views}
        self.refreshed: list[Refreshed] = []

    def holders(self, xid: str, items: Iterable[str]) -> set[str]:
        """The other transactions that hold these items."""
        return {self._items[item] for item in items if self._items.get(item, xid) != xid}

    def update(self, xid: str, items: Iterable[str], changes: tuple[Change, ...]) -> Deltas:
        """Locks items, changes base rows, and finds what that does to each view."""
        transaction = self._open.setdefault(xid, _Open())
        if not transaction.began:
            transaction.began = True
            transaction.follows.update(name for name, fate in self.fates.items() if fate.committed)
        for item in items:
            self._items[item] = xid
            transaction.follows.update(self._released.get(item, ()))
        transaction.locked_at = self._clock()
        transaction.changes += changes
        return self._change(changes)

    def _change(self, changes: Sequence[Change]) -> Deltas:
        make_changes(self._base, changes)
        changed = {change.table for change in changes}
        deltas = []
        for name, view in self.views.items():
            if changed.isdisjoint(table.qualified for table in view.tables):
                continue
            before, after = self._blocks[name], tuple(evaluate_blocks(view.root, self._base))
            self._blocks[name] = after
            changes_of = [new.plus(old.negate()) for old, new in zip(before, after, strict=True)]
            if not all(each.is_empty() for each in changes_of):
                lifted = [view.root.lift(number, each) for number, each in enumerate(changes_of)]
                deltas.append((name, view.root.net_effect(reduce(MemoryBag.plus, lifted))))
        return tuple(deltas)

    def lock(self, xid: str, items: Iterable[str]) -> None:
        """Locks more items, such as rows of a stored view."""
        for item in items:
            self._items[item] = xid
            self._open[xid].follows.update(self._released.get(item, ()))

    def acquire(self, xid: str, tables: Iterable[str], time: int) -> None:
        """A writer takes the IPDA lock of these tables."""
        for table in tables:
            self._writers.setdefault(table, {})[xid] = time

    def release(self, xid: str, tables: Iterable[str]) -> None:
        for table in tables:
            self._writers[table].pop(xid, None)

    def lets_pass(self, table: str, upto: int) -> bool:
        return lets_pass(self._writers.get(table, {}).values(), upto)

    def insert(self, xid: str, view: str, rows: MemoryBag, timestamp: int | None) -> None:
        """Records go into a delta table, uncommitted."""
        self._records[view].append((xid, timestamp, rows))

    def insert_commit_record(self, xid: str, table: str, timestamp: int) -> None:
        """A commit record goes into its table, uncommitted."""
        self._commit_records.setdefault(table, []).append((xid, timestamp))

    def commit(self, xid: str, commit_time: int | None) -> None:
        """Everything of the transaction becomes visible; all its locks go."""
        transaction = self._open[xid]
        self._committed.append((self._clock(), transaction.changes))
        written: dict[str, MemoryBag] = {}
        for view, records in self._records.items():
            own = [record for record in records if record[0] == xid]
            if not (bag := self._bag(view, own)).is_empty():
                written[view] = bag
                if commit_time is not None:
                    self._end_valid_time(view, commit_time)
        self._end(
            xid,
            Fate(
                True,
                frozenset(transaction.follows),
                transaction.locked_at,
                self._clock(),
                commit_time,
                written,
            ),
        )

    def apply_at_once(self, xid: str, time: int) -> None:
        """A transaction has changed stored views, too: they show it from its commit on."""
        for view, own in self.fates[xid].written.items():
            root = self.views[view].root
            # Of one time there is one state, the last.
            before = [each for each in self.refreshed if each.view == view and each.upto == time]
            self.refreshed = [each for each in self.refreshed if each not in before]
            records = reduce(MemoryBag.plus, (each.records for each in before), own)
            self.apply(Apply(view, in_order(root, root.net_effect(own)), records, time))

    def read_log(self, view: str, after: int, upto: int) -> MemoryBag:
        """The delta of a view by transactions that committed in a window."""
        own = [fate for fate in self.fates.values() if fate.committed and after < fate.committed_at <= upto]
        bags = [fate.written[view] for fate in own if view in fate.written]
        return reduce(MemoryBag.plus, bags, self._bag(view, []))

    def abort(self, xid: str) -> None:
        """Everything of the transaction is rolled back; all its locks go."""
        transaction = self._open[xid]
        self._change([Change(change.table, change.row, -change.count) for change in transaction.changes])
        for records in self._records.values():
            records[:] = [record for record in records if record[0] != xid]
        for commits in self._commit_records.values():
            commits[:] = [commit for commit in commits if commit[0] != xid]
        self._end(xid, NEVER_COMMITTED)

    def _end(self, xid: str, fate: Fate) -> None:
        self.fates[xid] = fate
        del self._open[xid]
        for item in [item for item, holder in self._items.items() if holder == xid]:
            del self._items[item]
            if fate.committed:
                self._released.setdefault(item, set()).add(xid)
        self.release_all(xid)

    def release_all(self, xid: str) -> None:
        """At the end of a transaction no IPDA lock of it remains, however it ended (§4.2)."""
        self.release(xid, list(self._writers))

    def must_wait(self, read: ReadDelta | ReadCommitRecords) -> bool:
        """Whether a read with read locks meets what an open transaction has written."""
        if isinstance(read, ReadCommitRecords):
            found = {xid for xid, time in self._commit_records.get(read.table, ()) if _within(read, time)}
        else:
            found = (
                {xid for xid, time, _ in self._records[read.view] if _within(read, time)}
                if read.read_locks
                else set()
            )
        return not found.isdisjoint(self._open)

    def read_delta(self, read: ReadDelta) -> MemoryBag:
        """The records of a delta table in a window."""
        return self._bag(
            read.view, [record for record in self._records[read.view] if _within(read, record[1])]
        )

    def read_commit_records(self, read: ReadCommitRecords) -> MemoryBag:
        """The transactions with a commit record in a window."""
        commits = self._commit_records.get(read.table, ())
        return MemoryBag.of((XID,), [(xid,) for xid, time in commits if _within(read, time)])

    def records_of(self, view: str, xids: MemoryBag) -> MemoryBag:
        """The records of these transactions, committed or not."""
        return self._bag(view, [record for record in self._records[view] if (record[0],) in xids.counts])

    def apply(self, effect: Apply[Any]) -> None:
        """Applies the pieces under the view's constraints, and moves its refresh time."""
        view = self.views[effect.view]
        state = self._states[view.name]
        for piece in effect.pieces:
            state = view.root.roll(state, piece)
            check_integrity(view, state)
        self._show(view, state, effect.records, effect.upto)

    def recompute(self, name: str, records: MemoryBag, upto: int) -> None:
        """Computes a view from its base tables as they were at a time."""
        tables = {table: dict(rows) for table, rows in self._initial.items()}
        for time, changes in self._committed:
            if time <= upto:
                make_changes(tables, changes)
        view = self.views[name]
        self._show(view, view.root.state_of(evaluate_blocks(view.root, tables)), records, upto)

    def _show(self, view: View, state: MemoryBag, records: MemoryBag, upto: int) -> None:
        """Readers see a state of the view from now on, which is the one of this time."""
        self._states[view.name] = state
        self.refresh_times[view.name] = upto
        later = (fate.commit_time for fate in self.fates.values() if view.name in fate.written)
        valid = of_refreshed(upto, [time for time in later if time is not None])
        contents = self._presented(view.name)
        self._end_valid_time(view.name, upto)
        self.shown[view.name].append((valid, contents))
        self.refreshed.append(Refreshed(view.name, upto, records, contents))

    def _end_valid_time(self, view: str, time: int) -> None:
        valid, contents = self.shown[view][-1]
        self.shown[view][-1] = (ended(valid, time), contents)

    def _presented(self, view: str) -> MemoryBag:
        return self.views[view].root.present(self._states[view])

    def _bag(self, view: str, records: Iterable[tuple[str, int | None, MemoryBag]]) -> MemoryBag:
        columns = (*self.views[view].root.state_columns, XID, TIMESTAMP)
        pairs = [((*row, xid, time), n) for xid, time, rows in records for row, n in rows.counts.items()]
        return MemoryBag.of_pairs(columns, pairs)


def _within(read: ReadDelta | ReadCommitRecords, time: int | None) -> bool:
    return time is not None and read.after < time and (read.upto is None or time <= read.upto)


def check_integrity(view: View, state: MemoryBag) -> None:
    """The constraints of a stored view: no row less than zero times, no key twice."""
    for row, count in state.counts.items():
        if count < 0:
            raise CorruptView(f"{list(row)} is deleted from {view.name}, where it is not", subject=view.name)
    key = view.root.row_key
    if key is None:
        return
    key_of = column_getter(state.columns, key)
    seen: set[Row] = set()
    for row, count in state.counts.items():
        if count > 1 or key_of(row) in seen:
            raise CorruptView(f"{list(key_of(row))} occurs twice in {view.name}", subject=view.name)
        seen.add(key_of(row))

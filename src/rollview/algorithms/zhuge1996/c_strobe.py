"""C-Strobe (Complete Strobe): the view moves with every update, without waiting for a quiet moment.

**Source.** zhuge1996 §6, Algorithm 3, Examples 5 and 6; the periodic extension at the end of §6.

**Guarantees.** Complete in the single-update scenario; `periodic(k)` is strong there. Neither knows
transactions, so both only converge in the other two scenarios.

**Assumes.** What Strobe assumes.

**Symbols.** holding queue → `HoldingQueue.waiting`; U_i → the batch taken from it; Delta →
`compensated_delta`; MV → the stored view.

**Deviations.** The order of updates is the order of arrival, so a state shows exactly the versions whose
updates have been processed, and claims them. `periodic(k)` takes up to k updates out of the queue at once
(fewer if no more are waiting, or the last ones would never show), nets insertions that were deleted again, as
T-Strobe does, and compensates all of their queries for what was received after the batch. The paper would
begin with the first ones before the k-th has arrived; the states shown are of the same kind. Deletions are
applied with key_delete as in the algorithm; the examples write key_delete*, which comes to the same on MV.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from rollview.algebra.bag import Bag
from rollview.algebra.history import Change, Transaction
from rollview.algebra.view import View
from rollview.algorithms.effects import Install, Process, Receive, Spawn, Stored
from rollview.algorithms.key_delete import key_delete, without_duplicates
from rollview.algorithms.zhuge1996.compensating_query import HeldUpdate, compensated_delta
from rollview.algorithms.zhuge1996.update_list import (
    StateVector,
    by_relation,
    deletions,
    insertions,
    without_pairs,
)


@dataclass(frozen=True)
class Unit:
    """What becomes one state of the view: an update, or all updates of a transaction.

    `whole`: the transaction ends with it.
    """

    updates: tuple[HeldUpdate, ...]
    transaction: Transaction
    whole: bool


@dataclass
class HoldingQueue:
    """Units in order of arrival that have not been processed. At most one process works on it."""

    view: View
    most: int
    versions: StateVector
    waiting: deque[Unit] = field(default_factory=deque)
    received: int = 0
    busy: bool = False

    def hold(self, changes: list[Change], transaction: Transaction, whole: bool) -> None:
        """Puts updates that belong together at the end."""
        updates = tuple(HeldUpdate(self.received + n, change) for n, change in enumerate(changes, 1))
        self.received += len(updates)
        self.waiting.append(Unit(updates, transaction, whole))

    def take(self) -> list[Change]:
        """The updates of the next units, at most `most` of them."""
        changes: list[Change] = []
        for _ in range(min(self.most, len(self.waiting))):
            unit = self.waiting.popleft()
            self.versions.take(unit.transaction, unit.whole)
            changes += [update.change for update in unit.updates]
        return changes

    def held(self) -> list[HeldUpdate]:
        """All updates that were received after those taken."""
        return [update for unit in self.waiting for update in unit.updates]


def processes(view: View) -> Iterator[Process]:
    """One process receives, another one works while something is held."""
    return _processes(1, view)


def periodic(updates: int) -> Callable[[View], Iterator[Process]]:
    """The processes of the variant that updates MV once for so many updates."""
    return partial(_processes, updates)


def _processes(most: int, view: View) -> Iterator[Process]:
    yield receive(HoldingQueue(view, most, StateVector.of(view)), one_by_one)


def one_by_one(queue: HoldingQueue, transaction: Transaction) -> None:
    """Every update is a unit of its own."""
    for number, change in enumerate(transaction.changes, 1):
        queue.hold([change], transaction, whole=number == len(transaction.changes))


def receive(queue: HoldingQueue, hold: Callable[[HoldingQueue, Transaction], None]) -> Process:
    """As updates arrive, they are placed in the holding queue."""
    while True:
        transaction: Transaction = yield Receive()
        hold(queue, transaction)
        if not queue.busy:
            queue.busy = True
            yield Spawn(work(queue))


def work(queue: HoldingQueue) -> Process:
    """Processes what is held in order of arrival, and shows a state for each, also one that is the same."""
    block = queue.view.blocks[0]
    while queue.waiting:
        updates = without_pairs(block, queue.take())
        deleted = yield from by_relation(block, deletions(updates))
        inserted = yield from by_relation(block, insertions(updates))
        delta: Bag | None = None
        if inserted:
            delta = yield from compensated_delta(block, inserted, queue.held)
        view: Bag = yield Stored(queue.view.name)
        for relation, rows in deleted.items():
            view = key_delete(block, view, relation, rows)
        if delta is not None:
            view = without_duplicates(view, delta.project(block.projection))
        yield Install(queue.view.name, view, queue.versions.claim())
    queue.busy = False

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
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rollview.algebra.bag import Bag, column_getter
from rollview.algebra.expression import Row
from rollview.algebra.history import Change, Transaction
from rollview.algebra.node import Block
from rollview.algebra.view import View
from rollview.algorithms.effects import Compensated, Effect, Install, Process, Receive, RowsOf, Spawn, Stored
from rollview.algorithms.key_delete import (
    attributes_read,
    key_delete,
    key_delete_star,
    unprojected,
    without_duplicates,
)
from rollview.algorithms.source_evaluate import source_evaluate
from rollview.algorithms.zhuge1996.update_list import (
    StateVector,
    by_relation,
    deletions,
    insertions,
    without_pairs,
)

# Compensating queries: what an insertion adds to the view at the moment right after it, found out later.
#
# **Source.** zhuge1996 §6, Algorithm 3 (the loop), and the grouping of queries by base relation.
#
# **Guarantees.** Delta is V⟨U_i⟩ over the source states right after U_i, whatever committed since.
#
# **Assumes.** As Strobe. By the order of messages, an update that an answer shows was received before it.
#
# **Symbols.** U_i → `inserted`; Q_{i,j,k} → `Query`; U_j → `Query.since`; Q⟨U_p⟩ → the same with one more
# relation known; A_{i,j,k} → `answer`; Delta → `delta`, of unprojected tuples (`key_delete.unprojected`).
#
# **Deviations.** Which insertions to subtract: the condition speaks of an earlier deletion of "the same
# tuple". §5.3 defines that by key alone; then [1, 2] deleted and [1, 5] inserted under one key would leave
# [1, 5] in Delta, although only [1, 2] was there. It must mean the same in all attributes, as key_delete*
# does: a tuple that was first inserted had not been there, one that was first deleted had.
#
# Deletions of one base relation share a query, and U_j then is the earliest of them; some combinations are
# found twice, and duplicates are dropped. The paper's bound of (n − 1)! queries counts one level of the
# recursion only. All levels together are at most (n − 1) + (n − 1)(n − 2) + … + (n − 1)!/1!, the last level
# being answered at the warehouse: 2 for n = 3, but 9 and not 6 for n = 4.

Held = Sequence["HeldUpdate"]
Rows = Generator[Effect, Any, Bag]
Order = tuple[int, int]


@dataclass(frozen=True)
class HeldUpdate:
    """An update with its number in the order of arrival."""

    number: int
    change: Change


@dataclass(frozen=True)
class Query:
    """V with some relations replaced: one by what was inserted, the others by deleted tuples.

    `since` is the update and relation that it compensates for; only what follows can interfere with it.
    """

    known: Mapping[int, Bag]
    since: Order = (0, 0)


def compensated_delta(block: Block, inserted: Mapping[int, Bag], held: Callable[[], Held]) -> Rows:
    """Delta for inserted tuples; `held` gives the updates received after them, in order, so far."""
    whole = unprojected(block)
    delta: Bag | None = None
    unanswered = deque(Query({relation: rows}) for relation, rows in inserted.items())
    while unanswered:
        query = unanswered.popleft()
        answer = yield from source_evaluate(whole, query.known)
        delta = answer if delta is None else without_duplicates(delta, answer)
        if len(query.known) > 1:
            yield Compensated(answer)
        unanswered.extend((yield from _compensating(whole, query, held())))
    assert delta is not None, "there is at least one inserted tuple"
    return (yield from _subtract_insertions(whole, delta, held()))


def _compensating(block: Block, query: Query, held: Held) -> Generator[Effect, Any, list[Query]]:
    """Q⟨U_p⟩ for all deletions U_p received between U_j and the answer, one for each base relation of Q."""
    queries = []
    for position, relation in enumerate(block.relations):
        if position in query.known:
            continue
        interfering = [
            update
            for update in held
            if update.change.count < 0
            and update.change.table == relation.table.qualified
            and (update.number, position) > query.since
        ]
        if interfering:
            tuples = dict.fromkeys(update.change.row for update in interfering)
            rows: Bag = yield RowsOf(relation.columns, tuple((row, 1) for row in tuples), relation)
            since = (interfering[0].number, position)
            queries.append(Query({**query.known, position: rows}, since))
    return queries


def _subtract_insertions(block: Block, delta: Bag, held: Held) -> Rows:
    """key_delete*(Delta, U_k) for all insertions U_k of tuples that had not been there before."""
    for position, relation in enumerate(block.relations):
        tuples = first_inserted(block, position, held)
        if tuples:
            rows: Bag = yield RowsOf(relation.columns, tuple((row, 1) for row in tuples), relation)
            rest = key_delete_star(block, delta, position, rows)
            yield Compensated(delta.plus(rest.negate()))
            delta = rest
    return delta


def first_inserted(block: Block, position: int, held: Held) -> list[Row]:
    """Tuples of a relation whose insertion was not preceded by a deletion of the same tuple."""
    relation = block.relations[position]
    attributes = column_getter(relation.columns, attributes_read(block, position))
    deleted: set[Row] = set()
    inserted: list[Row] = []
    for update in held:
        if update.change.table != relation.table.qualified:
            continue
        if update.change.count < 0:
            deleted.add(attributes(update.change.row))
        elif attributes(update.change.row) not in deleted:
            inserted.append(update.change.row)
    return inserted


@dataclass(frozen=True)
class Unit:
    """The unit that becomes one state of the view: an update, or all updates of a transaction.

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

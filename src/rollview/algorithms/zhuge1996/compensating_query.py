"""Compensating queries: what an insertion adds to the view at the moment right after it, found out later.

**Source.** zhuge1996 §6, Algorithm 3 (the loop), and the grouping of queries by base relation.

**Guarantees.** Delta is V⟨U_i⟩ over the source states right after U_i, whatever committed since.

**Assumes.** As Strobe. By the order of messages, an update that an answer shows was received before it.

**Symbols.** U_i → `inserted`; Q_{i,j,k} → `Query`; U_j → `Query.since`; Q⟨U_p⟩ → the same with one more
relation known; A_{i,j,k} → `answer`; Delta → `delta`, of unprojected tuples (`key_delete.unprojected`).

**Deviations.** Which insertions to subtract: the condition speaks of an earlier deletion of "the same tuple".
§5.3 defines that by key alone; then [1, 2] deleted and [1, 5] inserted under one key would leave [1, 5] in
Delta, although only [1, 2] was there. It must mean the same in all attributes, as key_delete* does: a tuple
that was first inserted had not been there, one that was first deleted had.

Deletions of one base relation share a query, and U_j then is the earliest of them; some combinations are
found twice, and duplicates are dropped. The paper's bound of (n − 1)! queries counts one level of the
recursion only. All levels together are at most (n − 1) + (n − 1)(n − 2) + … + (n − 1)!/1!, the last level
being answered at the warehouse: 2 for n = 3, but 9 and not 6 for n = 4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollview.algebra.bag import Bag, column_getter
from rollview.algebra.block import Block
from rollview.algebra.expression import Row
from rollview.algebra.history import Change
from rollview.algorithms.effects import Compensated, Effect, RowsOf
from rollview.algorithms.key_delete import attributes_read, key_delete_star, unprojected, without_duplicates
from rollview.algorithms.source_evaluate import source_evaluate

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

"""ECA, the eager compensating algorithm: every query also compensates for what open ones will see too much.

**Source.** Zhuge, Garcia-Molina, Hammer, Widom, SIGMOD 1995, which zhuge1996 §1, §2 and Figure 2 compare
with. That text is not among the project's papers; the steps are as the literature gives them.
**Guarantees.** Strong for single-update and source-local transactions of one source on a fifo network; so
also if they are parts of global ones, as only one source's state shows in the view.
**Assumes.** All relations are at one source, messages of which arrive in the order they were sent; a query
is answered at one state of the source, so the visible versions are a prefix of its commits. No keys.
**Symbols.** U_i → a position and its ΔR; Q_i → a tuple of `Term`; Q⟨U⟩ → `substitute`; UQS → `unanswered`;
COLLECT → `collected`.
**Deviations.**

- Q_i has several terms, which the paper has evaluated at one state. A question here holds one term, so each
  term is a query of its own in UQS and is compensated on its own. As compensation is linear, Q⟨U⟩ is the
  sum over the terms of Q, this changes no result: where Q_j is unanswered as a whole, so are all its terms,
  and where it is half answered, exactly the other half sees U. It costs messages, not rounds.
- Terms without a relation left are evaluated at the warehouse: no state of the source changes them.
- A transaction's changes to one relation are one U; all its U are in UQS before any answer can be taken.
- When UQS is empty, the view shows exactly the versions received, and claims them.
- Where the join graph is not connected, its parts are asked for in the same question, so that a query still
  is one event at the source. On several sources there is no such event: that is why they are refused.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from rollview.algebra.bag import Bag
from rollview.algebra.history import Transaction
from rollview.algebra.join_graph import SubQuery, access_path
from rollview.algebra.node import Block
from rollview.algebra.view import View
from rollview.algorithms.effects import (
    Compensated,
    Effect,
    Install,
    Process,
    Receive,
    RowsOf,
    Spawn,
    Stored,
)
from rollview.algorithms.source_evaluate import Rounds, Steps, join_known, relation_deltas, source_evaluate
from rollview.algorithms.zhuge1996.update_list import StateVector


def refusal(view: View) -> str:
    """Why a view cannot be served; empty if it can."""
    if view.block is None:
        return "it maintains select-project-join views only"
    if len({table.source for table in view.tables}) > 1:
        return "its relations are at several sources, which cannot answer a query at one state"
    return ""


def processes(view: View) -> Iterator[Process]:
    """One process that takes updates as they arrive; each term's query runs beside it."""
    yield maintain(view)


@dataclass(frozen=True, eq=False)
class Term:
    """The view with ΔR in place of the relations at these positions, counted +1 or −1 times."""

    sign: int
    replaced: Mapping[int, Bag]


@dataclass(eq=False)
class Maintenance:
    """The control state that the processes of a view share."""

    collected: Bag
    versions: StateVector
    unanswered: list[Term] = field(default_factory=list)


def maintain(view: View) -> Process:
    """On each update: sends V⟨U⟩ less what the unanswered queries will see of U."""
    block = view.blocks[0]
    nothing: Bag = yield RowsOf(block.output_columns, ())
    state = Maintenance(nothing, StateVector.of(view))
    while True:
        transaction: Transaction = yield Receive()
        state.versions.take(transaction)
        deltas = yield from relation_deltas(block, transaction)
        terms = [
            term
            for position, delta in deltas.items()
            for term in receive_update(block, state, position, delta)
        ]
        for term in terms:
            yield Spawn(query(view, state, term))
        yield from install_when_quiet(view, state)


def receive_update(block: Block, state: Maintenance, position: int, delta: Bag) -> tuple[Term, ...]:
    """Q_i, of which the terms with a relation left are unanswered from now on; the others are known."""
    compensating = substitute(tuple(state.unanswered), position, delta)
    terms = (Term(1, {position: delta}), *(replace(term, sign=-term.sign) for term in compensating))
    complete = [term for term in terms if len(term.replaced) == len(block.relations)]
    for term in complete:
        collect(state, term, join_known(block, term.replaced).project(block.projection))
    asked = tuple(term for term in terms if term not in complete)
    state.unanswered.extend(asked)
    return asked


def substitute(terms: tuple[Term, ...], position: int, delta: Bag) -> tuple[Term, ...]:
    """Q⟨U⟩: the terms that still read U's relation, with U in its place; the others do not see U."""
    return tuple(
        Term(term.sign, {**term.replaced, position: delta}) for term in terms if position not in term.replaced
    )


def query(view: View, state: Maintenance, term: Term) -> Process:
    """One term's query; when its answer is in, it is collected."""
    answer = yield from evaluate_at_source(view.blocks[0], term.replaced)
    state.unanswered.remove(term)
    collect(state, term, answer)
    if len(term.replaced) > 1:
        yield Compensated(answer)
    yield from install_when_quiet(view, state)


def collect(state: Maintenance, term: Term, answer: Bag) -> None:
    """COLLECT + A, with the term's sign."""
    signed = answer if term.sign > 0 else answer.negate()
    state.collected = state.collected.plus(signed).net_effect()


def install_when_quiet(view: View, state: Maintenance) -> Generator[Effect, Any, None]:
    """When UQS is empty, MV becomes MV + COLLECT, and COLLECT is empty again."""
    if state.unanswered:
        return
    collected = state.collected
    state.collected = yield RowsOf(view.blocks[0].output_columns, ())
    stored: Bag = yield Stored(view.name)
    yield Install(view.name, stored.plus(collected).net_effect(), state.versions.claim())


def evaluate_at_source(block: Block, replaced: Mapping[int, Bag]) -> Steps:
    """A query answered at one state of its source, projected."""
    return source_evaluate(block, replaced, single_event(block, *replaced))


@lru_cache(maxsize=1024)
def single_event(block: Block, *replaced: int) -> Rounds:
    """The access path in which a source that would be asked twice in a row is asked once."""
    rounds: list[tuple[SubQuery, ...]] = []
    for sub_queries in access_path(block, *replaced).rounds:
        asked = [sub_query.source for sub_query in (*rounds[-1], *sub_queries)] if rounds else []
        if len(asked) == 2 and asked[0] == asked[1]:
            rounds[-1] = (_joined(rounds[-1][0], sub_queries[0]),)
        else:
            rounds.append(sub_queries)
    return tuple(rounds)


def _joined(first: SubQuery, second: SubQuery) -> SubQuery:
    """Both sub-queries as one; a parent that the first one reaches is no longer shipped to the second."""
    reached = {join_step.relation for join_step in first.join_steps}
    more = (
        replace(join_step, shipped=False) if join_step.parent in reached else join_step
        for join_step in second.join_steps
    )
    return SubQuery(first.source, (*first.join_steps, *more))

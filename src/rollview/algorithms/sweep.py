"""The sweep: rollview's default algorithm.

**Source.** salem2000 equation 2, taken per transaction (the telescoping sum), with one interval per
relation (§3.4) and the high-water mark (§3.3); sub-queries along the join graph from sze2000 report §4.1;
compensation by `align`, which is sze2000's Theorem 1 made set-oriented.

**Guarantees.** Complete (zhuge1996 §4.2) in the single-update, source-local and global scenarios, on a
network that misorders, repeats and loses messages, through crashes of the warehouse and the sources.

**Assumes.** Every transaction of a source reaches the history sooner or later, and an answer states
exactly which transactions it saw. No keys are needed, no prefix, no order of messages. Foreign keys, where
there are any, are enforced (`referenced`).

**Symbols.** Rⁱ → `relation`; (t_fwd, t_fwd + δ] → `interval`; τ → the bounds csn and csn − 1;
Execute → `Ask` with `Await`.

**Deviations.** Equation 2 is mirrored: relations before i are seen after the transaction, relations behind
i before it, so that a row's bound depends on the row's own csn alone. Compensation is local, so there are
no compensation queries, no query lists, and forward queries of different relations are independent.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from rollview.algebra.align import FROM, UNTIL, align, window
from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.block import Block
from rollview.algebra.expression import Column, Expression, Literal, call, conjunction
from rollview.algebra.history import CSN, Seen
from rollview.algebra.join_graph import JoinStep, SubQuery, access_path
from rollview.algebra.view import View
from rollview.algorithms.effects import (
    Answer,
    Ask,
    Await,
    Changes,
    Compensated,
    Effect,
    Execute,
    ForwardQuery,
    Interval,
    Netted,
    NextInterval,
    Process,
    Publish,
)
from rollview.algorithms.forward import Forward
from rollview.algorithms.kept_keys import answered_by_view
from rollview.algorithms.referenced import without_unreferenced
from rollview.algorithms.source_evaluate import question_for

Steps = Generator[Effect, Any, Bag]


def processes(view: View) -> Iterator[Process]:
    """One process per relation of each block; they share nothing."""
    for query in forward_queries(view):
        yield propagate(view, query)


def forward_queries(view: View) -> Iterator[ForwardQuery]:
    """One forward query per relation of each block."""
    for number, block in enumerate(view.blocks):
        for relation in range(len(block.relations)):
            yield ForwardQuery(view.name, number, relation)


def propagate(view: View, query: ForwardQuery) -> Process:
    """Publishes the view delta of one relation's changes, interval by interval, forever."""
    block = view.blocks[query.block]
    while True:
        interval: Interval = yield NextInterval(query)
        shown = "" if view.block is None else view.name
        forward = Forward(block, query.relation or 0, interval, view=shown)
        delta = yield from evaluate_forward(forward)
        yield Publish(((query, interval.upto),), view.root.lift(query.block, delta, CSN))


def evaluate_forward(query: Forward) -> Steps:
    """What the changes did to the block, with the csn of each."""
    rows = yield from changed_rows(query)
    if not rows.is_empty() and (delta := (yield from answered_by_view(query, rows))) is not None:
        return delta
    return (yield from join_others(query, rows))


def changed_rows(query: Forward) -> Steps:
    """The changes that have to be joined with something: those of the relation, less what joins nothing."""
    block, interval = query.block, query.interval
    rows = yield from local_changes(block, query.start, interval.after, interval.upto)
    if query.only is not None:
        rows = rows.select(committed_by(query.only))
    if query.as_one:
        at_its_end = (*keep(block.needed[query.start]), (CSN, Literal(interval.upto)))
        changes, rows = rows, rows.project(at_its_end).net_effect().materialized()
        yield Netted(changes, rows)
    rows = rows.materialized()
    return (yield from without_unreferenced(block, query.start, interval, query.as_one, rows))


def join_others(query: Forward, rows: Bag) -> Steps:
    """The changes joined with all other relations, each at the state that each change needs."""
    block = query.block
    if not rows.is_empty():
        yield Execute()
    for sub_queries in access_path(block, query.start).rounds:
        if rows.is_empty():
            break
        questions = tuple(question_for(block, sub_query, rows) for sub_query in sub_queries)
        answers: tuple[Answer[Any], ...] = yield Ask(questions)
        seen: tuple[Seen, ...] = yield Await(answers)
        for sub_query, answer, saw in zip(sub_queries, answers, seen, strict=True):
            rows = yield from _hop(query, rows, sub_query, answer, saw)
        rows = rows.materialized()
    if rows.is_empty():
        # The path may have ended early, so the columns of the relations not reached are not there.
        return rows.project((*((name, Literal(None)) for name in block.output_columns), (CSN, Column(CSN))))
    return rows.project((*block.projection, (CSN, Column(CSN))))


def committed_by(transactions: Iterable[int]) -> Expression:
    """The condition that a row is of one of these transactions."""
    return call("IN", Column(CSN), *(Literal(csn) for csn in sorted(transactions)))


def local_changes(block: Block, position: int, after: int, upto: int) -> Steps:
    """A relation's changes that pass its local conditions: the needed columns, as the block names them."""
    relation = block.relations[position]
    log: Bag = yield Changes(relation.table.qualified, after, upto)
    if not block.local[position]:
        return log.project(_renamed(block, position, block.needed[position]))
    log = log.project(_renamed(block, position, relation.columns))
    needed = (*keep(block.needed[position]), (CSN, Column(CSN)))
    return log.select(conjunction(block.local[position])).project(needed)


@lru_cache(maxsize=1024)
def _renamed(block: Block, position: int, names: tuple[str, ...]) -> tuple[Output, ...]:
    """The projection from a table's change log to these columns of the block."""
    relation = block.relations[position]
    own = dict(zip(relation.columns, relation.table.columns, strict=True))
    return (*((name, Column(own[name])) for name in names), (CSN, Column(CSN)))


def _hop(query: Forward, rows: Bag, sub_query: SubQuery, answer: Answer[Any], saw: Seen) -> Steps:
    """Joins the rows so far with every relation of one answer, each at the state that each row needs."""
    relations = [join_step.relation for join_step in sub_query.join_steps]
    found = dict(zip(relations, answer.rows, strict=True))
    corrected: set[int] = set()
    for join_step in sub_query.join_steps:
        late: Bag | None = None
        if join_step.parent in corrected:
            lost = not_looked_for(rows, join_step, found[join_step.parent])
            if not lost.is_empty():
                late = yield from _ask_alone(query, lost, sub_query, join_step)
                rows = rows.plus(lost.negate()).net_effect()
        rows, was_corrected = yield from _align_and_join(
            query, rows, join_step, found[join_step.relation], saw
        )
        if late is not None:
            rows = rows.plus(late)
        if was_corrected or late is not None:
            corrected.add(join_step.relation)
    return rows


def _align_and_join(
    query: Forward, rows: Bag, join_step: JoinStep, found: Bag, saw: Seen
) -> Generator[Effect, Any, tuple[Bag, bool]]:
    """Rows joined with one relation, and whether the log had anything to correct in it."""
    first, last = query.interval.after, query.interval.upto
    log = yield from local_changes(query.block, join_step.relation, *window(saw, first, last))
    if log.is_empty():
        return rows.join(
            found, join_step.on, conjunction(join_step.conditions) if join_step.conditions else None
        ), False
    yield Compensated(log)
    aligned = align(found, log, saw, first, last)
    columns = (*rows.columns, *found.columns)
    went_before = join_step.relation < query.start or join_step.relation in query.settled
    if query.as_one and not went_before:
        condition = _at(first, join_step.conditions)
    else:
        condition = _at_bound(went_before, join_step.conditions)
    # A key that changed often meets every change so far; net effect leaves what was true at the row's moment.
    return rows.join(aligned, join_step.on, condition).project(keep(columns)).net_effect(), True


@lru_cache(maxsize=1024)
def _at_bound(after_it: bool, conditions: tuple[Expression, ...]) -> Expression:
    """The state a row needs: after its own transaction for relations before the start, else before it."""
    csn = Column(CSN)
    if after_it:
        return conjunction((call("<=", Column(FROM), csn), call("<", csn, Column(UNTIL)), *conditions))
    return conjunction((call("<", Column(FROM), csn), call("<=", csn, Column(UNTIL)), *conditions))


def _at(csn: int, conditions: tuple[Expression, ...]) -> Expression:
    """The state at a csn, for every row."""
    at = Literal(csn)
    return conjunction((call("<=", Column(FROM), at), call("<", at, Column(UNTIL)), *conditions))


def not_looked_for(rows: Bag, join_step: JoinStep, parent_found: Bag) -> Bag:
    """The rows whose matches the shared sub-query did not look for.

    It looked for what joins the parent's rows as the source showed them. Correcting the parent may have
    brought back others (sze2000 report Lemmas 3 and 5: tuples that should be retrieved as well).
    """
    parent_columns = [parent for parent, _ in join_step.on]
    found = [(f"{name}'", Column(name)) for name in parent_columns]
    looked_for = parent_found.distinct(parent_columns).project(found)
    covered = rows.join(looked_for, [(name, f"{name}'") for name in parent_columns]).project(
        keep(rows.columns)
    )
    nulls = [call("IS NULL", Column(name)) for name in parent_columns]
    joinable = conjunction(tuple(call("NOT", null) for null in nulls))
    return rows.select(joinable).plus(covered.negate()).net_effect()


def _ask_alone(query: Forward, rows: Bag, sub_query: SubQuery, join_step: JoinStep) -> Steps:
    """A sub-query for one relation alone, for the rows that the shared one did not serve."""
    alone = replace(join_step, shipped=True)
    question = question_for(query.block, SubQuery(sub_query.source, (alone,)), rows)
    answers: tuple[Answer[Any], ...] = yield Ask((question,))
    seen: tuple[Seen, ...] = yield Await(answers)
    joined, _ = yield from _align_and_join(query, rows, alone, answers[0].rows[0], seen[0])
    return joined

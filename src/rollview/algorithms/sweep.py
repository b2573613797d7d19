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

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from typing import Any

from rollview.algebra.align import FROM, UNTIL, align, window
from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.expression import Column, Expression, Literal, call, conjunction
from rollview.algebra.history import CSN, Seen
from rollview.algebra.join_graph import JoinStep, SubQuery, access_path
from rollview.algebra.node import Block
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
    HighWater,
    Interval,
    Netted,
    NextIntervals,
    Process,
    Publish,
    Question,
)
from rollview.algorithms.kept_keys import Forward, answer, first_settled, take_answered
from rollview.algorithms.known_rows import (
    KnownAnswer,
    from_the_log,
    from_the_view,
    may_be_known,
    that_join,
    whole_row,
    with_keys,
)
from rollview.algorithms.referenced import without_unreferenced
from rollview.algorithms.shared_questions import together
from rollview.algorithms.source_evaluate import question_for

Steps = Generator[Effect, Any, Bag]


def processes(view: View) -> Iterator[Process]:
    """One process per block; they share nothing."""
    for number in range(len(view.blocks)):
        yield propagate(view, number)


def forward_queries(view: View) -> Iterator[ForwardQuery]:
    """One forward query per relation of each block."""
    for number, block in enumerate(view.blocks):
        for relation in range(len(block.relations)):
            yield ForwardQuery(view.name, number, relation)


def propagate(view: View, number: int) -> Process:
    """Publishes what the changes of a block's relations did to it, step by step, forever."""
    block = view.blocks[number]
    queries = tuple(ForwardQuery(view.name, number, relation) for relation in range(len(block.relations)))
    shown = "" if view.block is None else view.name
    while True:
        intervals: Mapping[ForwardQuery, Interval] = yield NextIntervals(queries)
        own = [intervals[query] for query in queries]
        delta = yield from evaluate_step(block, own, shown)
        moves = tuple((query, interval.upto) for query, interval in zip(queries, own, strict=True))
        yield Publish(moves, view.root.lift(number, delta, CSN))


def evaluate_step(block: Block, intervals: Sequence[Interval], view: str = "", as_one: bool = False) -> Steps:
    """What the changes did to the block, with the csn of each; each relation has an interval of its own.

    `view` is the view that shows the block's rows as they are, if there is one. `as_one` takes all as one
    transaction, and all relations through the same interval.
    """
    shows_others = view and any(whole_row(block, position) for position in range(len(block.relations)))
    known: int | None = (yield HighWater(view)) if shows_others else None
    queries = [
        Forward(block, position, interval, as_one=as_one, view=view, known=known)
        for position, interval in enumerate(intervals)
        if interval.after < interval.upto
    ]
    changed: dict[int, Bag] = {}
    for query in queries:
        changed[query.start] = yield from changed_rows(query)
    answered, rest = yield from take_answered(block, view, queries, changed, intervals)
    settled = frozenset(start for start in rest if as_one and answered and rest[start].is_empty())
    waiting = [query for query in queries if query.start not in settled]
    deltas = yield from together(
        [join_others(replace(query, settled=settled), rest[query.start]) for query in waiting]
    )
    if answered is not None:
        found = dict(zip((query.start for query in waiting), deltas, strict=True))
        deltas.append(answer(block, answered, found, first_settled(len(intervals), sorted(settled))))
    return total(deltas)


def total(deltas: Sequence[Bag]) -> Bag:
    """All of them together. Those that are known to be empty do not even have types."""
    some = [delta for delta in deltas if not delta.has_no_rows] or deltas[:1]
    return reduce(lambda one, other: one.plus(other), some)


def evaluate_forward(query: Forward) -> Steps:
    """What the changes of one relation did to the block, with the csn of each."""
    rows = yield from changed_rows(query)
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
    has_begun = False
    for sub_queries in access_path(block, query.start).rounds:
        rows = that_join(rows, _looked_by(sub_queries)).materialized()
        if rows.is_empty():
            break
        if not has_begun:
            yield Execute()
            has_begun = True
        known, asked = {}, {}
        for sub_query in sub_queries:
            # Conditions may test what only the answers before it bring.
            alone = _without_conditions(sub_query)
            known[sub_query] = yield from _known_answers(query, alone, rows)
            _, rest = yield from _join_known(query, rows, alone, known[sub_query])
            if rest is not None and not rest.is_empty():
                asked[sub_query] = question_for(block, sub_query, rest)
        found = yield from _answers(asked)
        for sub_query in sub_queries:
            joined, rest = yield from _join_known(query, rows, sub_query, known[sub_query])
            if sub_query in found and rest is not None:
                late = yield from _hop(query, rest, sub_query, *found[sub_query])
                joined = late if joined is None else joined.plus(late)
            assert joined is not None, "rows are known, or they are asked for"
            rows = joined
        rows = rows.materialized()
    if rows.is_empty():
        # The path may have ended early, so the columns of the relations not reached are not there.
        return rows.project((*((name, Literal(None)) for name in block.output_columns), (CSN, Column(CSN))))
    return rows.project((*block.projection, (CSN, Column(CSN))))


@lru_cache(maxsize=4096)
def _without_conditions(sub_query: SubQuery) -> SubQuery:
    join_steps = tuple(replace(each, conditions=()) for each in sub_query.join_steps)
    return SubQuery(sub_query.source, join_steps)


@lru_cache(maxsize=4096)
def _looked_by(sub_queries: tuple[SubQuery, ...]) -> tuple[str, ...]:
    """The columns of the rows so far whose values are looked for."""
    join_steps = (each for sub_query in sub_queries for each in sub_query.join_steps)
    return tuple(parent for each in join_steps if each.shipped for parent, _ in each.on)


def _answers(
    asked: Mapping[SubQuery, Question[Any]],
) -> Generator[Effect, Any, dict[SubQuery, tuple[Answer[Any], Seen]]]:
    if not asked:
        return {}
    answers: tuple[Answer[Any], ...] = yield Ask(tuple(asked.values()))
    seen: tuple[Seen, ...] = yield Await(answers)
    return dict(zip(asked, zip(answers, seen, strict=True), strict=True))


_Known = list[list[KnownAnswer]]


def _known_answers(query: Forward, sub_query: SubQuery, rows: Bag) -> Generator[Effect, Any, _Known]:
    """For each relation of a sub-query what the warehouse knows of it; nothing if it cannot do without."""
    found: _Known = []
    interval = query.interval
    if not all(may_be_known(query.block, each) for each in sub_query.join_steps):
        return found
    for join_step in sub_query.join_steps:
        own: list[KnownAnswer] = []
        if join_step.parent is not None:
            log = yield from local_changes(query.block, join_step.relation, interval.after, interval.upto)
            changed = from_the_log(query.block, join_step.relation, log, interval.after)
            if changed is not None:
                own.append(changed)
        shown = yield from from_the_view(query, join_step, rows)
        if shown is not None:
            own.append(shown)
        if not own:
            return []
        found.append(own)
        rows, _ = yield from _join_with_known(query, rows, join_step, own)
    return found


def _join_known(
    query: Forward, rows: Bag, sub_query: SubQuery, known: _Known
) -> Generator[Effect, Any, tuple[Bag | None, Bag | None]]:
    """The rows for which all is known, joined with it, and the other rows as they are, if there are any."""
    if not known:
        return None, rows
    joined, names = rows, rows.columns
    asked: Bag | None = None
    for join_step, own in zip(sub_query.join_steps, known, strict=True):
        joined, unknown = yield from _join_with_known(query, joined, join_step, own)
        if not unknown.is_empty():
            unknown = unknown.distinct(names)
            joined = joined.plus(joined.sharing(unknown, names).negate()).net_effect()
            asked = unknown if asked is None else asked.plus(unknown)
    return joined, None if asked is None else rows.sharing(asked, names)


def _join_with_known(
    query: Forward, rows: Bag, join_step: JoinStep, known: Sequence[KnownAnswer]
) -> Generator[Effect, Any, tuple[Bag, Bag]]:
    """Rows joined with what is known of a relation, and those of which nothing is."""
    joined: Bag | None = None
    for each in known:
        mine = with_keys(query.block, join_step, rows, each.keys).materialized()
        more, _ = yield from _align_and_join(query, mine, join_step, each.rows, each.saw)
        joined = more if joined is None else joined.plus(more)
        rows = rows.plus(mine.negate()).net_effect().materialized()
    assert joined is not None, "something is known"
    return joined, rows


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
    if rows.has_no_rows:
        return rows.join(found, join_step.on), False
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

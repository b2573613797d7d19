"""Execute: one propagation query, evaluated at one time, and the time at which that was.

**Source.** salem2000 §2 (propagation queries, counts, timestamps, realizability), §3.2 (Execute), §5 (how the
execution time becomes known).

**Guarantees.** The result is the query over the base tables as they were at the csn it returns, or at the
vector of csn that was asked for, exactly.

**Assumes.** An answer states which transactions it saw, and all of them reach the history. A condition must
not fail on rows that never were there together: compensation joins such rows, as the paper's does.

**Symbols.** Qⱽ → `PropagationQuery`; Qⱽ[i] = Rⁱ → None, Qⱽ[i] = Rⁱ_{x,y} → `Interval(x, y)` in `deltas`;
t_exec → `executed`; τ → `Times`, one csn per relation; timestamp → `_csn`, the LEAST of the csn of the delta
tuples (a base table's is NULL, so it does not count); count → the bag's.

**Deviations.** The paper's query is one transaction at one database. Here base tables are at many sources,
which share no transaction, so each is read by a question of its own, at whatever state its source is in, and
`align` rolls it to the csn that was newest when the query began. The query is then as if executed at
that csn. The same step honours any vector of times, so that equation 2, which no database without historical
snapshots can evaluate (§2: not realizable), can be evaluated too. Local correction makes the recursive
compensation of §3.2 avoidable altogether (that is the sweep); it is kept here because it is the paper's.
A query whose delta tables join to nothing asks nobody.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rollview.algebra.align import FROM, UNTIL, align, window
from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.expression import Call, Column, Expression, Literal, call, conjunction
from rollview.algebra.history import CSN, Seen
from rollview.algebra.join_graph import JoinStep, SubQuery, access_path
from rollview.algebra.node import Block
from rollview.algorithms.effects import (
    Answer,
    Ask,
    Await,
    Changes,
    Compensated,
    Effect,
    Execute,
    Interval,
    RowsOf,
)
from rollview.algorithms.source_evaluate import join_known, question_for
from rollview.algorithms.sweep import local_changes

Steps = Generator[Effect, Any, Bag]
Times = tuple[int, ...]
"""A vector of times: one csn per relation. Its entry for a delta table has no meaning."""


@dataclass(frozen=True)
class PropagationQuery:
    """The block's query with some base tables replaced by their delta tables; `sign` is −1 for −Q."""

    deltas: tuple[Interval | None, ...]
    sign: int = 1

    @property
    def delta_positions(self) -> tuple[int, ...]:
        return tuple(i for i, interval in enumerate(self.deltas) if interval is not None)

    @property
    def has_base_tables(self) -> bool:
        """Whether the query has anything that evolves."""
        return None in self.deltas

    @property
    def is_compensation(self) -> bool:
        """More than one delta table (§3.2, footnote 1); otherwise it is a forward query."""
        return len(self.delta_positions) > 1

    def with_delta(self, position: int, interval: Interval) -> PropagationQuery:
        """The query with one more base table replaced."""
        return replace(self, deltas=(*self.deltas[:position], interval, *self.deltas[position + 1 :]))

    def negated(self) -> PropagationQuery:
        """−Q."""
        return replace(self, sign=-self.sign)


def view_query(block: Block) -> PropagationQuery:
    """The block's own query: base tables only."""
    return PropagationQuery((None,) * len(block.relations))


def execute(
    block: Block, query: PropagationQuery, at: int | Times | None = None
) -> Generator[Effect, Any, tuple[Bag, int]]:
    """The query's result, with the block's columns and `_csn`, and the csn at which it was executed.

    Without `at` that is the newest csn; with a vector each base table is seen at a time of its own.
    """
    executed: int = yield Execute(max(at) if isinstance(at, tuple) else at, (query, at))
    times = at if isinstance(at, tuple) else (executed,) * len(block.relations)
    rows = yield from _join_deltas(block, query)
    for sub_queries in access_path(block, *query.delta_positions).rounds:
        rows = yield from _join_base_tables(block, rows, sub_queries, times)
    outputs = block.projection
    if rows.is_empty():
        # Nobody was asked, so the columns of the base tables are not there.
        outputs = tuple((name, Literal(None)) for name in block.output_columns)
    rows = rows.project((*outputs, (CSN, _timestamp(block, query))))
    if query.is_compensation:
        yield Compensated(rows)
    return (rows.negate() if query.sign < 0 else rows), executed


def total(block: Block, results: Sequence[Bag]) -> Steps:
    """The sum of results of propagation queries: what the paper's view delta table accumulates."""
    if not results:
        empty: Bag = yield RowsOf((*block.output_columns, CSN), ())
        return empty
    delta = results[0]
    for result in results[1:]:
        delta = delta.plus(result)
    return delta


def _own_csn(block: Block, position: int) -> str:
    """The column for the timestamp of one delta table's tuples."""
    return f"{CSN}.{block.relations[position].alias}"


def _timestamp(block: Block, query: PropagationQuery) -> Expression:
    """The minimum of the timestamps of the tuples that were joined (§2, §3.3)."""
    stamps = tuple(Column(_own_csn(block, position)) for position in query.delta_positions)
    return stamps[0] if len(stamps) == 1 else Call("LEAST", stamps)


def _join_deltas(block: Block, query: PropagationQuery) -> Steps:
    """The query's delta tables joined with each other, each with its timestamp in a column of its own."""
    known: dict[int, Bag] = {}
    for position, interval in enumerate(query.deltas):
        if interval is not None:
            relation = block.relations[position]
            log: Bag = yield Changes(relation.table.qualified, interval.after, interval.upto)
            names: list[Output] = [
                (name, Column(own))
                for name, own in zip(relation.columns, relation.table.columns, strict=True)
            ]
            known[position] = log.project((*names, (_own_csn(block, position), Column(CSN))))
    return join_known(block, known)


def _join_base_tables(block: Block, rows: Bag, sub_queries: tuple[SubQuery, ...], times: Times) -> Steps:
    """Rows joined with the relations of one round. Those that can be asked for at once are."""
    join_steps = [
        (sub_query.source, join_step) for sub_query in sub_queries for join_step in sub_query.join_steps
    ]
    if rows.is_empty():
        return rows
    at_once = [(source, join_step) for source, join_step in join_steps if join_step.shipped]
    found = yield from _read(block, rows, at_once, times)
    for source, join_step in join_steps:
        if join_step.relation not in found:
            if rows.is_empty():
                return rows
            found |= yield from _read(block, rows, [(source, join_step)], times)
        rows = rows.join(found[join_step.relation], join_step.on, conjunction(join_step.conditions))
    return rows


def _read(
    block: Block, rows: Bag, join_steps: Sequence[tuple[str, JoinStep]], times: Times
) -> Generator[Effect, Any, dict[int, Bag]]:
    """Base tables as they were at the wanted times, as far as the rows look for them.

    Each has a sub-query of its own: in a shared one, correcting a parent could bring back rows whose
    children were not looked for.
    """
    questions = tuple(
        question_for(block, SubQuery(source, (replace(join_step, shipped=True),)), rows)
        for source, join_step in join_steps
    )
    answers: tuple[Answer[Any], ...] = yield Ask(questions)
    seen: tuple[Seen, ...] = yield Await(answers)
    found: dict[int, Bag] = {}
    for (_, join_step), answer, saw in zip(join_steps, answers, seen, strict=True):
        time = times[join_step.relation]
        log = yield from local_changes(block, join_step.relation, *window(saw, time, time))
        found[join_step.relation] = _as_of(answer.rows[0], log, saw, time)
    return found


def _as_of(answer: Bag, log: Bag, saw: Seen, time: int) -> Bag:
    """An answer rolled to one csn."""
    if log.is_empty():
        return answer
    valid = call("AND", call("<=", Column(FROM), Literal(time)), call("<", Literal(time), Column(UNTIL)))
    return align(answer, log, saw, time, time).select(valid).project(keep(answer.columns))

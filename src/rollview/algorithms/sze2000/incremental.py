"""Incremental computation: an update joined with all other relations, as few sub-queries as the graph allows.

**Source.** sze2000 report §4.1, Example 5; Theorem 1 (compensation in the order of querying).
**Symbols.** S, the relations of one sub-query → `SubQuery.join_steps`; "queried" → the rounds of the access
path; μR_j → the answers' rows; "tuples that should be retrieved" (Lemmas 3 and 5) → `_ask_alone`.
**Deviations.** Rows that found a part of the join graph in the view and rows that did not are carried on as
two *strands*, so that both can share the sub-queries of the other parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rollview.algebra.bag import Bag, Output
from rollview.algebra.expression import conjunction
from rollview.algebra.join_graph import JoinStep, SubQuery
from rollview.algebra.node import Block
from rollview.algorithms.effects import Answer, Ask, Execute, Question
from rollview.algorithms.source_evaluate import keys_of, question_for
from rollview.algorithms.sweep import not_looked_for
from rollview.algorithms.sze2000.compensate import compensate
from rollview.algorithms.sze2000.self_maintenance import Rounds, ask_the_view, conditions_between, view_access
from rollview.algorithms.sze2000.versions import Arrival, Computation, Steps


@dataclass(frozen=True)
class Strand:
    """Rows so far, and which groups of relations were read from the view for them."""

    rows: Bag
    read: tuple[frozenset[int], ...] = ()

    def lacks(self, join_step: JoinStep) -> bool:
        """Whether a relation is still to be joined."""
        return not any(join_step.relation in relations for relations in self.read)


def follow(
    computation: Computation, rows: Bag, rounds: Rounds, outputs: Sequence[Output], view_first: bool
) -> Steps[Bag | None]:
    """The rows joined along the access path, and the outputs computed; None if nothing is left."""
    block = computation.block
    strands = [Strand(rows)]
    executed = False
    for sub_queries in rounds:
        if view_first:
            strands = yield from _view_first(computation, strands, rounds, sub_queries)
        strands = [strand for strand in strands if not strand.rows.is_empty()]
        questions = [each for sub_query in sub_queries for each in _questions(block, strands, sub_query)]
        if not questions:
            continue
        if not executed:
            yield Execute()
            executed = True
        answers: tuple[Answer[Any], ...] = yield Ask(tuple(questions))
        for answer in answers:
            yield Arrival(answer.source, answer.saw.upto)
        for question, answer in zip(questions, answers, strict=True):
            for place, strand in enumerate(strands):
                strands[place] = yield from _hop(computation, strand, question.sub_query, answer)
        strands = [replace(strand, rows=strand.rows.materialized()) for strand in strands]
    total: Bag | None = None
    for strand in strands:
        if strand.rows.is_empty():
            continue
        joined = strand.rows.select(_untested(block, strand)) if strand.read else strand.rows
        change = joined.project(outputs)
        total = change if total is None else total.plus(change)
    return total


def _untested(block: Block, strand: Strand) -> Any:
    """The conditions that rows from the view do not meet on their own."""
    return conjunction(
        tuple(
            condition
            for relations, condition in conditions_between(block)
            if not any(relations <= read for read in strand.read)
        )
    )


def _view_first(
    computation: Computation, strands: list[Strand], rounds: Rounds, sub_queries: tuple[SubQuery, ...]
) -> Steps[list[Strand]]:
    """Splits strands into what the view can answer and what must be asked for."""
    for join_step in (
        join_step for sub_query in sub_queries for join_step in sub_query.join_steps if join_step.shipped
    ):
        access = view_access(computation.block, rounds, join_step)
        if access is None:
            continue
        found = yield from ask_the_view(computation, join_step, access)
        if found is None:
            continue
        values, known = found
        split: list[Strand] = []
        for strand in strands:
            if not strand.lacks(join_step):
                split.append(strand)
                continue
            rest = not_looked_for(strand.rows, join_step, values) if join_step.on else None
            served = strand.rows if rest is None else strand.rows.plus(rest.negate()).net_effect()
            joined = served.join(known, join_step.on).materialized()
            split.append(Strand(joined, (*strand.read, frozenset(access.relations))))
            if rest is not None:
                split.append(replace(strand, rows=rest))
        strands = split
    return strands


def _questions(block: Block, strands: list[Strand], sub_query: SubQuery) -> Iterator[Question[Any]]:
    """The sub-query for the relations that some strand lacks, with the values that such strands look for."""
    join_steps = tuple(
        join_step for join_step in sub_query.join_steps if any(strand.lacks(join_step) for strand in strands)
    )
    if not join_steps:
        return
    keys: list[Bag | None] = []
    for join_step in (join_step for join_step in join_steps if join_step.shipped):
        wanted: Bag | None = None
        for strand in (strand for strand in strands if strand.lacks(join_step)):
            more = keys_of(strand.rows, join_step)
            wanted = more if wanted is None or more is None else wanted.plus(more).distinct(more.columns)
        keys.append(wanted)
    yield Question(block, replace(sub_query, join_steps=join_steps), tuple(keys))


def _hop(computation: Computation, strand: Strand, sub_query: SubQuery, answer: Answer[Any]) -> Steps[Strand]:
    """Joins one strand with the relations of an answer, each compensated before the next one is joined."""
    found = dict(zip((join_step.relation for join_step in sub_query.join_steps), answer.rows, strict=True))
    corrected: set[int] = set()
    rows = strand.rows
    for join_step in (join_step for join_step in sub_query.join_steps if strand.lacks(join_step)):
        late: Bag | None = None
        if join_step.parent in corrected:
            lost = not_looked_for(rows, join_step, found[join_step.parent])
            if not lost.is_empty():
                late = yield from _ask_alone(computation, strand, lost, sub_query.source, join_step)
                rows = rows.plus(lost.negate()).net_effect()
        mine, was_corrected = yield from compensate(
            computation, rows, join_step, found[join_step.relation], answer.saw
        )
        rows = _join(strand, rows, join_step, mine)
        if late is not None:
            rows = rows.plus(late)
        if was_corrected or late is not None:
            corrected.add(join_step.relation)
    return replace(strand, rows=rows)


def _join(strand: Strand, rows: Bag, join_step: JoinStep, found: Bag) -> Bag:
    # Beside rows from the view, conditions may read what is not joined yet: they are tested at the end.
    conditions = () if strand.read else join_step.conditions
    return rows.join(found, join_step.on, conjunction(conditions) if conditions else None)


def _ask_alone(
    computation: Computation, strand: Strand, rows: Bag, source: str, join_step: JoinStep
) -> Steps[Bag]:
    """A sub-query for one relation alone, for rows whose matches the shared one did not look for."""
    alone = replace(join_step, shipped=True)
    question = question_for(computation.block, SubQuery(source, (alone,)), rows)
    answers: tuple[Answer[Any], ...] = yield Ask((question,))
    yield Arrival(source, answers[0].saw.upto)
    found, _ = yield from compensate(computation, rows, alone, answers[0].rows[0], answers[0].saw)
    return _join(strand, rows, alone, found)

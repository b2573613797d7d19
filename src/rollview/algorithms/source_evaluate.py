"""source_evaluate: a query answered source by source, at whatever state each source is in by then.

**Source.** zhuge1996 §5.1, the procedure and `next_source`.
**Guarantees.** None under concurrent updates; the algorithms that use it compensate afterwards.
**Symbols.** Q⟨U⟩ → `block` with the relations of `known` replaced by rows; Aⁱ → the rows so far;
next_source → `access_path`.
**Deviations.** Connected relations of one source share a sub-query (§7, first enhancement), and sources
that do not depend on each other are asked at once.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from rollview.algebra.bag import Bag, keep
from rollview.algebra.expression import Literal, conjunction
from rollview.algebra.history import Transaction
from rollview.algebra.join_graph import JoinStep, SubQuery, access_path
from rollview.algebra.node import Block
from rollview.algorithms.effects import Answer, Ask, Effect, Execute, Question, RowsOf

Steps = Generator[Effect, Any, Bag]
Rounds = tuple[tuple[SubQuery, ...], ...]


def source_evaluate(block: Block, known: Mapping[int, Bag], rounds: Rounds | None = None) -> Steps:
    """The block with the given rows in place of some relations, projected.

    `rounds` replaces the usual access path, for algorithms that need another one.
    """
    rounds = access_path(block, *known).rounds if rounds is None else rounds
    rows = join_known(block, known)
    if rounds:
        yield Execute()
    for sub_queries in rounds:
        if rows.is_empty():
            # Nothing can join any more. The columns not reached are not there, but neither is a row.
            nothing = rows.project(tuple((name, Literal(None)) for name in block.output_columns))
            return nothing.materialized()
        questions = tuple(question_for(block, sub_query, rows) for sub_query in sub_queries)
        answers: tuple[Answer[Any], ...] = yield Ask(questions)
        for sub_query, answer in zip(sub_queries, answers, strict=True):
            for join_step, found in zip(sub_query.join_steps, answer.rows, strict=True):
                conditions = conjunction(join_step.conditions) if join_step.conditions else None
                rows = rows.join(found, join_step.on, conditions)
        rows = rows.materialized()
    return rows.project(block.projection).materialized()


def join_known(block: Block, known: Mapping[int, Bag]) -> Bag:
    """The known relations' rows that pass the local conditions, joined with each other.

    Columns that the block does not have, such as a csn, are carried along; they must be disjoint.
    """
    joined: Bag | None = None
    for join_step in access_path(block, *known).known:
        rows = known[join_step.relation]
        extra = [name for name in rows.columns if name not in block.relations[join_step.relation].columns]
        if block.local[join_step.relation]:
            rows = rows.select(conjunction(block.local[join_step.relation]))
        rows = rows.project(keep((*block.needed[join_step.relation], *extra)))
        conditions = conjunction(join_step.conditions) if join_step.conditions else None
        joined = rows if joined is None else joined.join(rows, join_step.on, conditions)
    assert joined is not None, "a query has at least one known relation"
    return joined


def question_for(block: Block, sub_query: SubQuery, rows: Bag) -> Question[Any]:
    """The question with the values that the rows so far look for."""
    keys = tuple(keys_of(rows, join_step) for join_step in sub_query.join_steps if join_step.shipped)
    return Question(block, sub_query, keys)


def keys_of(rows: Bag, join_step: JoinStep) -> Bag | None:
    """The values to look for. Counts do not matter: an insertion and a deletion both need their matches."""
    if join_step.parent is None:
        return None
    return rows.distinct([parent for parent, _ in join_step.on])


def relation_deltas(block: Block, transaction: Transaction) -> Generator[Effect, Any, dict[int, Bag]]:
    """ΔR: what a transaction did to each relation of a block, by position; without those that it left alone.

    The baselines speak of one update ΔR to one relation. A source-local transaction is one ΔR for each
    relation that it touches, and a change to a table that the view joins with itself is a ΔR of both.
    """
    deltas: dict[int, Bag] = {}
    for position, relation in enumerate(block.relations):
        table = relation.table.qualified
        rows = tuple((change.row, change.count) for change in transaction.changes if change.table == table)
        if rows:
            deltas[position] = yield RowsOf(relation.columns, rows, relation)
    return deltas

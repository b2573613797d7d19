"""Immediate propagate: the sources compute the view delta in the transactions that change them.

**Source.** beyer2000 §1.1 and §4: every writer joins the rows that it changed with the other relations,
before it commits, and appends what comes out to a view delta. The log is that delta's place and its commit
table at once: a record's place in it is taken when it is written (§4.2), a transaction's commit is one record
(§4.5), the log has one clock (§4.7), and of a transaction that was rolled back nothing is in it.

**Guarantees.** Complete (zhuge1996 §4.2), as the sweep is, at any level of isolation of the writers.

**Assumes.** A statement that made its part of the delta says which transactions it saw.

**Deviations.** The paper's writers hold locks to their end, so what they read is what they commit behind.
Here they wait for nobody: a writer at READ COMMITTED may read a relation that another one has changed and not
yet committed. A transaction whose changes join a change that it did not see is *in doubt*: then its part of
the delta is left alone, and the sweep computes it from the changes themselves. So it is for whatever was
changed behind the back of the triggers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from typing import Any

from rollview.algebra.bag import Bag
from rollview.algebra.expression import Column, Expression, Literal, call, conjunction
from rollview.algebra.history import CSN
from rollview.algebra.node import Block
from rollview.algebra.view import View
from rollview.algorithms import sweep
from rollview.algorithms.effects import (
    Doubted,
    Effect,
    ForwardQuery,
    Interval,
    MadeDelta,
    NextInterval,
    Process,
    Publish,
    SourceDelta,
    Statement,
    Values,
)
from rollview.algorithms.kept_keys import Forward
from rollview.algorithms.sweep import committed_by, evaluate_forward, local_changes

RELATION = "_relation"
SIGN = "_sign"
_OTHER = "_other_csn"

_Pair = tuple[int, int]


def processes(view: View) -> Iterator[Process]:
    """The sweep's, or one per relation where writers compute: either can continue where the other was."""
    for number, block in enumerate(view.blocks):
        if is_made_at_source(block):
            yield from (
                propagate(view, query) for query in sweep.forward_queries(view) if query.block == number
            )
        else:
            yield sweep.propagate(view, number)


def is_made_at_source(block: Block) -> bool:
    """Whether writers compute the block's delta: its tables are of one source that commits in one order."""
    sites = {relation.table.site for relation in block.relations}
    return len(sites) == 1 and all(each.table.source for each in block.relations)


def propagate(view: View, query: ForwardQuery) -> Process:
    """Publishes what one relation's changes did to the block, interval by interval, forever."""
    block, position = view.blocks[query.block], query.relation or 0
    while True:
        interval: Interval = yield NextInterval(query)
        made = yield SourceDelta(view.name, query.block, interval.after, interval.upto)
        if made is None:
            delta = yield from evaluate_forward(Forward(block, position, interval))
        else:
            delta = yield from _evaluate(Forward(block, position, interval), made)
        yield Publish(((query, interval.upto),), view.root.lift(query.block, delta, CSN))


def _evaluate(query: Forward, made: MadeDelta[Any]) -> sweep.Steps:
    """The effect of the changes on the block: of each transaction as writers made it, or computed."""
    doubtful = yield from in_doubt(query.block, made, query.interval)
    delta = _as_made(query.block, query.start, made, doubtful)
    if not doubtful:
        return delta
    yield Doubted(len(doubtful))
    return delta.plus((yield from evaluate_forward(replace(query, only=doubtful))))


def _as_made(block: Block, position: int, made: MadeDelta[Any], doubtful: frozenset[int]) -> Bag:
    """The delta of a relation's changes as writers made it, less transactions in doubt.

    A source may have joined more than Spark does, so all conditions are tested here.
    """
    edges = (call("=", Column(edge.left_column), Column(edge.right_column)) for edge in block.edges)
    local = (condition for conditions in block.local for condition in conditions)
    wanted: list[Expression] = [call("=", Column(RELATION), Literal(position)), *edges, *local]
    if doubtful:
        wanted.append(call("NOT", committed_by(doubtful)))
    rows = made.rows.select(conjunction((*wanted, *block.residual)))
    counted = rows.project((*block.projection, (CSN, Column(CSN)), (SIGN, Column(SIGN))))
    found: Bag = counted.weighted(SIGN)
    return found


def in_doubt(
    block: Block, made: MadeDelta[Any], interval: Interval
) -> Generator[Effect, Any, frozenset[int]]:
    """The transactions of an interval whose delta is not taken as it was made."""
    doubtful = set(unmarked(made, interval))
    pairs: dict[_Pair, set[_Pair]] = defaultdict(set)
    for statement in made.statements:
        if statement.csn not in doubtful:
            for positions, missed in _missed(block, made, statement):
                if _edges(block, *positions):
                    pairs[positions].add((statement.csn, missed))
                else:
                    # What lies between could lead from one to the other.
                    doubtful.add(statement.csn)
    for (position, other), found in sorted(pairs.items()):
        open_pairs = {pair for pair in found if pair[0] not in doubtful}
        if open_pairs:
            met = yield from _meeting(block, position, other, open_pairs)
            doubtful |= {csn for csn, _ in met & open_pairs}
    return frozenset(doubtful)


def unmarked(made: MadeDelta[Any], interval: Interval) -> Iterator[int]:
    """The transactions that changed a table of the block by statements that made no delta of it."""
    marked = {(statement.csn, statement.table) for statement in made.statements}
    for table, changed in made.changed.items():
        for csn in changed:
            if interval.after < csn <= interval.upto and (csn, table) not in marked:
                yield csn


def _missed(block: Block, made: MadeDelta[Any], statement: Statement) -> Iterator[tuple[_Pair, int]]:
    """The positions of a statement's rows and of rows that it did not see, and the transaction of these."""
    for position, relation in enumerate(block.relations):
        if relation.table.qualified != statement.table:
            continue
        for other, reached in enumerate(block.relations):
            if other != position:
                for csn in statement.unseen & made.changed.get(reached.table.qualified, frozenset()):
                    yield (position, other), csn


def _edges(block: Block, position: int, other: int) -> list[tuple[str, str]]:
    """The columns by which two relations are joined with each other directly."""
    found = [(e.left_column, e.right_column) for e in block.edges if (e.left, e.right) == (position, other)]
    return found + [
        (e.right_column, e.left_column) for e in block.edges if (e.right, e.left) == (position, other)
    ]


def _meeting(
    block: Block, position: int, other: int, pairs: Iterable[_Pair]
) -> Generator[Effect, Any, frozenset[_Pair]]:
    """Which changes of one relation join changes of another one, by their transactions; at least these."""
    own, missed = [csn for csn, _ in pairs], [csn for _, csn in pairs]
    widest = max(csn - unseen for csn, unseen in pairs)
    rows = yield from local_changes(block, position, min(own) - 1, max(own))
    others = yield from local_changes(block, other, min(missed) - 1, max(missed))
    others = others.project((*((name, Column(name)) for name in block.needed[other]), (_OTHER, Column(CSN))))
    near = conjunction(
        (
            call("<=", Column(_OTHER), Column(CSN)),
            call(">=", Column(_OTHER), call("-", Column(CSN), Literal(widest))),
        )
    )
    met: frozenset[_Pair] = yield Values(
        rows.join(others, _edges(block, position, other), near), (CSN, _OTHER)
    )
    return met

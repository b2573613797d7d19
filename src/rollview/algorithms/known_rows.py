"""Rows of other relations that the warehouse knows already, so that no source is asked for them.

**Source.** sze2000 paper §4.3, Lemma 2: what the view shows of another relation need not be queried. Here
that is one more answer to correct: it saw what the view has, as a source's answer saw what the source had.

**Guarantees.** What a source would have answered. Of a key that changed in an interval, the change log says
all that it was in it: before its first change it had the row that this took away, or none. Of a key that the
view shows at a csn, it shows the row of that csn, as long as it shows all that is read of it.

**Assumes.** Keys are keys, so only those that a server enforces are relied on.

**Symbols.** V[R_j] → `StateWith`; the version that was queried → `KnownAnswer.saw`.

**Deviations.** The lemma also takes what is joined by other columns than a key, where the view shows all rows
with a value or none; here only a relation that is joined with nothing. A row is known if all is that the
sub-query would have looked up for it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rollview.algebra.bag import Bag, before_it, keep
from rollview.algebra.dependencies import shown_as
from rollview.algebra.expression import Column, Literal, call, columns_of, conjunction
from rollview.algebra.history import CSN, Seen
from rollview.algebra.join_graph import JoinStep
from rollview.algebra.node import Block
from rollview.algorithms.effects import Effect, StateWith
from rollview.algorithms.kept_keys import Forward, is_enforced, is_shown_alike

_ROWS, _TURN = "_rows", "_turn"


@dataclass(frozen=True)
class KnownAnswer:
    """Rows of a relation with these keys, as of what was seen; there are no others with them.

    Without keys these are all rows of the relation.
    """

    keys: Bag | None
    rows: Bag
    saw: Seen


def may_be_known(block: Block, join_step: JoinStep) -> bool:
    """Whether what is looked for is a key that a server enforces, or all of a relation that stands alone."""
    if join_step.parent is None:
        return whole_row(block, join_step.relation) is not None and stands_alone(block, join_step.relation)
    return _is_by_key(block, join_step)


def _is_by_key(block: Block, join_step: JoinStep) -> bool:
    relation = block.relations[join_step.relation]
    joined = {own for _, own in join_step.on}
    return bool(relation.key) and is_enforced(relation) and joined.issuperset(relation.key)


@lru_cache(maxsize=1024)
def stands_alone(block: Block, position: int) -> bool:
    """Whether no condition is about a relation together with others: then a view that shows any row
    shows all of its rows.
    """
    is_joined = any(position in (edge.left, edge.right) for edge in block.edges)
    own = frozenset(block.relations[position].columns)
    return not is_joined and not any(own & set(columns_of(condition)) for condition in block.residual)


def from_the_log(block: Block, position: int, log: Bag, first: int) -> KnownAnswer | None:
    """The rows that the keys that change in an interval have at its beginning; `log` has all changes."""
    log = log.net_effect()
    if log.is_empty():
        return None
    key = block.relations[position].key
    counted = log.distinct((*key, CSN)).project((*keep((*key, CSN)), (_TURN, Literal(1))))
    begun = counted.running(key, CSN, (_TURN,)).select(call("=", Column(before_it(_TURN)), Literal(0)))
    rows = log.summarize(log.columns, [(_ROWS, Literal(1))]).select(call("<", Column(_ROWS), Literal(0)))
    there = rows.sharing(begun, (*key, CSN)).project(keep(block.needed[position]))
    return KnownAnswer(log.distinct(key).materialized(), there.materialized(), Seen(first))


def from_the_view(
    query: Forward, join_step: JoinStep, rows: Bag
) -> Generator[Effect, Any, KnownAnswer | None]:
    """The rows that the view shows, of those that others look for."""
    position, known = join_step.relation, query.known
    names = None if known is None else whole_row(query.block, position)
    if known is None or names is None or rows.is_empty():
        return None
    key = query.block.relations[position].key
    wanted: Bag | None = None
    if join_step.parent is not None:
        parents = {own: parent for parent, own in join_step.on}
        wanted = rows.distinct([parents[name] for name in key])
        wanted = wanted.project([(names[name], Column(parents[name])) for name in key])
    near: Bag | None = yield StateWith(query.view, known, wanted)
    if near is None or near.is_empty():
        return None
    outputs = [(name, Column(names[name])) for name in query.block.needed[position]]
    found = near.net_effect().project(outputs).distinct([name for name, _ in outputs]).materialized()
    keys = None if wanted is None else near.distinct([names[name] for name in key])
    if keys is not None:
        keys = keys.project([(name, Column(names[name])) for name in key]).materialized()
    return KnownAnswer(keys, found, Seen(known))


@lru_cache(maxsize=1024)
def whole_row(block: Block, position: int) -> dict[str, str] | None:
    """By which name the view shows each column that is read of a relation; None if one is missing."""
    relation, names = block.relations[position], shown_as(block)
    read = dict.fromkeys((*relation.key, *block.needed[position]))
    if len(block.relations) < 2 or not relation.key or not is_enforced(relation):
        return None
    if not all(name in names and is_shown_alike(block, name) for name in read):
        return None
    shown = [names[name] for name in relation.key]
    return {name: names[name] for name in read} if len(set(shown)) == len(shown) else None


def with_keys(block: Block, join_step: JoinStep, rows: Bag, keys: Bag | None) -> Bag:
    """The rows that look for one of these keys."""
    if keys is None:
        return rows
    key = block.relations[join_step.relation].key
    parents = {own: parent for parent, own in join_step.on}
    named = keys.project([(f"{parents[name]}'", Column(name)) for name in key])
    pairs = [(parents[name], f"{parents[name]}'") for name in key]
    return rows.join(named, pairs).project(keep(rows.columns))


def that_join(rows: Bag, columns: tuple[str, ...]) -> Bag:
    """The rows that can join anything: NULL equals nothing."""
    nulls = tuple(call("NOT", call("IS NULL", Column(name))) for name in dict.fromkeys(columns))
    return rows.select(conjunction(nulls)) if nulls else rows

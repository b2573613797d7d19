"""Maintenance without the complete view tuple: a key in the view suffices to delete or modify its rows.

**Source.** sze2000 report §4.3, Example 7; paper §4.3, Lemma 3.
**Symbols.** R_i → the updated relation; R_j, whose key is in the view and which determines R_i →
`ByKey.relation`; DELETE / UPDATE … WHERE key → `delete_by_key`, `modify_by_key`.
**Deviations.** R_j must determine R_i by the dependencies of the relations that are asked on the way to R_j;
one that holds only in the complete join would let rows of R_j be found that the view joins with another row
of R_i. A modification can be applied by key if what the view shows of the changed columns can be computed
from R_i's new row alone. The key's rows are looked for when the result is applied, after all earlier updates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.dependencies import determines, shown_as
from rollview.algebra.expression import Column, columns_of, rename
from rollview.algebra.join_graph import JoinStep, access_path
from rollview.algebra.node import Block
from rollview.algebra.relation import Relation
from rollview.algorithms.effects import RowsOf
from rollview.algorithms.sze2000.self_maintenance import Rounds, within
from rollview.algorithms.sze2000.update_types import Update
from rollview.algorithms.sze2000.versions import Refresh, Steps


@dataclass(frozen=True)
class ByKey:
    """The relation whose key identifies the view's rows, and the sub-queries until it is reached."""

    relation: int
    rounds: Rounds


@lru_cache(maxsize=1024)
def by_key(block: Block, position: int) -> ByKey | None:
    """The shortest way to a key in the view that shows which rows stem from a row of this relation."""
    if not block.relations[position].key:
        return None
    candidates = [found for other in range(len(block.relations)) if (found := _way(block, position, other))]
    return min(candidates, key=lambda found: sum(map(len, found.rounds)), default=None)


def _way(block: Block, position: int, other: int) -> ByKey | None:
    key = block.relations[other].key
    if not key or not all(name in shown_as(block) for name in key):
        return None
    if other == position:
        return ByKey(other, ())
    asked = _asked(block, position, other)
    part, place = within(block, asked | {position})
    if other not in asked or not determines(part, place[other], place[position]):
        return None
    return ByKey(other, _only(block, position, asked))


def _asked(block: Block, position: int, other: int) -> frozenset[int]:
    """The relations on the access path to another one, itself included; empty for a product."""
    rounds = access_path(block, position).rounds
    parents = {
        join_step.relation: join_step.parent
        for subs in rounds
        for sub in subs
        for join_step in sub.join_steps
    }
    asked: set[int] = set()
    step: int | None = other
    while step is not None and step != position:
        asked.add(step)
        step = parents[step]
    return frozenset(asked) if step == position else frozenset()


def _only(block: Block, position: int, asked: frozenset[int]) -> Rounds:
    """The access path with nothing but these relations and the conditions between them."""

    def kept(join_step: JoinStep) -> JoinStep:
        conditions = tuple(
            condition
            for condition in join_step.conditions
            if all(block.position_of(column) in asked | {position} for column in columns_of(condition))
        )
        return replace(join_step, conditions=conditions)

    rounds = []
    for sub_queries in access_path(block, position).rounds:
        chosen = [
            replace(sub_query, join_steps=join_steps)
            for sub_query in sub_queries
            if (
                join_steps := tuple(
                    kept(join_step) for join_step in sub_query.join_steps if join_step.relation in asked
                )
            )
        ]
        if chosen:
            rounds.append(tuple(chosen))
    return tuple(rounds)


def settable(block: Block, update: Update) -> tuple[Output, ...] | None:
    """The columns that a modification sets: shown names with their expressions over the new row.

    None, if a shown value that changes depends on other relations as well.
    """
    columns = block.relations[update.position].columns
    changed = {
        name
        for old, new in update.modified
        for name, one, other in zip(columns, old, new, strict=True)
        if one != other
    }
    concerned = [output for output in block.projection if changed.intersection(columns_of(output[1]))]
    if any(not set(columns_of(expression)) <= set(columns) for _, expression in concerned):
        return None
    return tuple(
        (f"new {name}", rename(expression, lambda column: f"new {column}")) for name, expression in concerned
    )


def old_and_new(relation: Relation, update: Update) -> Steps[Bag]:
    """A modification as rows that hold the old values and, under `new …`, the new ones."""
    before = tuple((old, 1) for old, _ in update.modified)
    after = tuple((new, 1) for _, new in update.modified)
    rows: Bag = yield RowsOf(relation.columns, before, relation)
    new: Bag = yield RowsOf(relation.columns, after, relation)
    new = new.project([(f"new {name}", Column(name)) for name in relation.columns])
    return rows.join(new, [(name, f"new {name}") for name in relation.key])


def delete_by_key(block: Block, relation: int, rows: Bag) -> Refresh:
    """DELETE FROM V WHERE the key is one of these rows'."""
    keys = rows.distinct(block.relations[relation].key)

    def delete(state: Bag) -> Bag:
        stem = state.join(keys, list(_shown_key(block, relation))).project(keep(state.columns))
        return state.plus(stem.negate())

    return delete


def modify_by_key(block: Block, relation: int, rows: Bag, outputs: tuple[Output, ...]) -> Refresh:
    """UPDATE V SET the shown values WHERE the key is one of these rows'."""
    names = [name for name, _ in outputs]
    new = rows.distinct([*block.relations[relation].key, *names])

    def modify(state: Bag) -> Bag:
        stem = state.join(new, list(_shown_key(block, relation)))
        updated = [
            (name, Column(f"new {name}" if f"new {name}" in names else name)) for name in state.columns
        ]
        return state.plus(stem.project(keep(state.columns)).negate()).plus(stem.project(updated))

    return modify


def _shown_key(block: Block, relation: int) -> Iterator[tuple[str, str]]:
    return ((shown_as(block)[name], name) for name in block.relations[relation].key)

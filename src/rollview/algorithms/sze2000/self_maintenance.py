"""Partial self-maintenance: the view itself is asked before the sources are.

**Source.** sze2000 report §4.1 (disconnected join graphs), §4.2, Example 6; paper §4.3, Lemma 2.
**Symbols.** R_j → `join_step.relation`; S, the rest to be queried from R_j → `access.relations` without it;
V[R_j, S] → `known`; "-" → NULL; refreshed version numbers as queried ones → `site.refreshed`.
**Assumes.** What `view_access` makes sure of: the columns that the view shows of R_j and S fix a row of each,
and all of their columns that are still of use are shown.

**Deviations.** The paper's two conditions (the key of R_j is in the view, R_j determines S) do not suffice.
A value found in the view stands for *all* rows of R_j with that value only if

- it is the key of R_j, so that there is one row, or
- R_j and S meet the other relations in nothing but this join. A condition between the two sides lets the view
  show some matches and hide others (there is a test).

On the other hand the key of R_j is not needed where other shown columns fix its row. A disconnected part of
the join graph is the same case with nothing to join on: if the view shows anything, it shows all of that
part; if it is empty, the sources are asked. The paper multiplies the view's own counts; here the part's rows
are read once, which needs shown columns that fix them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.dependencies import closure, determines, shown_as
from rollview.algebra.expression import Column, Expression, Literal, call, columns_of
from rollview.algebra.join_graph import JoinStep, SubQuery
from rollview.algebra.node import Block
from rollview.algebra.relation import Edge
from rollview.algorithms.effects import Stored
from rollview.algorithms.sze2000.compensate import Missing, block_rows, drop, missing_updates, modify
from rollview.algorithms.sze2000.versions import Computation, Steps

Rounds = tuple[tuple[SubQuery, ...], ...]


@dataclass(frozen=True)
class ViewAccess:
    """How the view answers for one relation and all that are reached from it.

    `by_key`: a value looked for is the key of the relation, which determines the others. `shown` are the
    view's columns to read, `columns` makes the relations' columns of them, NULL where they are not shown.
    """

    relations: tuple[int, ...]
    by_key: bool
    shown: tuple[str, ...]
    columns: tuple[Output, ...]


@lru_cache(maxsize=1024)
def within(block: Block, relations: frozenset[int]) -> tuple[Block, dict[int, int]]:
    """The block of these relations alone, for their dependencies, and each one's place in it."""
    kept = sorted(relations)
    place = {position: index for index, position in enumerate(kept)}
    edges = tuple(
        Edge(place[edge.left], edge.left_column, place[edge.right], edge.right_column)
        for edge in block.edges
        if edge.left in place and edge.right in place
    )
    chosen = tuple(block.relations[position] for position in kept)
    return Block(chosen, edges, tuple(block.local[position] for position in kept), (), ()), place


@lru_cache(maxsize=1024)
def conditions_between(block: Block) -> tuple[tuple[frozenset[int], Expression], ...]:
    """All conditions on several relations, edges included, each with the relations it reads."""
    equalities = [call("=", Column(edge.left_column), Column(edge.right_column)) for edge in block.edges]
    return tuple(
        (frozenset(block.position_of(column) for column in columns_of(condition)), condition)
        for condition in (*equalities, *block.residual)
    )


@lru_cache(maxsize=4096)
def view_access(block: Block, rounds: Rounds, join_step: JoinStep) -> ViewAccess | None:
    """Whether and how the view can answer for a relation and all that are reached from it."""
    relations = _reached_from(rounds, join_step)
    part, place = within(block, relations)
    names = {column: name for column, name in shown_as(block).items() if block.position_of(column) in place}
    fixed = closure(part, names)
    if not all(relation.key and fixed.issuperset(relation.key) for relation in part.relations):
        return None
    joined = frozenset(own for _, own in join_step.on)
    by_key = joined.issuperset(block.relations[join_step.relation].key) and all(
        determines(part, place[join_step.relation], place[other]) for other in relations
    )
    crossing = _crossing(block, relations, join_step)
    of_use = {column for _, expression in block.projection for column in columns_of(expression)}
    of_use.update(column for condition in crossing for column in columns_of(condition))
    of_use.update(joined)
    if (crossing and not by_key) or any(
        block.position_of(column) in place and column not in names for column in of_use
    ):
        return None
    columns: list[Output] = [
        (column, Column(names[column]) if column in names else Literal(None))
        for position in sorted(relations)
        for column in block.needed[position]
    ]
    shown = tuple(dict.fromkeys(names[column] for column, _ in columns if column in names))
    return ViewAccess(tuple(sorted(relations)), by_key, shown, tuple(columns))


def _reached_from(rounds: Rounds, join_step: JoinStep) -> frozenset[int]:
    relations = {join_step.relation}
    for sub_queries in rounds:
        for other in (other for sub_query in sub_queries for other in sub_query.join_steps):
            if other.parent in relations:
                relations.add(other.relation)
    return frozenset(relations)


def _crossing(block: Block, relations: frozenset[int], join_step: JoinStep) -> list[Expression]:
    """Conditions between these relations and all others, without the ones they are reached by."""
    reached_by = {frozenset(pair) for pair in join_step.on}
    return [
        condition
        for read, condition in conditions_between(block)
        if read & relations and read - relations and frozenset(columns_of(condition)) not in reached_by
    ]


def ask_the_view(
    computation: Computation, join_step: JoinStep, access: ViewAccess
) -> Steps[tuple[Bag, Bag] | None]:
    """The values found in the view, under the parent's names, and the rows found, compensated.

    None, if the view does not show it. A value may be found and have no row left (Lemma 2).
    """
    site, block, number = computation.site, computation.block, computation.sent.update.block
    state: Bag = yield Stored(site.view.name)
    known = state.distinct(access.shown).project(access.columns).materialized()
    missing: dict[int, Missing] = {}
    for position in access.relations:
        updates = site.captured(number, position).between(
            site.refreshed(number, position), computation.sent.initial[position]
        )
        if updates:
            missing[position] = missing_updates(block, position, updates)
    if known.is_empty() or not _can_compensate(block, access, missing):
        return None
    alone = len(access.relations) == 1
    if not alone:
        for position, each in missing.items():
            known = yield from drop(known, block.relations[position], each.changed)
    own = [own for _, own in join_step.on]
    values = known.distinct(own).project([(parent, Column(name)) for parent, name in join_step.on])
    for position, each in missing.items():
        relation = block.relations[position]
        known = yield from drop(known, relation, [*each.deleted, *(each.changed if alone else ())])
        known = yield from modify(known, relation, each.modified)
        if alone and each.inserted:
            inserted = yield from block_rows(block, position, each.inserted)
            known = known.plus(inserted.project(keep(known.columns))).net_effect().materialized()
    return values, known


def _can_compensate(block: Block, access: ViewAccess, missing: dict[int, Missing]) -> bool:
    """Whether the missing updates follow from what the view shows.

    Rows that newly joined the view's part are only known to be none if the value is a key, or if there is
    one relation, whose new rows are in the messages.
    """
    names = shown_as(block)
    for position, each in missing.items():
        if each.touches_shown_rows and not all(name in names for name in block.relations[position].key):
            return False
        if each.inserted and not access.by_key and len(access.relations) > 1:
            return False
    return True

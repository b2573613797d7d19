"""The join graph: in which order, and in how few sub-queries, to reach the other relations.

Starting at the relation that changed, every round asks each source once for all relations that can be
reached through it (sze2000 report §4.1: a connected sub-graph of one source is one sub-query, independent
branches go out in parallel). Only where the graph is disconnected is a relation asked for as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rollview.algebra.expression import Column, Expression, call, columns_of
from rollview.algebra.node import Block


@dataclass(frozen=True)
class JoinStep:
    """One relation reached from another one (its parent) through equal columns.

    `on` pairs the parent's columns with the relation's own, none of them twice. No parent: the product with
    everything.
    `shipped` says that the parent is known at the warehouse, so its values are sent along; otherwise the
    parent is reached in the same sub-query. `conditions` are those that can first be tested here.
    """

    relation: int
    parent: int | None
    on: tuple[tuple[str, str], ...]
    shipped: bool
    conditions: tuple[Expression, ...]


@dataclass(frozen=True)
class SubQuery:
    """The join steps of one sub-query: relations of one source, parents before children."""

    source: str
    join_steps: tuple[JoinStep, ...]


@dataclass(frozen=True)
class AccessPath:
    """How to evaluate a block in which some relations are known at the warehouse.

    `known` joins those with each other, the first one with nothing; `rounds` reaches all the others.
    """

    known: tuple[JoinStep, ...]
    rounds: tuple[tuple[SubQuery, ...], ...]


@lru_cache(maxsize=4096)
def access_path(block: Block, *known: int) -> AccessPath:
    """The path from the known relations to every other relation of the block."""
    path = _Path(block)
    joins = tuple(path.join_known(relation) for relation in known)
    rounds = []
    while len(path.joined) < len(block.relations):
        rounds.append(path.next_round())
    return AccessPath(joins, tuple(rounds))


class _Path:
    """The walk through the graph; conditions are handed out once, where their last column appears."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.joined: list[int] = []
        self.conditions = [*block.residual]
        self.edges = list(block.edges)

    def join_known(self, relation: int) -> JoinStep:
        pairs: tuple[tuple[str, str], ...] = ()
        for parent in self.joined:
            pairs = self._take_edges(parent, relation, pairs)
        self.joined.append(relation)
        return JoinStep(relation, None, pairs, False, self._conditions())

    def next_round(self) -> tuple[SubQuery, ...]:
        known = tuple(self.joined)
        sources = dict.fromkeys(self._source(n) for j in known for n in self._neighbours(j))
        if not sources:
            # A disconnected graph: the product with the first relation that is left.
            rest = next(i for i in range(len(self.block.relations)) if i not in self.joined)
            self.joined.append(rest)
            join_step = JoinStep(rest, None, (), True, self._conditions())
            return (SubQuery(self._source(rest), (join_step,)),)
        return tuple(self._sub_query(source, known) for source in sources)

    def _sub_query(self, source: str, known: tuple[int, ...]) -> SubQuery:
        join_steps: list[JoinStep] = []
        parents = list(known)
        # The list grows while it is walked: a relation that was reached is a parent of the next ones.
        for parent in parents:
            for relation in self._neighbours(parent):
                if self._source(relation) == source:
                    on = self._take_edges(parent, relation)
                    self.joined.append(relation)
                    parents.append(relation)
                    conditions = self._conditions()
                    join_steps.append(JoinStep(relation, parent, on, parent in known, conditions))
        return SubQuery(source, tuple(join_steps))

    def _source(self, relation: int) -> str:
        return self.block.relations[relation].table.site

    def _neighbours(self, relation: int) -> list[int]:
        """Relations not yet joined that share an edge with this one, in the view's order."""
        found = {edge.right for edge in self.block.edges if edge.left == relation}
        found |= {edge.left for edge in self.block.edges if edge.right == relation}
        return sorted(found - set(self.joined))

    def _take_edges(
        self, parent: int, relation: int, taken: tuple[tuple[str, str], ...] = ()
    ) -> tuple[tuple[str, str], ...]:
        """Adds the edges between two relations to those taken, each column once on either side.

        Where a column equals two others, the second edge is left to be a condition.
        """
        pairs = dict(taken)
        for edge in self.block.edges:
            if (edge.left, edge.right) == (parent, relation):
                theirs, own = edge.left_column, edge.right_column
            elif (edge.right, edge.left) == (parent, relation):
                theirs, own = edge.right_column, edge.left_column
            else:
                continue
            if theirs not in pairs and own not in pairs.values():
                pairs[theirs] = own
                self.edges.remove(edge)
        return tuple(pairs.items())

    def _conditions(self) -> tuple[Expression, ...]:
        """Conditions, and edges that close a cycle, whose relations are all joined now."""
        closing = [edge for edge in self.edges if edge.left in self.joined and edge.right in self.joined]
        for edge in closing:
            self.edges.remove(edge)
        ready = [
            condition
            for condition in self.conditions
            if all(self.block.position_of(column) in self.joined for column in columns_of(condition))
        ]
        for condition in ready:
            self.conditions.remove(condition)
        equalities = [call("=", Column(edge.left_column), Column(edge.right_column)) for edge in closing]
        return (*equalities, *ready)


def connected_order(block: Block) -> tuple[int, ...]:
    """All relations, each next to one before it where the graph is connected, so that no product is made."""
    rest = dict.fromkeys(range(len(block.relations)))
    order: list[int] = []
    while rest:
        joined = set(order)
        touching = (
            i
            for i in rest
            if any(
                (e.left == i and e.right in joined) or (e.right == i and e.left in joined)
                for e in block.edges
            )
        )
        chosen = next(touching, next(iter(rest)))
        del rest[chosen]
        order.append(chosen)
    return tuple(order)

"""Blocks: the select-project-join parts of a view, π(σ(R1 ⋈ … ⋈ Rn)), at the leaves of its tree.

The parts of a block are told apart: equi-join edges (the join graph), conditions on one relation (local), the
rest (residual), and the projection. Columns inside a block are called `alias.column`. Its delta is what the
algorithms compute; to the tree above it is a bag of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar, TypeVar

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.dependencies import view_key
from rollview.algebra.derivation import Form
from rollview.algebra.expression import Column, Expression, call, columns_of
from rollview.algebra.node import Node
from rollview.algebra.relation import Edge, Relation
from rollview.algebra.text import facts, plain_sql, plain_sql_of

B = TypeVar("B", bound=Bag)


@dataclass(frozen=True)
class Block(Node):
    """A maximal select-project-join part of a view."""

    relations: tuple[Relation, ...]
    edges: tuple[Edge, ...]
    local: tuple[tuple[Expression, ...], ...]
    residual: tuple[Expression, ...]
    projection: tuple[Output, ...]

    name: ClassVar[str] = "block"
    is_linear: ClassVar[bool] = True

    def __hash__(self) -> int:
        # Plans are looked up by block at every hop, so the hash is computed once.
        return self._hash

    def __getstate__(self) -> dict[str, object]:
        # Hashes of strings differ between processes, so nothing that was computed travels with the block.
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def _hash(self) -> int:
        return hash((self.relations, self.edges, self.local, self.residual, self.projection))

    @cached_property
    def output_columns(self) -> tuple[str, ...]:
        """The names of the projected columns."""
        return tuple(name for name, _ in self.projection)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The block itself."""
        return (self,)

    @cached_property
    def needed(self) -> tuple[tuple[str, ...], ...]:
        """For each relation the columns that are read after its local conditions have been applied."""
        used = {edge.left_column for edge in self.edges} | {edge.right_column for edge in self.edges}
        for expression in (*self.residual, *(expression for _, expression in self.projection)):
            used.update(columns_of(expression))
        return tuple(tuple(name for name in relation.columns if name in used) for relation in self.relations)

    def position_of(self, column: str) -> int:
        """The relation that a column of the block belongs to."""
        alias = column.rpartition(".")[0]
        return next(i for i, relation in enumerate(self.relations) if relation.alias == alias)

    @property
    def row_key(self) -> tuple[str, ...] | None:
        """The key of the view row, where the declared keys give one."""
        return view_key(self)

    @property
    def form(self) -> Form:
        """Its projection, its conditions, and its equalities as such."""
        equal = (call("=", Column(edge.left_column), Column(edge.right_column)) for edge in self.edges)
        local = (condition for conditions in self.local for condition in conditions)
        relations = tuple((each.alias, each.table.qualified) for each in self.relations)
        return Form(relations, frozenset((*equal, *local, *self.residual)), dict(self.projection))

    @cached_property
    def unjoined(self) -> tuple[Relation, ...]:
        """The relations that no chain of equalities leads to from the first one."""
        reached = {0}
        for _ in self.relations:
            reached |= {edge.right for edge in self.edges if edge.left in reached}
            reached |= {edge.left for edge in self.edges if edge.right in reached}
        return tuple(each for place, each in enumerate(self.relations) if place not in reached)

    def absorb(self, position: int, rows: B, *extra: str) -> B:
        """The rows themselves: what a block has computed is its state."""
        assert position == 0
        return rows.project(keep((*self.output_columns, *extra)))

    def state_of(self, contents: Iterator[B]) -> B:
        """Its own content, which is the next one."""
        return next(contents).net_effect()

    def rows_of(self, contents: Iterator[B]) -> B:
        """Its own content, which is the next one; counts need not be net."""
        return next(contents)

    def lift(self, number: int, delta: B, *extra: str) -> B:  # noqa: ARG002 - all columns are kept
        """The delta itself."""
        assert number == 0
        return delta

    def render(self, place: str = "") -> Iterator[str]:
        """Relations, edges, conditions and projection."""
        yield f"{self.name}{place}"
        yield from facts("relations", [_relation(relation) for relation in self.relations])
        yield from facts("edges", [f"{edge.left_column} = {edge.right_column}" for edge in self.edges])
        local = [plain_sql(condition) for conditions in self.local for condition in conditions]
        yield from facts("local", local)
        yield from facts("residual", map(plain_sql, self.residual))
        yield from facts("projection", plain_sql_of(self.projection) or ["nothing: rows are only counted"])

    def explain(self) -> str:
        """Of the join, nothing but its rows is stored."""
        return "rows; a change is joined with its matching rows, looked up at the sources by key"


def _relation(relation: Relation) -> str:
    key = f" (key {', '.join(relation.table.key)})" if relation.table.key else " (no key)"
    return f"{relation.alias}: {relation.table.qualified}{key}"

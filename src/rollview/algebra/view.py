"""View definitions in normal form: trees whose leaves are select-project-join blocks.

A block is π(σ(R1 ⋈ … ⋈ Rn)) with its parts told apart: equi-join edges (the join graph), conditions on
one relation (local), the rest (residual), and the projection. Columns inside a block are called
`alias.column`. Nodes above blocks are linear for now: UNION ALL, and COUNT, SUM, AVG with GROUP BY kept
as sums (summary deltas), so a delta passes through them one at a time and no state is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property

from rollview.algebra.bag import Output
from rollview.algebra.expression import Expression, columns_of

ROWS = "_rows"
"""The measure of an aggregate that counts the rows of a group."""


@dataclass(frozen=True)
class ForeignKey:
    """A declared referential integrity constraint: these columns refer to the key of another table."""

    columns: tuple[str, ...]
    references: str


@dataclass(frozen=True)
class Table:
    """A base table at a source, with what is declared about it.

    `types` are the columns' Spark SQL types, where they are known. A view that another view reads is a
    table without a source. `own_log` says that the table commits and answers on its own (a Delta table, a
    folder of dumps, a view), so that its source is no more than a folder of such tables.
    """

    source: str
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    types: tuple[str, ...] = ()
    own_log: bool = False

    @cached_property
    def qualified(self) -> str:
        """`source.table`, the name that views use; a view's name has no source."""
        return f"{self.source}.{self.name}" if self.source else self.name

    @cached_property
    def site(self) -> str:
        """What commits its changes in one order and answers sub-queries as one: mostly the source."""
        return self.qualified if self.own_log else self.source


@dataclass(frozen=True)
class Relation:
    """One occurrence of a table in a view; a self-join has two of one table."""

    alias: str
    table: Table

    def column(self, name: str) -> str:
        """The name of a column inside the block."""
        return f"{self.alias}.{name}"

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """All columns, by the names they have inside the block."""
        return tuple(self.column(name) for name in self.table.columns)

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The declared key, by the names inside the block; empty if none is declared."""
        return tuple(self.column(name) for name in self.table.key)


@dataclass(frozen=True)
class Edge:
    """An equality between columns of two relations, given by position; `left` < `right`."""

    left: int
    left_column: str
    right: int
    right_column: str


@dataclass(frozen=True)
class Block:
    """A maximal select-project-join part of a view."""

    relations: tuple[Relation, ...]
    edges: tuple[Edge, ...]
    local: tuple[tuple[Expression, ...], ...]
    residual: tuple[Expression, ...]
    projection: tuple[Output, ...]

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


@dataclass(frozen=True)
class UnionAll:
    """The sum of blocks with the same output columns."""

    inputs: tuple[Block, ...]

    @property
    def output_columns(self) -> tuple[str, ...]:
        """The names of the first block's columns, as SQL has it."""
        return self.inputs[0].output_columns


@dataclass(frozen=True)
class Aggregate:
    """Groups with sums: `keys` and `measures` are stored, `output` is what a reader sees of them.

    The first measure is always `_rows`; a group exists while it is not zero.
    """

    input: Block | UnionAll
    keys: tuple[str, ...]
    measures: tuple[Output, ...]
    output: tuple[Output, ...]

    @property
    def output_columns(self) -> tuple[str, ...]:
        """The names of the columns that a reader sees."""
        return tuple(name for name, _ in self.output)


Node = Block | UnionAll | Aggregate


@dataclass(frozen=True)
class View:
    """A named view: its tree, its text and its properties."""

    name: str
    root: Node
    sql: str
    properties: dict[str, str] = field(default_factory=dict, hash=False, compare=False)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The leaves of the tree, left to right."""
        return tuple(blocks_of(self.root))

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """The base tables that the view reads, each once."""
        return tuple(dict.fromkeys(relation.table for block in self.blocks for relation in block.relations))


def blocks_of(node: Node) -> Iterator[Block]:
    """The blocks below a node, left to right."""
    if isinstance(node, Block):
        yield node
    elif isinstance(node, UnionAll):
        yield from node.inputs
    else:
        yield from blocks_of(node.input)

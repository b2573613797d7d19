"""View definitions: a named tree of operators over base tables, with the text and the properties it was
given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from rollview.algebra.block import Block
from rollview.algebra.node import Node
from rollview.algebra.relation import Table


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
        return self.root.blocks

    @property
    def block(self) -> Block | None:
        """The block that the whole view is; None if there is an operator above it."""
        return self.blocks[0] if self.blocks == (self.root,) else None

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """The base tables that the view reads, each once."""
        return tuple(dict.fromkeys(relation.table for block in self.blocks for relation in block.relations))

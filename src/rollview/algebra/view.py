"""View definitions: a named tree of operators over base tables, with the text and the properties it was
given.

Where an operator with a state is below another one, the tree is cut: the lower part becomes a *stage*, a
view of its own that nobody named, and a relation of the part above. So each part has its state and its timed
delta, and trees may be as deep as one likes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property

from rollview.algebra.node import Block, Node
from rollview.algebra.relation import Table
from rollview.algebra.stage_names import STAGE_MARK, is_stage, owner

__all__ = ["STAGE_MARK", "View", "is_stage", "owner"]


@dataclass(frozen=True)
class View:
    """A named view: its tree, its text, its properties and the stages that its tree reads directly.

    Where a view is recomputed as a whole, so are its stages: then they are not stored.
    """

    name: str
    root: Node
    sql: str
    properties: dict[str, str] = field(default_factory=dict, hash=False, compare=False)
    stages: tuple[View, ...] = ()
    types: dict[str, str] = field(default_factory=dict, hash=False, compare=False)
    """Of expressions, as Spark stated them when the view was defined; they belong to the definition."""
    stores_stages: bool = True
    ordered_sql: str = ""
    """The text with complete orders, where those that are written leave open which rows come first."""
    algorithm: str = field(default="", compare=False)
    """The algorithm of a step, where the definition leaves the choice to measured costs."""

    @property
    def exact_sql(self) -> str:
        """The text that defines the view, for Spark to compute."""
        return self.ordered_sql or self.sql

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
        """The inputs of the view: base tables, other views and stored stages, each once."""
        return self._read if self.stores_stages else self.named_tables

    def is_empty_without(self, tables: Collection[str]) -> bool:
        """Whether every block joins one of these tables: where they are empty, so is every block."""
        return all(
            any(relation.table.qualified in tables for relation in block.relations) for block in self.blocks
        )

    @cached_property
    def _read(self) -> tuple[Table, ...]:
        return tuple(dict.fromkeys(relation.table for block in self.blocks for relation in block.relations))

    @cached_property
    def parts(self) -> tuple[View, ...]:
        """All stages, however deep, each after those that it reads; the view itself is the last."""
        below = {part.name: part for stage in self.stages for part in stage.parts}
        return (*below.values(), self)

    @property
    def stored_parts(self) -> tuple[View, ...]:
        """Those parts that have a table in the lake."""
        return self.parts if self.stores_stages else (self,)

    @cached_property
    def named_tables(self) -> tuple[Table, ...]:
        """The tables that the view's text names, each once: what all parts read, less the stages."""
        tables = [table for part in self.parts for table in part._read]
        return tuple(dict.fromkeys(table for table in tables if table.source or not is_stage(table.name)))

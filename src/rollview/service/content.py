"""The content of a view's blocks computed from complete relations, on the bags that the deltas use.

The first load uses it; `verify` deliberately does not, but has Spark run the view's own text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from rollview.algebra.bag import Bag
from rollview.algebra.block import Block
from rollview.algebra.expression import Column
from rollview.algebra.join_graph import connected_order
from rollview.algebra.node import Node
from rollview.algebra.view import View
from rollview.algorithms.source_evaluate import join_known

B = TypeVar("B", bound=Bag)


def block_contents(root: Node, tables: Mapping[str, B]) -> Iterator[B]:
    """The content of each block below a node, left to right; `tables` has the rows of every base table."""
    for block in root.blocks:
        yield _content(block, [tables[relation.table.qualified] for relation in block.relations])


def with_stages(
    view: View, tables: Mapping[str, B], kept: Callable[[B], B] = lambda rows: rows
) -> dict[str, B]:
    """The rows of base tables, and of the view's stages computed from them, each `kept` for those above."""
    known = dict(tables)
    for stage in view.parts[:-1]:
        known[stage.name] = kept(stage.root.rows_of(block_contents(stage.root, known)))
    return known


def _content(block: Block, relations: Sequence[B]) -> B:
    """The block's rows; those of its relations have the tables' own columns."""
    known = {
        position: relations[position].project(
            [
                (inside, Column(own))
                for own, inside in zip(relation.table.columns, relation.columns, strict=True)
            ]
        )
        for position in connected_order(block)
        for relation in (block.relations[position],)
    }
    joined: B = join_known(block, known)  # type: ignore[assignment]
    return joined.project(block.projection)

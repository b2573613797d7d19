"""The content of a view computed from complete relations, on the bags that the deltas use.

The first load uses it; `verify` deliberately does not, but has Spark run the view's own text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TypeVar

from rollview.algebra.bag import Bag
from rollview.algebra.expression import Column
from rollview.algebra.join_graph import connected_order
from rollview.algebra.view import Block, Node, blocks_of
from rollview.algorithms.source_evaluate import join_known

B = TypeVar("B", bound=Bag)


def content(root: Node, relations: Sequence[Sequence[B]]) -> B:
    """The sum of the blocks below a node; `relations` holds for each block its relations' rows.

    Rows have the tables' own columns.
    """
    blocks = tuple(blocks_of(root))
    names = blocks[0].output_columns
    parts = [_block_content(block, rows, names) for block, rows in zip(blocks, relations, strict=True)]
    return reduce(lambda left, right: left.plus(right), parts)


def _block_content(block: Block, relations: Sequence[B], names: Sequence[str]) -> B:
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
    outputs = [expression for _, expression in block.projection]
    return joined.project(tuple(zip(names, outputs, strict=True)))

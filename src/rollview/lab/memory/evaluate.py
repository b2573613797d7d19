"""The oracle: a view computed from scratch, by nested loops over complete states.

It shares nothing with the bags' joins and knows no deltas, so that it can judge both. Slow by design,
but conditions are tested as soon as their columns are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from rollview.algebra.expression import Column, Row, call, columns_of, conjunction
from rollview.algebra.node import Block, Node
from rollview.lab.memory.bag import MemoryBag
from rollview.lab.memory.compiled import Compiled, compile_expression

State = Mapping[str, Mapping[Row, int]]
"""For every table (`source.table`) its rows with counts."""


def evaluate(root: Node, state: State) -> MemoryBag:
    """The reader's rows of a view when the sources are in this state."""
    return root.rows_of(evaluate_blocks(root, state))


def evaluate_blocks(root: Node, state: State) -> Iterator[MemoryBag]:
    """The contents of the blocks below a node, left to right."""
    return (_evaluate_block(block, state) for block in root.blocks)


def joined(block: Block, relations: Sequence[Mapping[Row, int]]) -> list[tuple[Row, int]]:
    """The combinations of rows, one of each relation, that meet all conditions; with all their columns."""
    rows: list[tuple[Row, int]] = [((), 1)]
    for (_, holds), there in zip(_stages(block)[0], relations, strict=True):
        rows = [
            (candidate, count * more)
            for row, count in rows
            for added, more in there.items()
            if holds(candidate := row + added) is True
        ]
    return rows


def _evaluate_block(block: Block, state: State) -> MemoryBag:
    counts: dict[Row, int] = {}
    stages, outputs = _stages(block)
    for row, count in joined(block, [state[table] for table, _ in stages]):
        projected = tuple([output(row) for output in outputs])
        counts[projected] = counts.get(projected, 0) + count
    return MemoryBag(block.output_columns, {row: count for row, count in counts.items() if count})


@lru_cache(maxsize=1024)
def _stages(block: Block) -> tuple[tuple[tuple[str, Compiled], ...], tuple[Compiled, ...]]:
    """For each relation its table and what can be tested once it has been added."""
    waiting = [
        *(condition for conditions in block.local for condition in conditions),
        *(call("=", Column(edge.left_column), Column(edge.right_column)) for edge in block.edges),
        *block.residual,
    ]
    columns: tuple[str, ...] = ()
    stages = []
    for relation in block.relations:
        columns += relation.columns
        ready = [condition for condition in waiting if set(columns_of(condition)) <= set(columns)]
        waiting = [condition for condition in waiting if condition not in ready]
        holds = compile_expression(conjunction(tuple(ready)), columns)
        stages.append((relation.table.qualified, holds))
    return tuple(stages), tuple(compile_expression(output, columns) for _, output in block.projection)

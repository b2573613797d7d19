"""From a block's timed delta to the view's, from the view's delta to its next state, to what readers see.

All nodes are linear, so `lift` maps each block's delta on its own and the results are simply added. A
stored state is a bag of rows for UNION ALL and blocks, and a bag of groups with their measures for an
aggregate; `roll` moves it along a delta and `present` shows it with the view's own columns.
"""

from __future__ import annotations

from typing import TypeVar

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.expression import Column, Literal, call
from rollview.algebra.history import CSN
from rollview.algebra.view import ROWS, Aggregate, Node

B = TypeVar("B", bound=Bag)


def lift(root: Node, delta: B) -> B:
    """The view's timed delta (with `_csn`) for a timed delta of one of its blocks.

    The block's columns may be called otherwise than the view's (UNION ALL takes the first one's names).
    """
    names = (root.input if isinstance(root, Aggregate) else root).output_columns
    if delta.columns != (*names, CSN):
        delta = delta.project([*zip(names, map(Column, delta.columns), strict=False), (CSN, Column(CSN))])
    if isinstance(root, Aggregate):
        return delta.summarize((*root.keys, CSN), root.measures)
    return delta


def initial_state(root: Node, rows: B) -> B:
    """The stored state for the sum of the blocks' full contents."""
    return rows.summarize(root.keys, root.measures) if isinstance(root, Aggregate) else rows


def roll(root: Node, state: B, delta: B) -> B:
    """The state after a piece of the view's timed delta: net effect, whatever the order of its rows."""
    total = state.plus(delta.project(keep(state.columns)))
    if not isinstance(root, Aggregate):
        return total.net_effect()
    sums: list[Output] = [(name, Column(name)) for name, _ in root.measures]
    groups = total.summarize(root.keys, sums)
    return groups.select(call("<>", Column(ROWS), Literal(0))) if root.keys else groups


def present(root: Node, state: B) -> B:
    """What a reader of the view sees."""
    return state.project(root.output) if isinstance(root, Aggregate) else state

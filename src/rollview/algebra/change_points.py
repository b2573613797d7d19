"""change_points: what a timed delta of a state does to the rows that a reader sees.

**The law.** With S the state at csn `after` and D its timed delta from there on, the state of a key at csn c
is the sum of S and of all of D up to c. Each transaction c that touched a key therefore takes away the rows
that the operator shows for the sum before c, and adds those that it shows for the sum up to c.

All points are evaluated in one pass: every (key, csn) of the delta is joined with the pieces of its key, and
the operator's own `present` runs with the point's csn as one more key. A view that reads another view takes
the result as the change log of that view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rollview.algebra.bag import Bag, keep
from rollview.algebra.expression import Column, Literal, call, conjunction
from rollview.algebra.history import CSN

if TYPE_CHECKING:
    from rollview.algebra.node import Node

B = TypeVar("B", bound=Bag)

_POINT = "_point"


def change_points(node: Node, state: B, delta: B, after: int) -> B:
    """The timed delta of the operator's rows; `state` is its state at csn `after`."""
    columns = node.state_columns
    at_start = state.project((*keep(columns), (CSN, Literal(after))))
    pieces = at_start.plus(delta.project(keep((*columns, CSN))))
    points = delta.distinct((*node.key, CSN)).project(
        (*((_own(key), Column(key)) for key in node.key), (_POINT, Column(CSN)))
    )
    now = _rows_at(node, points, pieces, "<=")
    before = _rows_at(node, points, pieces, "<")
    return now.plus(before.negate()).net_effect()


def _rows_at(node: Node, points: B, pieces: B, comparison: str) -> B:
    """For every point of a key, the rows that the operator shows for the key's pieces up to it."""
    same = [call("<=>", Column(_own(key)), Column(key)) for key in node.key]
    condition = conjunction((*same, call(comparison, Column(CSN), Column(_POINT))))
    there = node.existing(node.net_effect(points.join(pieces, (), condition), _POINT))
    shown = node.present(there, _POINT)
    return shown.project((*keep(node.output_columns), (CSN, Column(_POINT))))


def _own(key: str) -> str:
    return f"{key}'"

"""row_delta: what an aggregate's summary delta does to the rows that a reader sees.

**The law.** With S the state at csn `after` and D the summary delta from there on, a group is at csn c the
sum of S and all of D up to c. Each transaction c that touched a group therefore takes away the group's row
as the sum before c gives it and adds the row that the sum up to c gives; a group without rows has none.

A view that reads another view takes this as the change log of that view. For views that are no aggregates
the delta is already one of rows.
"""

from __future__ import annotations

from typing import TypeVar

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.expression import Column, Literal, call, conjunction
from rollview.algebra.history import CSN
from rollview.algebra.view import ROWS, Aggregate, Node

B = TypeVar("B", bound=Bag)

_MOMENT = "_moment"


def row_delta(root: Node, state: B, delta: B, after: int) -> B:
    """The timed delta of the view's rows; `state` is the view's state at csn `after`."""
    if not isinstance(root, Aggregate):
        return delta
    columns = (*root.keys, *(name for name, _ in root.measures))
    at_start = state.project((*keep(columns), (CSN, Literal(after))))
    pieces = at_start.plus(delta.project(keep((*columns, CSN))))
    moments = delta.distinct((*root.keys, CSN)).project(
        (*((_own(key), Column(key)) for key in root.keys), (_MOMENT, Column(CSN)))
    )
    now = _rows_at(root, moments, pieces, "<=")
    before = _rows_at(root, moments, pieces, "<")
    return now.plus(before.negate()).net_effect()


def _rows_at(root: Aggregate, moments: B, pieces: B, comparison: str) -> B:
    """For every moment of a group, the row that its pieces up to then add up to."""
    same = [call("<=>", Column(_own(key)), Column(key)) for key in root.keys]
    condition = conjunction((*same, call(comparison, Column(CSN), Column(_MOMENT))))
    sums: list[Output] = [(name, Column(name)) for name, _ in root.measures]
    groups = moments.join(pieces, (), condition).summarize((*root.keys, _MOMENT), sums)
    if root.keys:
        groups = groups.select(call("<>", Column(ROWS), Literal(0)))
    return groups.project((*root.output, (CSN, Column(_MOMENT))))


def _own(key: str) -> str:
    return f"{key}'"

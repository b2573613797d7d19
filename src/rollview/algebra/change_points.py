"""change_points: what a timed delta of a state does to the rows that a reader sees.

**The law.** With S the state at csn `after` and D its timed delta from there on, the state of a key at csn c
is the sum of S and of all of D up to c. Each transaction c that touched a key therefore takes away the rows
that the operator shows for the sum before c, and adds those that it shows for the sum up to c.

All points are evaluated in one pass: every (key, csn) of the delta is joined with the pieces of its key, and
the operator's own `present` runs with the point's csn as one more key. Where a state is nothing but sums,
those up to each point are running totals, and a key that changes a thousand times costs a thousand rows, not
their square (`running_points`). A view that reads another one takes the result as the change log of that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from rollview.algebra.bag import Bag, before_it, keep
from rollview.algebra.expression import Column, Expression, Literal, call, conjunction
from rollview.algebra.history import CSN

B = TypeVar("B", bound=Bag)

_POINT = "_point"


class Presented(Protocol):
    """The methods needed of an operator: its columns, and the reader's rows of a state (see `Node`)."""

    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def state_columns(self) -> tuple[str, ...]: ...
    @property
    def output_columns(self) -> tuple[str, ...]: ...
    def net_effect(self, rows: B, *extra: str) -> B: ...
    def existing(self, net: B) -> B: ...
    def present(self, state: B, *extra: str) -> B: ...


FEW_PAIRS = 200_000
"""So many pairs of a change point and a row are looked at without a thought of how to have less."""


def are_few(node: Presented, state: B, delta: B) -> bool:
    """Whether there are few pairs of a change point and a row of the state, as far as is known already."""
    pairs = delta.distinct((*node.key, CSN)).pairs(state, node.key)
    return pairs is not None and pairs <= FEW_PAIRS


def change_points(node: Presented, state: B, delta: B, after: int) -> B:
    """The timed delta of the operator's rows, not net; `state` is its state at csn `after`."""
    columns = node.state_columns
    changes = delta.project(keep((*columns, CSN)))
    pieces = _of_the_same_keys(node, state, changes, after).plus(changes)
    points = delta.distinct((*node.key, CSN)).project(
        (*((_own(key), Column(key)) for key in node.key), (_POINT, Column(CSN)))
    )
    now = _rows_at(node, points, pieces, "<=")
    before = _rows_at(node, points, pieces, "<")
    return now.plus(before.negate())


def running_points(node: Presented, sums: Sequence[str], state: B, delta: B, after: int) -> B:
    """The same for a state that has one row per key, of which `sums` are added up."""
    changes = delta.project(keep((*node.state_columns, CSN)))
    pieces = _of_the_same_keys(node, state, changes, after).plus(changes)
    totals = pieces.running(node.key, CSN, sums).select(call(">", Column(CSN), Literal(after)))
    sums_before = tuple((name, Column(before_it(name))) for name in sums)
    now = totals.project(keep((*node.key, *sums, CSN)))
    before = totals.project((*keep(node.key), *sums_before, *keep((CSN,))))
    # Each row of such a state is shown alone, so those that go can be looked at with those that come.
    both = node.existing(now.plus(before.negate()))
    return node.present(both, CSN).project(keep((*node.output_columns, CSN)))


def _of_the_same_keys(node: Presented, state: B, changes: B, after: int) -> B:
    """The rows of a state that have a key of the changes, as they are at csn `after`."""
    near = state.sharing(changes, node.key) if node.key else state
    return near.project((*keep(node.state_columns), (CSN, Literal(after))))


def _same_key(node: Presented, *more: Expression) -> Expression:
    return conjunction((*(call("<=>", Column(_own(key)), Column(key)) for key in node.key), *more))


def _rows_at(node: Presented, points: B, pieces: B, comparison: str) -> B:
    """For every point of a key, the rows that the operator shows for the key's pieces up to it."""
    condition = _same_key(node, call(comparison, Column(CSN), Column(_POINT)))
    there = node.existing(node.net_effect(points.join(pieces, (), condition), _POINT))
    shown = node.present(there, _POINT)
    return shown.project((*keep(node.output_columns), (CSN, Column(_POINT))))


def _own(key: str) -> str:
    return f"{key}'"

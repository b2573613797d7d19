"""The net effect of a view delta: what is left of it when its records are applied together.

**Source.** beyer2000 §5 and §5.1. Records of a delta that are applied together need no order: counts of
equal rows add up and zeros vanish (Lemma 10); for a summary delta, measures add up per group and zeros
stay, because a group may keep its number of rows and still change its sums (Lemma 9). Under a key, what
remains is at most one deletion of an existing row and one insertion per key (Lemma 11), so all deletions
before all insertions never meets a row twice and never misses one. Any other order may.

**Symbols.** ΔV → `records`, a bag with the columns of the stored view and any others, which are dropped
here (xid, timestamp); φ → `Bag.net_effect`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rollview.algebra.bag import COUNT, Bag, keep
from rollview.algebra.expression import Column, Expression, Literal, call, conjunction
from rollview.algebra.node import Node

B = TypeVar("B", bound=Bag)


def in_order(root: Node, net: B) -> tuple[B, ...]:
    """A net effect as the pieces to apply one after the other: deletions before insertions under a key.

    A summary delta has one record per group, and without a key nothing can be violated: one piece.
    """
    return (net,) if root.row_key is None else deletions_and_insertions(root.row_key, net)


def deletions_and_insertions(key: Sequence[str], net: B) -> tuple[B, B]:
    """The rows of a net effect with negative and with positive counts; key columns hold no NULL."""
    counted = net.summarize(net.columns, [(COUNT, Literal(1))])
    deleted = _rows_in(key, net, counted.select(call("<", Column(COUNT), Literal(0))))
    inserted = _rows_in(key, net, counted.select(call(">", Column(COUNT), Literal(0))))
    return deleted, inserted


def _rows_in(key: Sequence[str], net: B, chosen: B) -> B:
    """The rows of a bag that occur in another, with the counts of the first.

    Only the key is joined by equality: other columns may be NULL, which a join never finds.
    """
    renamed = chosen.project([(f"{name}'", Column(name)) for name in net.columns])
    same: list[Expression] = [
        call("<=>", Column(name), Column(f"{name}'")) for name in net.columns if name not in key
    ]
    joined = net.join(renamed, [(name, f"{name}'") for name in key], conjunction(tuple(same)))
    return joined.project(keep(net.columns))


@dataclass(frozen=True, slots=True)
class Range:
    """Commit times with after < time ≤ upto."""

    after: int
    upto: int


def condense(root: Node, records: B, span: Range, time: str) -> B:
    """A timed delta whose records of a range are replaced by their net effect, as if committed at its end.

    `time` names the column that holds each record's commit time. Views may no longer be rolled to a time
    inside the range: `condensed_around`.
    """
    columns = (*root.state_columns, time)
    inside = conjunction(
        (
            call(">", Column(time), Literal(span.after)),
            call("<=", Column(time), Literal(span.upto)),
        )
    )
    net = root.net_effect(records.select(inside))
    labelled = net.project((*keep(root.state_columns), (time, Literal(span.upto))))
    return records.project(keep(columns)).select(call("NOT", inside)).plus(labelled)


def condensed_around(ranges: Iterable[Range], time: int) -> Range | None:
    """The range that a time lies strictly inside of: what happened at which time there is forgotten."""
    return next((each for each in ranges if each.after < time < each.upto), None)

"""What marks in a delta table say: the statement's snapshot, compared with what was committed before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rollview.sources.deltas import Marked
from rollview.sources.postgres.read_point import snapshot_of

_MICROSECONDS = 1_000_000


def first_unseen(marks: Sequence[str]) -> int:
    """The least transaction id that was in progress, or had not begun, for any of these statements."""
    return min(snapshot_of(mark.rpartition(" ")[2]).xmin for mark in marks)


def read_marks(marks: Sequence[tuple[str, int]], before: Sequence[int]) -> list[Marked]:
    """Each mark comes with how many of the transactions in `before` are before its own."""
    xids = np.asarray(before, dtype=np.int64)
    # All up to a place are seen by whoever sees the greatest of them.
    greatest = np.maximum.accumulate(xids) if len(xids) else xids
    return [_read(mark, xids[:place], greatest[:place]) for mark, place in marks]


def _read(mark: str, xids: np.ndarray, greatest: np.ndarray) -> Marked:
    _, _, relation, began, snapshot = mark.split(" ")
    saw = snapshot_of(snapshot)
    recent = xids[int(np.searchsorted(greatest, saw.xmin)) :]
    running = np.isin(recent, list(saw.in_progress)) if saw.in_progress else False
    unseen = recent[(recent >= saw.xmax) | running]
    return Marked(int(relation), frozenset(unseen.tolist()), began, int(began) / _MICROSECONDS)

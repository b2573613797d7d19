"""Which files can hold a wanted value, by the smallest and largest value that the log states of each.

With the wanted values sorted, a file takes two binary searches however many values there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rollview.sources.files.key_filter import KeyFilter

_EXACT_DIGITS = 15
"""Decimals are written to the log as floating-point numbers, which keep this many digits."""

_LOST_BY_ROUNDING = timedelta(milliseconds=1)
"""Times are cut to milliseconds in the log, so the largest may be almost one later."""


@dataclass(frozen=True)
class Bounds:
    """For each file its least and greatest value. A missing one says nothing, unless all are NULL."""

    least: list[Any]
    greatest: list[Any]
    all_null: list[bool]


def bounds_of(actions: pa.Table, column: str, is_partition: bool) -> Bounds | None:
    """What the log says about a column; None if it says nothing that can be relied on."""
    if is_partition:
        values = actions[f"partition.{column}"]
        listed = values.to_pylist()
        return Bounds(listed, listed, pc.is_null(values).to_pylist())
    if f"min.{column}" not in actions.column_names or f"max.{column}" not in actions.column_names:
        return None
    least, greatest = actions[f"min.{column}"], actions[f"max.{column}"]
    if not _reliable(least.type):
        return None
    nulls = pc.equal(actions[f"null_count.{column}"], actions["num_records"])
    latest = greatest.to_pylist()
    if pa.types.is_timestamp(greatest.type):
        latest = [None if value is None else value + _LOST_BY_ROUNDING for value in latest]
    return Bounds(least.to_pylist(), latest, pc.fill_null(nulls, False).to_pylist())


def _reliable(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= _EXACT_DIGITS)
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )


def may_match(key: KeyFilter, bounds: Bounds, files: Iterable[int]) -> list[int]:
    """Of these files, by position, those that may hold a wanted value."""
    values = key.listed
    kept = []
    for position in files:
        if bounds.all_null[position]:
            continue
        low, high = bounds.least[position], bounds.greatest[position]
        first = 0 if low is None else bisect_left(values, low)
        last = len(values) if high is None else bisect_right(values, high)
        if first < last:
            kept.append(position)
    return kept

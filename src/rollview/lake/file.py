"""Files of a table, and which of them may hold what is looked for.

The law: leaving a file out must never lose a row. A file is left out only where its statistics say that no
row of it can match; where they say nothing, it stays.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CSN = "_csn"
"""The column that carries the commit sequence number of a row."""


@dataclass(frozen=True)
class LakeFile:
    """A data file: its path relative to the table and what is known of its columns.

    `minimum` and `maximum` are bounds (long strings are shortened), `nulls` is exact; a column that is
    missing there is unknown.
    """

    path: str
    rows: int
    size: int
    minimum: Mapping[str, Any]
    maximum: Mapping[str, Any]
    nulls: Mapping[str, int] = field(default_factory=dict)


def within(files: Iterable[LakeFile], csn: tuple[int, int]) -> tuple[LakeFile, ...]:
    """The files that may hold rows of the interval (after, upto]."""
    after, upto = csn
    return tuple(
        file
        for file in files
        if file.minimum.get(CSN, upto) <= upto and file.maximum.get(CSN, after + 1) > after
    )


def holding(files: Iterable[LakeFile], column: str, values: Sequence[Any]) -> tuple[LakeFile, ...]:
    """The files that may hold a row with one of these values in the column; None among them means NULL."""
    known = sorted(value for value in values if value is not None)
    wants_null = len(known) < len(values)
    return tuple(file for file in files if _may_hold(file, column, known, wants_null))


def _may_hold(file: LakeFile, column: str, values: Sequence[Any], wants_null: bool) -> bool:
    nulls = file.nulls.get(column)
    if wants_null and nulls != 0:
        return True
    if not values or nulls == file.rows:
        return False
    minimum, maximum = file.minimum.get(column), file.maximum.get(column)
    if minimum is None or maximum is None:
        return True
    place = bisect_left(values, minimum)
    return place < len(values) and bool(values[place] <= maximum)

"""Valid time: over which interval a table or a stored view shows the database as it was.

**Source.** beyer2000 §6. A base table and an immediate view are valid from their last change on; a
deferred view from its refresh time until the first change after it. Tables whose valid times overlap may
be combined in one answer, which is then the answer at every time of the overlap.

**Assumes** commit times: a transaction's changes count from its commit, not from when they were written.
With times of updates, the paper's Debits and TotalCredits overlap although no database state had both.

**Symbols.** (start, end) → `ValidTime`, which includes its start and not its end; ∞ → None.

**Deviations.** The paper sets a view's end when a base table is *changed*, if it has no end yet. A
refresh that runs between that change and its commit begins a new interval and finds no commit record
behind the refresh time, so the view would stay without an end although it goes stale at the commit.
`ended` is therefore called with the commit time, at commit, and takes the earlier of two ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ValidTime:
    """start ≤ t < end; without an end it is valid up to now."""

    start: int
    end: int | None = None

    def __contains__(self, time: int) -> bool:
        return self.start <= time and (self.end is None or time < self.end)

    @property
    def is_empty(self) -> bool:
        return self.end is not None and self.end <= self.start

    def __str__(self) -> str:
        return f"[{self.start}, {'∞' if self.end is None else self.end})"


def of_refreshed(refresh_time: int, commit_times: Iterable[int]) -> ValidTime:
    """A rolled view: from its refresh time to the earliest commit behind it that touches the view."""
    return ValidTime(refresh_time, min((time for time in commit_times if time > refresh_time), default=None))


def ended(valid: ValidTime, commit_time: int) -> ValidTime:
    """The interval once a transaction that touches the view has committed."""
    return ValidTime(valid.start, commit_time if valid.end is None else min(valid.end, commit_time))


def valid_together(tables: Iterable[ValidTime]) -> ValidTime | None:
    """The times at which all of them are valid; None if they must not be combined."""
    intervals = tuple(tables)
    ends = [valid.end for valid in intervals if valid.end is not None]
    common = ValidTime(max(valid.start for valid in intervals), min(ends, default=None))
    return None if common.is_empty else common


@dataclass(frozen=True, slots=True)
class Readable:
    """Times from `first` to `last` that a table can be read at; it is valid around them, too."""

    first: int
    last: int
    valid: ValidTime

    def nearest(self, time: int) -> int:
        """The time to read it at, for an answer as of a time at which it is valid."""
        return min(max(time, self.first), self.last)


def times_in_common(tables: Iterable[Iterable[ValidTime]]) -> tuple[ValidTime, ...]:
    """The times at which all tables are valid, each of which has several intervals; in order."""
    common: list[ValidTime] = [ValidTime(0)]
    for intervals in tables:
        found = [valid_together((one, other)) for one in common for other in intervals]
        common = sorted((each for each in found if each is not None), key=lambda each: each.start)
    return tuple(common)

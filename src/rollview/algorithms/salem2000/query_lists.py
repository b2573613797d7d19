"""Query lists: how far rolling propagation has come, and what its forward queries still lack.

**Source.** salem2000 §3.4, Figure 10: CompInterval, CompTime, PruneQueryLists. How rolling propagation uses
them, and where they differ from the print, is said in `rolling`.

**Symbols.** t_fwd → `forward`; t_comp → `compensated`; querylist → `lists`; an entry
R¹_e … Rⁱ_{x,y} … Rⁿ_e → `ListedQuery(Interval(x, y), e)`. Positions count from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rollview.algebra.align import END
from rollview.algorithms.effects import Interval
from rollview.algorithms.salem2000.execute import Times


@dataclass(frozen=True)
class ListedQuery:
    """A forward query that has not been fully compensated for: its interval and its execution time."""

    interval: Interval
    executed: int


@dataclass(frozen=True)
class Progress:
    """The state that rolling propagation needs after a crash; each field has one entry per relation."""

    forward: Times
    compensated: Times
    lists: tuple[tuple[ListedQuery, ...], ...]


def initial_progress(relations: int, time: int) -> Progress:
    """Nothing propagated since a time."""
    return Progress((time,) * relations, (time,) * relations, ((),) * relations)


def with_forward(progress: Progress, position: int, time: int) -> Progress:
    """The forward queries of a relation have come to a time."""
    forward = (*progress.forward[:position], time, *progress.forward[position + 1 :])
    return replace(progress, forward=forward)


def with_query(progress: Progress, position: int, query: ListedQuery) -> Progress:
    """A forward query is put on its relation's list."""
    longer = (*progress.lists[position], query)
    lists = (*progress.lists[:position], longer, *progress.lists[position + 1 :])
    return replace(progress, lists=lists)


def execution_times(progress: Progress, position: int, time: int) -> list[int]:
    """The execution times after a time of listed queries of lower-numbered relations, in order."""
    lower = (query for queries in progress.lists[:position] for query in queries)
    return sorted({query.executed for query in lower if query.executed > time})


def comp_interval(progress: Progress, position: int, time: int) -> int:
    """How wide a compensation of the relation can be from a time on without becoming non-rectangular."""
    times = execution_times(progress, position, time)
    return times[0] - time if times else END


def comp_time(progress: Progress, position: int, time: int) -> int:
    """How far back a compensation at a time must go for a lower-numbered relation.

    To the oldest of its queries that saw what comes after the time; or, if none did, to where its next
    query will begin, which will see it.
    """
    later = [query for query in progress.lists[position] if query.executed > time]
    if not later:
        return progress.forward[position]
    return min(later, key=_age).interval.after


def prune_query_lists(progress: Progress) -> Progress:
    """Drops the queries that are fully compensated for, and moves t_comp.

    That is those executed at a time that the forward queries of all relations have reached.
    """
    time = min(progress.forward)
    lists = tuple(tuple(query for query in queries if query.executed > time) for queries in progress.lists)
    compensated = tuple(
        min(queries, key=_age).interval.after if queries else forward
        for queries, forward in zip(lists, progress.forward, strict=True)
    )
    return Progress(progress.forward, compensated, lists)


def advanced(progress: Progress, position: int, interval: Interval, executed: int) -> Progress:
    """The query lists after a forward query and its compensation: they depend on times alone."""
    if position < len(progress.forward) - 1:
        progress = with_query(progress, position, ListedQuery(interval, executed))
    return prune_query_lists(with_forward(progress, position, interval.upto))


def as_data(progress: Progress) -> dict[str, Any]:
    """The progress as lists of numbers, to be kept with what was published."""
    lists = [[[q.interval.after, q.interval.upto, q.executed] for q in each] for each in progress.lists]
    return {"forward": progress.forward, "compensated": progress.compensated, "lists": lists}


def from_data(data: Mapping[str, Any]) -> Progress:
    """The inverse."""
    lists = tuple(
        tuple(ListedQuery(Interval(after, upto), executed) for after, upto, executed in each)
        for each in data["lists"]
    )
    return Progress(tuple(data["forward"]), tuple(data["compensated"]), lists)


def _age(query: ListedQuery) -> tuple[int, int]:
    """Oldest first. Several queries may have one execution time, if nothing was committed in between."""
    return query.executed, query.interval.after

"""The rolling picture of a view (salem2000 Figure 9): for each relation the intervals that were propagated.

Each forward query moves independently, in intervals of its own. The high-water mark is the least of their
positions; the stored view is at its materialization time, at or before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rollview.algebra.net_effect import Range
from rollview.algebra.view import View
from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import Catalog, PropagateStep, UnreadableStep
from rollview.observe.status import SpanStatus

_WHOLE_BLOCK = -1


@dataclass(frozen=True)
class LaneInterval:
    """Changes with after < csn ≤ upto; `finished_at` is 0 while they are being propagated."""

    after: int
    upto: int
    finished_at: float


@dataclass(frozen=True)
class Lane:
    """A forward query: the relation whose changes it takes, how far it is, and its last intervals."""

    relation: str
    table: str
    part: str
    position: int
    intervals: tuple[LaneInterval, ...]


@dataclass(frozen=True)
class RollingPicture:
    """A view and its lanes. What lies strictly inside a condensed range cannot be read any more."""

    view: str
    lanes: tuple[Lane, ...]
    oldest: int
    materialized: int
    high_water: int
    last_csn: int
    condensed: tuple[tuple[int, int], ...]
    spans: tuple[SpanStatus, ...]


def rolling_picture(catalog: Catalog, view: View) -> RollingPicture:
    """From the catalog: positions, the last intervals, and steps that are under way."""
    moment, names = catalog.standing(), [part.name for part in view.stored_parts]
    done: dict[tuple[str, int, int], list[LaneInterval]] = {}
    for each in catalog.observations.intervals(names):
        own = done.setdefault((each.view, each.block, each.relation), [])
        own.append(LaneInterval(each.after, each.upto, each.finished_at))
    for (name, block, relation), interval in _under_way(catalog, names):
        done.setdefault((name, block, relation), []).append(interval)
    lanes = []
    for part in view.stored_parts:
        for query, position in moment.positions(part.name).items():
            intervals = tuple(done.get((part.name, query.block, _number(query)), ()))
            lanes.append(Lane(*_label(part, query), part.name, position, intervals))
    record = moment.views()[view.name]
    return RollingPicture(
        view=view.name,
        lanes=tuple(lanes),
        oldest=record.oldest_csn,
        materialized=record.materialized_csn,
        high_water=moment.high_water(view.name),
        last_csn=moment.last_csn,
        condensed=tuple(_plain(catalog.views.condensed(view.name))),
        spans=tuple(
            SpanStatus(span.record.oldest_csn, span.upto_csn, span.reason)
            for span in catalog.views.spans(view.name)
        ),
    )


def _under_way(catalog: Catalog, names: Sequence[str]) -> list[tuple[tuple[str, int, int], LaneInterval]]:
    """The intervals that are being propagated."""
    found = []
    for step in catalog.steps.unfinished():
        if isinstance(step, UnreadableStep) or not isinstance(step.bounds, PropagateStep):
            continue
        if step.subject not in names:
            continue
        for each in step.bounds.intervals:
            number = _WHOLE_BLOCK if each.relation is None else each.relation
            found.append(((step.subject, each.block, number), LaneInterval(each.after, each.upto, 0.0)))
    return found


def _label(part: View, query: ForwardQuery) -> tuple[str, str]:
    """The name of a relation in the view's text, and the table that it is an occurrence of."""
    if query.relation is None:
        return part.name, ", ".join(table.qualified for table in part.tables)
    relation = part.blocks[query.block].relations[query.relation]
    return relation.alias, relation.table.qualified


def _number(query: ForwardQuery) -> int:
    return _WHOLE_BLOCK if query.relation is None else query.relation


def _plain(ranges: Sequence[Range]) -> list[tuple[int, int]]:
    return [(each.after, each.upto) for each in ranges]

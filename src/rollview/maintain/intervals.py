"""The next step of a view: how far it goes, how many transactions at once, by deltas or as a whole.

A view's `rollview.interval` and `rollview.interval.RELATION` say a number, or `auto`: then a step that took
less than the target duration makes the next interval longer, a step that took more makes it shorter. And the
interval of each relation is no wider than its own look-ups allow (salem2000 §3.4: intervals per relation, so
that no query is large where the sources are busy): a source should not be kept busy for longer than
`lookup_seconds` by one of them. How long they take, by the width of the interval, is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rollview.algebra.join_graph import access_path
from rollview.algorithms.effects import ForwardQuery, Interval
from rollview.catalog import Catalog, CostLine, Lookups
from rollview.config.schedules import staleness_of
from rollview.maintain.control_records import ControlRecords, is_rolling
from rollview.views.properties import algorithm_of

if TYPE_CHECKING:
    from rollview.algebra.relation import Table
    from rollview.algebra.view import View
    from rollview.maintain.relations import Relations
    from rollview.storage.lake_tables import LakeTables
    from rollview.views.views import Views

FIRST = 1000
_LEAST, _MOST = 1, 1_000_000
QUICK = 0.1
"""Answers that took a smaller share of what they may take say nothing about how wide intervals can be."""

Intervals = Mapping[ForwardQuery, Interval]


class IntervalSizing:
    """The next interval of every forward query; remembers the size of those that are sized automatically."""

    def __init__(
        self, catalog: Catalog, relations: Relations, target_seconds: float, lookup_seconds: float
    ) -> None:
        self._catalog = catalog
        self._relations = relations
        self._target_seconds = target_seconds
        self._lookup_seconds = lookup_seconds
        self._auto: dict[tuple[str, ForwardQuery], int] = {}
        self._answers: dict[ForwardQuery, CostLine] = {}

    def next(self, view: View, limit: int | None) -> tuple[Intervals, dict[ForwardQuery, int]]:
        """For each forward query its interval, or how far it can go without asking anything."""
        intervals: dict[ForwardQuery, Interval] = {}
        skipped: dict[ForwardQuery, int] = {}
        for query, position in ControlRecords(self._catalog).positions(view).items():
            tables = _tables(view, query)
            newest = min(self._relations.newest(table) for table in tables)
            newest = newest if limit is None else min(newest, limit)
            if newest <= position:
                continue
            if not any(self._relations.touched(table, position, newest) for table in tables):
                skipped[query] = newest
                continue
            number = self._transactions(view, query, tables)
            names = [table.qualified for table in tables if table.source]
            upto = self._catalog.history.next_csn_touching(names, position, number) if names else newest
            intervals[query] = Interval(position, min(newest, upto))
        return intervals, skipped

    def reach(self, view: View, limit: int) -> int:
        """How far all that the view reads is known."""
        return min([limit, *(self._relations.newest(table) for table in view.tables)])

    def took(self, view: View, queries: Intervals, seconds: float, lookups: Sequence[Lookups]) -> None:
        """Learns from a step that propagated these queries, with these look-ups.

        Where a view may be stale for a time, a step may take as long: all that it waited for is one.
        """
        target, name = max(self._target_seconds, staleness_of(view)), algorithm_of(view).name
        factor = 0.5 if seconds > 1.5 * target else 2.0 if seconds < 0.5 * target else 1.0
        for query in queries:
            size = self._auto.get((name, query), FIRST)
            self._auto[name, query] = min(_MOST, max(_LEAST, int(size * factor)))
        for query, interval in queries.items():
            asked = _asked_first(view, query)
            own = [each.seconds / each.number for each in lookups if not asked.isdisjoint(each.tables)]
            known = self._answers.get(query)
            # Quick answers matter once there were slow ones.
            if own and (known is not None or max(own) > QUICK * self._lookup_seconds):
                sample = self._width(view, query, interval), max(own)
                self._answers[query] = (known or CostLine()).with_sample(*sample)

    def _width(self, view: View, query: ForwardQuery, interval: Interval) -> int:
        """How many transactions an interval has that changed something of the query's own."""
        names = [table.qualified for table in _tables(view, query) if table.source]
        touching = self._catalog.history.touching(names, interval.after, interval.upto)
        return len(frozenset[int]().union(*touching.values()))

    def _transactions(self, view: View, query: ForwardQuery, tables: Sequence[Table]) -> int:
        """The number of transactions that the query's next interval has."""
        chosen = _setting(view, query, tables)
        if chosen != "auto":
            return int(chosen)
        size = self._auto.get((algorithm_of(view).name, query), FIRST)
        return min(size, self._bearable(query))

    def most_together(self, view: View) -> int:
        """The number of transactions of a step that takes all relations of a view from one csn to another."""
        queries = algorithm_of(view).positions(view)
        return min(self._transactions(view, query, _tables(view, query)) for query in queries)

    def _bearable(self, query: ForwardQuery) -> int:
        """How many transactions an interval may have, so that no look-up of it keeps a source too long."""
        return bearable_width(self._answers.get(query, CostLine()), self._lookup_seconds)


def bearable_width(answers: CostLine, most_seconds: float) -> int:
    """The widest interval with answers in so many seconds, by those that there were.

    Where even a narrow one would take longer, narrow ones would only ask more often: it is not limited.
    """
    if not answers.is_line:
        # Whether it depends on the width is not known before another one was tried.
        return _MOST if answers.mean_seconds <= most_seconds else max(_LEAST, int(answers.mean_rows / 2))
    if not answers.row_seconds or answers.fixed_seconds >= most_seconds:
        return _MOST
    return min(_MOST, max(_LEAST, int((most_seconds - answers.fixed_seconds) / answers.row_seconds)))


def _asked_first(view: View, query: ForwardQuery) -> frozenset[str]:
    """The tables that the first look-ups of a forward query ask for; later ones depend on the answers."""
    block = view.blocks[query.block]
    starts = range(len(block.relations)) if query.relation is None else [query.relation]
    rounds = [access_path(block, start).rounds[:1] for start in starts]
    steps = (each for found in rounds for subs in found for sub in subs for each in sub.join_steps)
    return frozenset(block.relations[each.relation].table.qualified for each in steps)


def _tables(view: View, query: ForwardQuery) -> list[Table]:
    return list(dict.fromkeys(relation.table for relation in query.relations(view)))


def _setting(view: View, query: ForwardQuery, tables: Sequence[Table]) -> str:
    names = [table.qualified for table in tables]
    if query.relation is not None:
        names.insert(0, view.blocks[query.block].relations[query.relation].alias)
    settings = {key.lower(): value for key, value in view.properties.items()}
    for name in names:
        if (value := settings.get(f"rollview.interval.{name}".lower())) is not None:
            return value
    return settings.get("rollview.interval", "auto")


# By deltas, or as a whole: what the next step of a view costs either way, as far as that was measured.
#
# `rollview.refresh = auto`, which is the default, takes the whole where deltas would take over a minute and
# several times as long. By then so much has changed that the states in between are given up: they are marked
# like those of a condensed range. `incremental` never does that.

RECOMPUTED = "recomputed"
"""The kind of such a refresh in the record of refreshes."""
LONG_SECONDS = 60.0
"""Seconds that deltas may always take."""
TIMES_AS_LONG = 4.0
"""How many times as fast a recomputation has to be."""
ROWS_TO_JUDGE_BY = 1_000
"""With fewer changes, the time of a step says nothing about a row."""


@dataclass(frozen=True)
class RefreshChoice:
    """Chooses; remembers what a changed row has cost, by view and algorithm, in seconds."""

    catalog: Catalog
    tables: LakeTables
    views: Views
    sizing: IntervalSizing
    _per_row: dict[tuple[str, str], float] = field(default_factory=dict)

    def took(self, view: View, intervals: Intervals, seconds: float, lookups: Sequence[Lookups]) -> None:
        """Learns from a step by deltas."""
        self.sizing.took(view, intervals, seconds, lookups)
        if not intervals or seconds < LONG_SECONDS / 100:
            return
        first = min(each.after for each in intervals.values())
        rows = self._changes(view, Interval(first, max(each.upto for each in intervals.values())))
        if rows >= ROWS_TO_JUDGE_BY:
            self._per_row[view.name, algorithm_of(view).name] = seconds / rows

    def reason_to_recompute(self, view: View, interval: Interval) -> str:
        """Why a view is better computed as a whole at the interval's end; empty if it is not."""
        per_row = self._per_row.get((view.name, algorithm_of(view).name))
        if per_row is None or view.properties.get("rollview.refresh", "auto") != "auto" or is_rolling(view):
            return ""
        if not self._is_at(view, interval.after):
            return ""
        known = self.catalog.views.refreshes(view.name, 1, ("full", RECOMPUTED))
        rows = self._changes(view, interval)
        by_deltas = rows * per_row
        if not known or by_deltas < max(LONG_SECONDS, TIMES_AS_LONG * known[0].seconds):
            return ""
        deltas = f"about {rows:,} changes would take {by_deltas:,.0f} s, at {1000 * per_row:.2g} ms each"
        return f"{deltas}; the whole view took {known[0].seconds:,.0f} s"

    def _is_at(self, view: View, csn: int) -> bool:
        """Whether no forward query of a view has gone further than the view delta."""
        return set(self.catalog.views.positions(view.name).values()) == {csn}

    def _changes(self, view: View, interval: Interval) -> int:
        """About how many rows the view's relations have changed by, as the files of their logs say."""
        total = 0
        for table in view.tables:
            if table.source:
                log = self.tables.change_log(table)
            else:
                log = self.tables.of_view(table.name, self.views.record(table.name).generation).deltas
            total += sum(file.rows for file in log.files(csn=(interval.after, interval.upto)))
        return total


def touched_between(catalog: Catalog, view: View, interval: Interval) -> bool:
    """Whether anything that the view reads may have changed strictly inside an interval."""
    names = [table.qualified for table in view.tables if table.source]
    inner = interval.upto - 1
    if len(names) < len(view.tables):
        return interval.after < inner
    return any(catalog.history.touched(name, interval.after, inner) for name in names)

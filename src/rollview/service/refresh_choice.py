"""By deltas, or as a whole: what the next step of a view costs either way, as far as that was measured.

`rollview.refresh = auto`, which is the default, takes the whole where deltas would take over a minute and
several times as long. By then so much has changed that the states in between are given up: they are marked
like those of a condensed range. `incremental` never does that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rollview.algebra.view import View
from rollview.algorithms.effects import Interval
from rollview.catalog import Catalog
from rollview.service.control_records import is_rolling
from rollview.service.interval_sizing import Intervals, IntervalSizing
from rollview.service.lake_tables import LakeTables
from rollview.service.views import Views

RECOMPUTED = "recomputed"
"""The kind of such a refresh in the record of refreshes."""
LONG_SECONDS = 60.0
"""What deltas may always take."""
TIMES_AS_LONG = 4.0
"""What is computed as a whole has to be so many times as fast."""
ROWS_TO_JUDGE_BY = 1_000
"""With fewer changes, the time of a step says nothing about a row."""


@dataclass(frozen=True)
class RefreshChoice:
    """Chooses; remembers what a changed row has cost, by view, in seconds."""

    catalog: Catalog
    tables: LakeTables
    views: Views
    sizing: IntervalSizing
    _per_row: dict[str, float] = field(default_factory=dict)

    def took(self, view: View, intervals: Intervals, seconds: float) -> None:
        """Learns from a step by deltas."""
        self.sizing.took(intervals, seconds)
        if not intervals or seconds < LONG_SECONDS / 100:
            return
        first = min(each.after for each in intervals.values())
        rows = self._changes(view, Interval(first, max(each.upto for each in intervals.values())))
        if rows >= ROWS_TO_JUDGE_BY:
            self._per_row[view.name] = seconds / rows

    def reason_to_recompute(self, view: View, interval: Interval) -> str:
        """Why a view is better computed as a whole at the interval's end; empty if it is not."""
        per_row = self._per_row.get(view.name)
        if per_row is None or view.properties.get("rollview.refresh", "auto") != "auto" or is_rolling(view):
            return ""
        if not self._stands_at(view, interval.after):
            return ""
        known = self.catalog.refreshes(view.name, 1, ("full", RECOMPUTED))
        rows = self._changes(view, interval)
        by_deltas = rows * per_row
        if not known or by_deltas < max(LONG_SECONDS, TIMES_AS_LONG * known[0].seconds):
            return ""
        deltas = f"about {rows:,} changes would take {by_deltas:,.0f} s, at {1000 * per_row:.2g} ms each"
        return f"{deltas}; the whole view took {known[0].seconds:,.0f} s"

    def _stands_at(self, view: View, csn: int) -> bool:
        """Whether no forward query of a view has gone further than the view delta."""
        return set(self.catalog.positions(view.name).values()) == {csn}

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
    return any(catalog.touched(name, interval.after, inner) for name in names)

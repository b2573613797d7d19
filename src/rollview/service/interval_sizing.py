"""How far a forward query goes in one step, and how many transactions it takes at once.

A view's `rollview.interval` and `rollview.interval.RELATION` say a number, or `auto`: then a step that took
less than the target duration makes the next interval longer, a step that took more makes it shorter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.algorithms.effects import ForwardQuery, Interval
from rollview.catalog import Catalog
from rollview.service.control_records import ControlRecords
from rollview.service.relations import Relations

FIRST = 1000
_LEAST, _MOST = 1, 1_000_000

Intervals = Mapping[ForwardQuery, Interval]


class IntervalSizing:
    """The next interval of every forward query; remembers the size of those that are paced by themselves."""

    def __init__(self, catalog: Catalog, relations: Relations, target_seconds: float) -> None:
        self._catalog = catalog
        self._relations = relations
        self._target_seconds = target_seconds
        self._auto: dict[ForwardQuery, int] = {}

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
            upto = self._catalog.next_csn_touching(names, position, number) if names else newest
            intervals[query] = Interval(position, min(newest, upto))
        return intervals, skipped

    def reach(self, view: View, limit: int) -> int:
        """How far all that the view reads is known."""
        return min([limit, *(self._relations.newest(table) for table in view.tables)])

    def took(self, queries: Iterable[ForwardQuery], seconds: float) -> None:
        """Learns from a step that propagated these queries."""
        target = self._target_seconds
        factor = 0.5 if seconds > 1.5 * target else 2.0 if seconds < 0.5 * target else 1.0
        for query in queries:
            self._auto[query] = min(_MOST, max(_LEAST, int(self._auto.get(query, FIRST) * factor)))

    def _transactions(self, view: View, query: ForwardQuery, tables: Sequence[Table]) -> int:
        """The number of transactions that the query's next interval has."""
        chosen = _setting(view, query, tables)
        return self._auto.get(query, FIRST) if chosen == "auto" else int(chosen)


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

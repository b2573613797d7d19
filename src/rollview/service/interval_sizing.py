"""How many transactions a forward query takes at once.

A view's `rollview.interval` and `rollview.interval.RELATION` say a number, or `auto`: then a step that took
less than the target duration makes the next interval longer, a step that took more makes it shorter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.algorithms.effects import ForwardQuery

FIRST = 1000
_LEAST, _MOST = 1, 1_000_000


class IntervalSizing:
    """The present interval of every forward query that is paced by itself."""

    def __init__(self) -> None:
        self._auto: dict[ForwardQuery, int] = {}

    def transactions(self, view: View, query: ForwardQuery, tables: Sequence[Table]) -> int:
        """The number of transactions that the query's next interval has."""
        chosen = _setting(view, query, tables)
        return self._auto.get(query, FIRST) if chosen == "auto" else int(chosen)

    def took(self, queries: Iterable[ForwardQuery], seconds: float, target: float) -> None:
        """Learns from a step that propagated these queries."""
        factor = 0.5 if seconds > 1.5 * target else 2.0 if seconds < 0.5 * target else 1.0
        for query in queries:
            self._auto[query] = min(_MOST, max(_LEAST, int(self._auto.get(query, FIRST) * factor)))


def _setting(view: View, query: ForwardQuery, tables: Sequence[Table]) -> str:
    names = [table.qualified for table in tables]
    if query.relation is not None:
        names.insert(0, view.blocks[query.block].relations[query.relation].alias)
    settings = {key.lower(): value for key, value in view.properties.items()}
    for name in names:
        if (value := settings.get(f"rollview.interval.{name}".lower())) is not None:
            return value
    return settings.get("rollview.interval", "auto")

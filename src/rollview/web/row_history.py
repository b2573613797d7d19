"""The rows of a view at any csn, quickly enough for a slider.

A window is read once: the rows at one csn, and the changes of the transactions before and after it. The rows
at any other csn of the window are those, minus or plus the changes in between, without reading and without
Spark. The window around the stored csn of a view that is stored as it is shown needs no Spark at all.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN
from rollview.answer.requests import Asking, DeltasRequest, ReadRequest, Reply
from rollview.observe.state import ViewState
from rollview.project.project import Project

MOST_ROWS = 20_000
"""For a view with more rows, single states are read, and only their first rows."""
WINDOW = 2_000
"""The most transactions in a window."""
FIRST_ROWS = 1_000
_KEPT = 8

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Change:
    """A change of a row by a transaction: how many times it was added or removed."""

    csn: int
    row: Row
    count: int


@dataclass(frozen=True)
class RowsAt:
    """The rows of a view at a csn, in order, each with how it changed since another csn: +1, −1 or 0.

    Removed rows are among them. If there are more rows than were read, `total` is None.
    """

    csn: int
    since: int
    columns: tuple[str, ...]
    rows: tuple[tuple[Row, int], ...]
    total: int | None

    @property
    def changed(self) -> int:
        return sum(1 for _, mark in self.rows if mark)


@dataclass(frozen=True)
class Window:
    """Rows at a csn, and the changes of the transactions around it, in order."""

    first: int
    last: int
    csn: int
    columns: tuple[str, ...]
    rows: Counter[Row]
    changes: tuple[Change, ...]
    places: tuple[int, ...]
    """The csn of each change."""

    def between(self, after: int, upto: int) -> Counter[Row]:
        """The net change with after < csn ≤ upto."""
        net: Counter[Row] = Counter()
        for change in self.changes[bisect_right(self.places, after) : bisect_right(self.places, upto)]:
            net[change.row] += change.count
        return net

    def at(self, csn: int, since: int) -> RowsAt:
        """The rows at a csn, marked by what changed since another one."""
        rows = Counter(self.rows)
        if csn >= self.csn:
            rows.update(self.between(self.csn, csn))
        else:
            rows.subtract(self.between(csn, self.csn))
        moved = self.between(since, csn)
        if since > csn:
            moved = Counter({row: -count for row, count in self.between(csn, since).items()})
        return RowsAt(csn, since, self.columns, marked(rows, moved), sum(rows.values()))


class RowHistories:
    """The windows that were read last."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._windows: OrderedDict[tuple[str, int], Window] = OrderedDict()
        self._lock = threading.Lock()

    def at(self, view: ViewState, csn: int, since: int, ask: Asking) -> RowsAt:
        """The rows of a view at a csn; reads them if no window has them."""
        window = self._known(view, csn, since)
        if window is None:
            window = self._read(view, csn, ask)
            if window is None:
                return _single(view, csn, ask)
            with self._lock:
                self._windows[view.name, view.generation] = window
                while len(self._windows) > _KEPT:
                    self._windows.popitem(last=False)
        return window.at(csn, since if window.first <= since <= window.last else max(window.first, csn - 1))

    def _known(self, view: ViewState, csn: int, since: int) -> Window | None:
        """The window that was read before, if it has the rows at a csn."""
        key = (view.name, view.generation)
        with self._lock:
            window = self._windows.get(key)
            if window is None or not _holds(window, csn, since) or not _reaches(window, view, csn):
                return None
            self._windows.move_to_end(key)
            return window

    def needs_spark(self, view: ViewState, csn: int, since: int) -> bool:
        """Whether the rows at a csn need Spark, which may have to be started."""
        if self._known(view, csn, since) is not None:
            return False
        if view.is_full:
            return csn != view.materialized
        is_near = abs(view.materialized - csn) <= WINDOW // 2
        here = view.materialized
        return not is_near or self._project.observe.local_deltas(view.name, here, here) is None

    def stored(self, view: ViewState) -> RowsAt | None:
        """The rows as they are stored, unmarked, without Spark; None if they are too many."""
        found = self._project.read_stored(view.name)
        if found is None or found.rows.num_rows > MOST_ROWS:
            return None
        rows = marked(Counter(rows_of(found.rows)), Counter())
        return RowsAt(found.csn, found.csn, tuple(found.rows.column_names), rows, len(rows))

    def _read(self, view: ViewState, csn: int, ask: Asking) -> Window | None:
        """A window around a csn; None if the view is too large for one."""
        observe, shown = self._project.observe, view.materialized
        stretch = next((s for s in observe.readable(view.name) if s.first <= csn <= s.last), None)
        first = csn if stretch is None else max(stretch.first, csn - WINDOW // 2)
        last = csn if stretch is None else min(stretch.last, csn + WINDOW // 2)
        if first <= shown <= last:
            stored = self._project.read_stored(view.name)
            if stored is None or stored.rows.num_rows > MOST_ROWS:
                return None
            # Another process may have rolled it meanwhile.
            shown, rows = stored.csn, stored.rows
            last = max(last, shown)
        else:
            shown, rows = first, rows_in(ask(ReadRequest(view.name, f"csn:{first}", MOST_ROWS + 1)))
            if rows.num_rows > MOST_ROWS:
                return None
        deltas = observe.local_deltas(view.name, first, last) if first < last else None
        if deltas is None and first < last:
            deltas = rows_in(ask(DeltasRequest(view.name, f"csn:{first}", f"csn:{last}")))
        names = tuple(rows.column_names)
        changes = _changes(deltas, names) if deltas is not None else ()
        places = tuple(each.csn for each in changes)
        return Window(first, last, shown, names, Counter(rows_of(rows)), changes, places)


def _single(view: ViewState, csn: int, ask: Asking) -> RowsAt:
    """The first rows of a large view at a csn."""
    some = rows_in(ask(ReadRequest(view.name, f"csn:{csn}", FIRST_ROWS)))
    rows = marked(Counter(rows_of(some)), Counter())
    return RowsAt(csn, csn, tuple(some.column_names), rows, None)


def _holds(window: Window, csn: int, since: int) -> bool:
    is_near = abs(since - csn) > WINDOW // 2 or window.first <= since <= window.last
    return window.first <= csn <= window.last and is_near


def _reaches(window: Window, view: ViewState, csn: int) -> bool:
    """Whether a window is good for a csn; at its end only if nothing has been propagated since."""
    return csn < window.last or view.high_water <= window.last


def rows_in(reply: Reply) -> pa.Table:
    """The rows of an answer that has rows."""
    assert reply.page is not None
    return reply.page.rows


def rows_of(table: pa.Table) -> list[Row]:
    """The rows of an Arrow table as hashable values."""
    columns = [column.to_pylist() for column in table.columns]
    return [tuple(_hashable(value) for value in row) for row in zip(*columns, strict=True)]


def _changes(table: pa.Table, names: tuple[str, ...]) -> tuple[Change, ...]:
    ordered = table.sort_by(CSN)
    rows = rows_of(ordered.select(list(names)))
    csns, counts = ordered[CSN].to_pylist(), ordered[COUNT].to_pylist()
    return tuple(map(Change, csns, rows, counts))


def marked(rows: Mapping[Row, int], moved: Mapping[Row, int]) -> tuple[tuple[Row, int], ...]:
    """Rows in order with their multiplicity, removed ones included."""
    found: list[tuple[Row, int]] = []
    for row in {**rows, **moved}:
        count, change = rows.get(row, 0), moved.get(row, 0)
        new = min(max(change, 0), count)
        found += [(row, 0)] * (count - new) + [(row, 1)] * new + [(row, -1)] * max(-change, 0)
    return tuple(sorted(found, key=lambda each: (*map(_ordered, each[0]), each[1])))


def _ordered(value: Any) -> tuple[int, Any]:
    """NULL first; values that cannot be compared by their texts."""
    if value is None:
        return 0, ""
    return (1, value) if isinstance(value, int | float) else (2, str(value))


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((key, _hashable(each)) for key, each in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def changed_rows(table: pa.Table) -> list[tuple[int, int, Row]]:
    """The rows of a delta: csn, count and values."""
    names = [name for name in table.column_names if name not in (COUNT, CSN)]
    rows, counts = rows_of(table.select(names)), table[COUNT].to_pylist()
    csns = table[CSN].to_pylist() if CSN in table.column_names else [0] * len(rows)
    return list(zip(csns, counts, rows, strict=True))

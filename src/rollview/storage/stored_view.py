"""A stored view, read at any csn that its delta covers.

The state at a csn is the stored one, less what was applied too far, plus what has not been applied yet:
the one idea again. The catalog's record pins the versions to read, rows and state together, so that an apply
in between changes nothing for the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from rollview.algebra.bag import keep
from rollview.algebra.expression import Column
from rollview.algebra.history import CSN
from rollview.algebra.node import Node
from rollview.algebra.view import View
from rollview.bags import PlacedBag
from rollview.catalog import Catalog, Span, ViewRecord
from rollview.errors import LakeDamaged, PointError
from rollview.lake import LakeFile, LakeTable
from rollview.rows import arrow_schema
from rollview.runtime.session import Session
from rollview.storage.lake_rows import read_files, read_range
from rollview.storage.lake_tables import LakeTables, ViewTables
from rollview.storage.points_in_time import Covered, check_covered, newest_uncondensed, show
from rollview.storage.stored_bag import StoredBag, rows_bag, state_bag
from rollview.views.layout import Layout, Stored
from rollview.views.properties import is_full
from rollview.views.views import Views

_MOST_PAIRS = 2_000_000
"""Of a key that changes often, so many pairs of two of its changes are looked at together."""

_MOST_TRANSACTIONS = 1_000
"""So many are looked at together, where their rows are so many that the pairs are not counted."""


_FEW_ROWS = 50_000
"""A table with no more rows than this is read as quickly as sources answer."""


@dataclass(frozen=True)
class StoredViews:
    """All stored views, to be opened by name."""

    catalog: Catalog
    tables: LakeTables
    views: Views
    session: Session

    def open(self, name: str) -> StoredView:
        """The view as it is stored now."""
        view, record = self.views.named(name), self.views.record(name)
        stored = StoredView(self, view, record, Layout.of_record(view, record), self.covered(name))
        stored.check_tables()
        return stored

    def record_at(self, name: str, csn: int) -> ViewRecord:
        """The record of a view, the one of now or the one before its reload: whichever has this csn."""
        span = self._span_at(name, csn)
        return self.views.record(name) if span is None else span.record

    def _span_at(self, name: str, csn: int) -> Span | None:
        """A view as it was at a csn before its reload; None if it was not reloaded since."""
        if csn >= self.covered(name).oldest:
            return None
        spans = self.catalog.views.spans(name)
        return next((each for each in spans if each.record.oldest_csn <= csn <= each.upto_csn), None)

    def of_span(self, span: Span) -> StoredView:
        """The view as it was before it was reloaded."""
        view = self.views.former(span.record)
        reach = Covered(span.record.oldest_csn, span.upto_csn)
        return StoredView(self, view, span.record, Layout.of_record(view, span.record), reach)

    def open_at(self, name: str, csn: int) -> StoredView:
        """The view as it is stored now, or as it was before its reload: whichever has this csn."""
        covered, spans = self.covered(name), self.catalog.views.spans(name)
        if csn >= covered.oldest:
            return self.open(name)
        if (span := self._span_at(name, csn)) is not None:
            return self.of_span(span)
        later = [covered.oldest, *(span.record.oldest_csn for span in spans)]
        for begins, span in zip(later, spans, strict=False):
            if span.upto_csn < csn < begins:
                raise PointError(
                    f"view {name} is not available at csn {csn}: it was reloaded at csn {begins}"
                    f" ({span.reason}), and maintained before that up to csn {span.upto_csn}",
                    subject=name,
                    hint=f"possible nearby: {show(self.catalog, span.upto_csn)} and"
                    f" {show(self.catalog, begins)}",
                )
        return self.open(name)

    def delta_files(self, name: str, after: int, upto: int) -> tuple[LakeFile, ...]:
        """The files that may hold the view delta for after < csn ≤ upto."""
        deltas = self.tables.of_view(name, self.views.record(name).generation).deltas
        return deltas.files(csn=(after, upto)) if after < upto and deltas.exists() else ()

    def covered(self, name: str) -> Covered:
        """The csn that a view can be read at; a view without a delta only at the one it shows."""
        record = self.views.record(name)
        if is_full(self.views.named(name)):
            return Covered(record.materialized_csn, record.materialized_csn)
        return Covered(record.oldest_csn, self.catalog.views.high_water(name))


@dataclass(frozen=True)
class StoredView:
    """A view as the catalog recorded it at one moment."""

    stored: StoredViews
    view: View
    record: ViewRecord
    layout: Layout
    covered: Covered

    def check_tables(self) -> None:
        """Refuses tables that somebody else changed, or that an older release wrote."""
        name, tables = self.view.name, self.stored.tables
        if self.layout.has_delta:
            tables.check_untouched(self._tables.deltas, self.record.delta_version)
        for bag in (self.rows_bag, self.state_bag):
            if bag is None:
                continue
            tables.check_untouched(bag.table, bag.version)
            if bag.table.columns_at(bag.version) != bag.columns:
                kind = bag.table.address.split("/")[-2]
                raise LakeDamaged(
                    f"view {name}: lake/{kind} has other columns than it should",
                    subject=name,
                    hint=bag.table.way_out,
                )

    @property
    def rows_bag(self) -> StoredBag | None:
        """The table of the rows; a stage has none."""
        if not self.layout.has_rows:
            return None
        table = self._tables.rows
        return rows_bag(self.stored.session, self.layout, table, self.record.lake_version)

    @property
    def state_bag(self) -> StoredBag | None:
        """The table of the state, where it does not follow from the rows."""
        if not self.layout.has_state:
            return None
        table = self._tables.state
        return state_bag(self.stored.session, self.layout, table, self.record.state_version)

    def state(self) -> PlacedBag:
        """The stored state."""
        state = self.state_bag
        return self._rows_state() if state is None else state.rows()

    def changes(self, delta: PlacedBag) -> Stored:
        """The net effect of a piece of the view delta on the stored rows and state."""
        root = self.view.root
        if root.is_linear:
            return self.layout.contents(root.net_effect(delta))
        before = self._state_near(delta)
        return self.layout.changes(before, root.roll(before, delta), self._rows_near(delta))

    def _rows_near(self, delta: PlacedBag) -> PlacedBag | None:
        """The stored rows of that part of the state; None if its key does not identify them."""
        root = self.view.root
        if self.rows_bag is None or root.shown is not None or len(root.shown_key) < len(root.key):
            return None
        if not self._is_near(delta):
            return self.shown_rows()
        keys = delta.distinct(root.key).project(
            [(shown, Column(name)) for name, shown in root.shown_key.items()]
        )
        return self.shown_with(keys).sharing(keys, keys.columns)

    def _is_near(self, delta: PlacedBag) -> bool:
        """Whether a piece of the delta says which part of the state it changes."""
        return bool(self.layout.state_order) and delta.place == "driver"

    def _state_near(self, delta: PlacedBag) -> PlacedBag:
        """At least the part of the stored state that a piece of the delta changes."""
        if not self._is_near(delta):
            return self.state()
        first = self.layout.state_order[0]
        near = self._state_with(first, _values(delta, first)).sharing(delta, self.view.root.key)
        # Few are left: from here on they cost no job.
        near.collect_if_small()
        return near

    def _state_with(self, column: str, values: Sequence[Any]) -> PlacedBag:
        """At least the part of the state that has one of these values in the column it is sorted by."""
        state, rows = self.state_bag, self.rows_bag
        if state is not None:
            return state.rows_with(values)
        assert rows is not None
        is_sorted_alike = rows.order[:1] == (self.layout.shown_as[column],)
        return self.layout.state_of_rows(rows.rows_with(values)) if is_sorted_alike else self.state()

    def _rows_state(self) -> PlacedBag:
        assert self.rows_bag is not None
        return self.layout.state_of_rows(self.rows_bag.rows())

    def delta(self, after: int, upto: int) -> PlacedBag:
        """The view delta for after < csn ≤ upto: the state's columns and `_csn`."""
        return read_range(self.stored.session, self._delta_table, after, upto)

    def touched(self, after: int, upto: int) -> bool:
        """Whether the view delta may have anything for after < csn ≤ upto."""
        return bool(self._delta_table.files(csn=(after, upto)))

    def delta_of(self, files: Sequence[LakeFile]) -> PlacedBag:
        """The part of the view delta that whole files hold."""
        names = [name for name, _ in self.layout.state]
        return read_files(self.stored.session, self._delta_table, files).project(keep((*names, CSN)))

    def state_at(self, csn: int) -> PlacedBag:
        """The state at any csn that the view covers."""
        return self._state_at(csn)

    def _state_at(self, csn: int, near: PlacedBag | None = None) -> PlacedBag:
        """The same; if a piece of the delta is given, at least the part of the state that it changes."""
        shown = self.record.materialized_csn
        stored = self.state() if near is None else self._state_near(near)
        if csn == shown:
            return stored
        self.check_covered(csn)
        delta = self.delta(min(shown, csn), max(shown, csn))
        if near is not None:
            # Rows of other keys may be missing: nothing can be taken away from them.
            delta = delta.sharing(near, self.view.root.key)
        return self.view.root.roll(stored, delta if csn > shown else delta.negate())

    def state_with(self, csn: int, keys: PlacedBag | None) -> PlacedBag | None:
        """The rows of the state at a csn that have all values of a row of `keys`; all rows if there are none.

        None, if to find them takes reading much else, or if readers do not see the state as it is.
        """
        names, rows = () if keys is None else keys.columns, self.rows_bag
        if rows is None or self.layout.has_state or not _is_quickly_found(rows, names):
            return None
        if keys is None:
            return self.state_at(csn)
        shown = self.record.materialized_csn
        near = self.layout.state_of_rows(self.shown_with(keys)).sharing(keys, names)
        if csn == shown:
            return near
        self.check_covered(csn)
        delta = self.delta(min(shown, csn), max(shown, csn)).sharing(keys, names)
        return self.view.root.roll(near, delta if csn > shown else delta.negate())

    def check_covered(self, csn: int) -> None:
        """Refuses a csn that the view cannot be rolled to: whatever came out would not be a state of it."""
        name = self.view.name
        check_covered(self.stored.catalog, name, csn, self.covered, "rolled to")

    def rows_at(self, csn: int) -> PlacedBag:
        """The reader's rows at a csn, as a bag."""
        if csn == self.record.materialized_csn:
            return self.shown_rows()
        return self.layout.presented(self.state_at(csn))

    def shown_rows(self) -> PlacedBag:
        """The reader's rows now, as a bag."""
        rows = self.rows_bag
        return self.layout.presented(self.state()) if rows is None else rows.rows()

    def shown_with(self, keys: PlacedBag) -> PlacedBag:
        """At least those rows of what a reader sees now that have all values of a row of `keys`.

        Only where they can be is read, as long as `keys` has the column that the table is sorted by.
        """
        rows, state, names = self.rows_bag, self.state_bag, keys.columns
        types = dict(self.layout.columns)
        if keys.place != "driver" or not _has_types(keys, [(name, types[name]) for name in names]):
            return self.shown_rows()
        if rows is not None:
            is_sorted = rows.order[:1] and rows.order[0] in names
            near = rows.rows_with(_values(keys, rows.order[0])) if is_sorted else rows.rows()
            return near.sharing(keys, names)
        assert state is not None
        own = {name: shown for name, shown in self.view.root.shown_key.items() if shown in names}
        if not state.order[:1] or state.order[0] not in own:
            return self.shown_rows()
        # The shown rows of a key follow from its part of the state.
        wanted = keys.project([(name, Column(shown)) for name, shown in own.items()])
        near = state.rows_with(_values(wanted, state.order[0])).sharing(wanted, tuple(own))
        return self.layout.presented(near)

    def row_delta(self, after: int, upto: int) -> PlacedBag:
        """The change of the reader's rows by each transaction: the reader's columns and `_csn`."""
        root, delta = self.view.root, self.delta(after, upto)
        if root.is_linear:
            return self._shown(delta)
        delta.collect_if_small()
        if delta.has_no_rows:
            return self._shown(delta)
        middle = newest_uncondensed(self.stored.catalog, [self.view.name], (after + upto) // 2)
        if middle > after and _is_long(root, delta, upto - after):
            return self.row_delta(after, middle).plus(self.row_delta(middle, upto))
        # It is joined with more than one answer.
        return self._shown(root.row_delta(self._state_at(after, delta), delta, after)).materialized()

    def _shown(self, changed: PlacedBag) -> PlacedBag:
        return self.layout.typed_rows(changed, CSN)

    @property
    def _delta_table(self) -> LakeTable:
        return self._tables.deltas

    @property
    def _tables(self) -> ViewTables:
        return self.stored.tables.of_view(self.view.name, self.record.generation)


def _is_quickly_found(rows: StoredBag, columns: Sequence[str]) -> bool:
    """Whether rows with given values in these columns are found without reading much else."""
    return rows.order[:1] in [(name,) for name in columns] or (
        sum(file.rows for file in rows.files()) <= _FEW_ROWS
    )


def _has_types(bag: PlacedBag, columns: Sequence[tuple[str, str]]) -> bool:
    schema = arrow_schema(columns)
    return bool(bag.table().schema.empty_table().select(schema.names).schema.equals(schema))


def _values(bag: PlacedBag, column: str) -> list[Any]:
    """The values that rows at the driver have in a column, each once."""
    return list(pc.unique(bag.table()[column]).to_pylist())


def _is_long(root: Node, delta: PlacedBag, transactions: int) -> bool:
    """Whether a piece of a delta should be looked at in two halves: pairs of changes grow with its square."""
    if root.sums is not None:
        return False
    pairs = delta.distinct((*root.key, CSN)).pairs(delta, root.key)
    return transactions > _MOST_TRANSACTIONS if pairs is None else pairs > _MOST_PAIRS

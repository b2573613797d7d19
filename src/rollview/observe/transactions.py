"""Single transactions: where each came from, what it changed, what it did to views.

This process reads the rows, without Spark: those of change logs, and of view deltas shown as stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN
from rollview.algebra.view import View, is_stage
from rollview.bags import DRIVER_ROWS
from rollview.catalog import Catalog, Unit
from rollview.observe.state import base_tables
from rollview.storage.lake_tables import LakeTables
from rollview.storage.stored_view import StoredViews


@dataclass(frozen=True)
class ChangedRows:
    """The changes of a transaction in a table: how many rows, and the first of them with their counts.

    `rows` is None where the change log does not go back so far.
    """

    table: str
    number: int
    rows: pa.Table | None


@dataclass(frozen=True)
class Effect:
    """The effect of a transaction on a view.

    `state` is `shown`, `propagated`, `waiting`, or `untouched` where nothing that the view reads was changed;
    `loaded` where the view was loaded later. `shown_at` is None where the record does not go back so far.
    """

    view: str
    state: str
    shown_at: float | None


@dataclass(frozen=True)
class TransactionDetail:
    """A unit of work with everything that is known about it."""

    unit: Unit
    changes: tuple[ChangedRows, ...]
    effects: tuple[Effect, ...]


@dataclass(frozen=True)
class Transactions:
    """Reads single transactions."""

    catalog: Catalog
    tables: LakeTables
    stored: StoredViews

    def detail(self, csn: int, views: Mapping[str, View], limit: int) -> TransactionDetail | None:
        """One of them; None if it is not known, or not any more."""
        unit = self.catalog.observations.unit(csn)
        if unit is None:
            return None
        changes = tuple(self._changes(table, csn, number, limit) for table, number in unit.rows.items())
        return TransactionDetail(unit, changes, self._effects(unit, views))

    def _changes(self, table: str, csn: int, number: int, limit: int) -> ChangedRows:
        known = self.catalog.captured.tables().get(table)
        log = None if known is None else self.tables.change_log(known)
        if log is None or not log.exists():
            return ChangedRows(table, number, None)
        rows = log.load(log.files(csn=(csn - 1, csn)), csn=(csn - 1, csn))
        kept = None if not rows.num_rows and number else rows.drop_columns([CSN]).slice(0, limit)
        return ChangedRows(table, number, kept)

    def _effects(self, unit: Unit, views: Mapping[str, View]) -> tuple[Effect, ...]:
        moment, tables = self.catalog.standing(), base_tables(views)
        found = []
        for name in views:
            if is_stage(name) or name not in moment.views() or not unit.rows.keys() & set(tables[name]):
                continue
            record, state, shown_at = moment.views()[name], "waiting", None
            if unit.csn <= record.loaded_csn:
                state = "loaded"
            elif unit.csn <= record.materialized_csn:
                state, shown_at = "shown", self.catalog.observations.refreshed_at(name, unit.csn)
            elif unit.csn <= moment.high_water(name):
                state = "propagated"
            found.append(Effect(name, state, shown_at))
        return tuple(found)

    def local_deltas(self, view: str, after: int, upto: int) -> pa.Table | None:
        """The view delta with after < csn ≤ upto, read by this process.

        None where it is too long, or is not stored as a reader sees it: `Project.deltas` has it then.
        """
        stored = self.stored.open(view)
        columns = stored.layout.columns
        if not stored.view.root.is_linear or tuple(stored.layout.state) != tuple(columns):
            return None
        if after < stored.covered.oldest or upto > stored.covered.newest:
            return None
        deltas = self.tables.of_view(view, stored.record.generation).deltas
        files = deltas.files(csn=(after, upto)) if after < upto else ()
        if sum(file.rows for file in files) > DRIVER_ROWS:
            return None
        names = [*(name for name, _ in columns), COUNT, CSN]
        return deltas.load(files, csn=(after, upto)).select(names).sort_by(CSN)

"""Where everything stands, read at one moment by a few statements, however many views there are.

Whoever watches asks for all of it again and again. What a `Standing` tells is what the catalog's own methods
of the same names tell, each of which is a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection

from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import captured, faults, global_transactions, history, views
from rollview.catalog.consumers import read_consumers
from rollview.catalog.records import Consumer, Fault, Site, TableHistory, ViewRecord, Waiting

SCOPES = ("site", "table", "view")


@dataclass(frozen=True)
class Standing:
    """What the catalog knew at one moment."""

    last_csn: int
    commit_time: float | None
    waiting: tuple[Waiting, ...]
    consumers: tuple[Consumer, ...]
    _sites: dict[str, Site] = field(repr=False)
    _views: dict[str, ViewRecord] = field(repr=False)
    _positions: Mapping[str, dict[ForwardQuery, int]] = field(repr=False)
    _histories: dict[str, TableHistory] = field(repr=False)
    _faults: Mapping[str, dict[str, Fault]] = field(repr=False)

    def sites(self) -> dict[str, Site]:
        """The sites by name."""
        return self._sites

    def views(self) -> dict[str, ViewRecord]:
        """The views by name, stages included."""
        return self._views

    def positions(self, view: str) -> dict[ForwardQuery, int]:
        """How far each forward query of a view has come."""
        return self._positions.get(view, {})

    def high_water(self, view: str) -> int:
        """The csn up to which a view's delta is complete."""
        return min(self.positions(view).values(), default=self._views[view].materialized_csn)

    def histories(self) -> dict[str, TableHistory]:
        """The history that each captured table has."""
        return self._histories

    def faults(self, scope: str) -> dict[str, Fault]:
        """What keeps sites, tables or views from going on, by name."""
        return self._faults[scope]


def read_standing(connection: Connection) -> Standing:
    """All of it, as one transaction sees it."""
    last = history.last_csn(connection)
    return Standing(
        last_csn=last,
        commit_time=history.commit_time(connection, last),
        waiting=tuple(global_transactions.read_waiting(connection)),
        consumers=tuple(read_consumers(connection)),
        _sites=captured.read_sites(connection),
        _views=views.read_views(connection),
        _positions=views.read_all_positions(connection),
        _histories=captured.read_histories(connection),
        _faults={scope: faults.read_faults(connection, scope) for scope in SCOPES},
    )

"""Whether a view can go on from where it stands: what it reads must have a history that reaches back so far.

A table whose changes were lost, or a view that was loaded anew, begins its history again. Views that stand
before that moment are *detached*: they can be read at every csn that they cover, but neither be propagated
nor recomputed, until `setup` loads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rollview.algebra.view import View, is_stage, owner
from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import GIVEN_UP, Catalog, TableHistory, ViewRecord
from rollview.errors import HistoryBroken
from rollview.service.definitions import algorithm_of, is_full

WAY_ON = "`rollview setup` loads it; until then it can be read as it is"


class KnowsViews(Protocol):
    """What is known of views and tables: the catalog, or a copy of it as of one moment."""

    def views(self) -> Mapping[str, ViewRecord]:
        """The loaded views by name."""

    def histories(self) -> Mapping[str, TableHistory]:
        """The history that each captured table has now."""

    def positions(self, view: str) -> Mapping[ForwardQuery, int]:
        """How far each forward query of a view has come."""


def histories_of(view: View, catalog: KnowsViews) -> dict[str, str]:
    """Which history each table and each view has now that a view reads; one that is gone has none."""
    found: dict[str, str] = {}
    tables, views = catalog.histories(), catalog.views()
    for table in view.tables:
        name = table.qualified
        if table.source:
            found[name] = tables[name].id if name in tables else ""
        else:
            found[table.name] = str(views[table.name].generation) if table.name in views else ""
    return found


def detached(catalog: KnowsViews, view: View) -> str:
    """Why a view cannot go on; empty if it can. One that is recomputed always can."""
    if is_full(view):
        return ""
    views = catalog.views()
    known = views[view.name].histories
    if GIVEN_UP in known.values():
        return "an unfinished step of another release, which may have changed it, was given up"
    # The text of a stage alone does not say by what algorithm it is maintained.
    is_known = is_stage(view.name) or set(catalog.positions(view.name)) == set(
        algorithm_of(view).positions(view)
    )
    if not is_known:
        return f"another algorithm than {algorithm_of(view).name} has brought it here"
    return begun_again(catalog, view)


def begun_again(catalog: KnowsViews, view: View) -> str:
    """Which history of what a view reads does not reach back to where the view stands; empty if all do."""
    known = catalog.views()[view.name].histories
    # Before each table had a history of its own, it had that of its site.
    sites = {table.qualified: table.site for table in view.tables if table.source}
    for name, history in histories_of(view, catalog).items():
        if not history and is_stage(name):
            return "another release of rollview has stored it in other parts"
        if not history:
            return f"{name} is not captured any more"
        if known.get(name, known.get(sites.get(name, ""), history)) != history:
            return f"the history of {name} began again" if name in sites else f"{owner(name)} was loaded anew"
    return ""


def check_attached(catalog: Catalog, view: View) -> None:
    """Refuses a view that cannot go on."""
    if reason := detached(catalog, view):
        name = owner(view.name)
        raise HistoryBroken(
            f"view {name} stands at csn {catalog.high_water(view.name)} and cannot go on: {reason}",
            subject=name,
            hint=WAY_ON,
        )

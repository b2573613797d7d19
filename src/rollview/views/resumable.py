"""Whether a view can continue from where it is: the history of what it reads must reach back that far.

A table whose changes were lost, or a view that was reloaded, begins its history again. Views that are
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
from rollview.views.properties import algorithm_of, is_full

WAY_ON = "`rollview setup` loads it; until then it can be read as it is"


class KnowsViews(Protocol):
    """The records of views and tables: the catalog, or a copy of it as of one moment."""

    def views(self) -> Mapping[str, ViewRecord]:
        """The loaded views by name."""

    def histories(self) -> Mapping[str, TableHistory]:
        """The history that each captured table has now."""

    def positions(self, view: str) -> Mapping[ForwardQuery, int]:
        """How far each forward query of a view has come."""


def histories_of(view: View, known: KnowsViews) -> dict[str, str]:
    """Which history each table and each view has now that a view reads; one that is gone has none."""
    found: dict[str, str] = {}
    tables, views = known.histories(), known.views()
    for table in view.tables:
        name = table.qualified
        if table.source:
            found[name] = tables[name].id if name in tables else ""
        else:
            found[table.name] = str(views[table.name].generation) if table.name in views else ""
    return found


def detached(known: KnowsViews, view: View) -> str:
    """Why a view cannot continue; empty if it can. One that is recomputed always can."""
    if is_full(view):
        return ""
    if GIVEN_UP in known.views()[view.name].histories.values():
        return "an unfinished step of another release, which may have changed it, was given up"
    # The text of a stage alone does not say by what algorithm it is maintained.
    is_known = is_stage(view.name) or set(known.positions(view.name)) == set(
        algorithm_of(view).positions(view)
    )
    if not is_known:
        return f"another algorithm than {algorithm_of(view).name} has brought it here"
    return begun_again(known, view)


def begun_again(known: KnowsViews, view: View) -> str:
    """Which history of what a view reads does not reach back to where the view is; empty if all do."""
    loaded_with = known.views()[view.name].histories
    # Before each table had a history of its own, it had that of its site.
    sites = {table.qualified: table.site for table in view.tables if table.source}
    for name, history in histories_of(view, known).items():
        if not history and is_stage(name):
            return "another release of rollview has stored it in other parts"
        if not history:
            return f"{name} is not captured any more"
        if loaded_with.get(name, loaded_with.get(sites.get(name, ""), history)) != history:
            return f"the history of {name} began again" if name in sites else f"{owner(name)} was reloaded"
    return ""


def check_resumable(catalog: Catalog, view: View) -> None:
    """Refuses a view that cannot continue."""
    if reason := detached(catalog.now, view):
        name = owner(view.name)
        raise HistoryBroken(
            f"view {name} is at csn {catalog.views.high_water(view.name)} and cannot continue: {reason}",
            subject=name,
            hint=WAY_ON,
        )

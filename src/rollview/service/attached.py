"""Whether a view can go on from where it stands: what it reads must have a history that reaches back so far.

A site whose log was lost, or a view that was loaded anew, begins its history again. Views that stand before
that moment are *detached*: they can be read at every csn that they cover, but neither be propagated nor
recomputed, until `setup` loads them.
"""

from __future__ import annotations

from collections.abc import Mapping

from rollview.algebra.view import View, owner
from rollview.catalog import Catalog, Site, ViewRecord
from rollview.errors import HistoryBroken
from rollview.service.definitions import is_full


def histories_of(view: View, sites: Mapping[str, Site], views: Mapping[str, ViewRecord]) -> dict[str, str]:
    """Which history each site and each view has now that a view reads; one that is gone has none."""
    found: dict[str, str] = {}
    for table in view.tables:
        if table.source:
            found[table.site] = sites[table.site].history if table.site in sites else ""
        else:
            found[table.name] = str(views[table.name].generation) if table.name in views else ""
    return found


def detached(catalog: Catalog, view: View) -> str:
    """Why a view cannot go on; empty if it can. One that is recomputed always can."""
    if is_full(view):
        return ""
    views = catalog.views()
    known = views[view.name].histories
    for name, history in histories_of(view, catalog.sites(), views).items():
        if not history:
            return f"{owner(name)} is not captured any more"
        if known.get(name, history) != history:
            return f"{owner(name)} was loaded anew" if name in views else f"the history of {name} began again"
    return ""


def check_attached(catalog: Catalog, view: View) -> None:
    """Refuses a view that cannot go on."""
    if reason := detached(catalog, view):
        name = owner(view.name)
        raise HistoryBroken(
            f"view {name} stands at csn {catalog.high_water(view.name)} and cannot go on: {reason}",
            subject=name,
            hint="`rollview setup` loads it; until then it can be read as it is",
        )

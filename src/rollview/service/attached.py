"""Whether a view can go on from where it stands: what it reads must have a history that reaches back so far.

A site whose log was lost, or a view that was loaded anew, begins its history again. Views that stand before
that moment are *detached*: they can be read at every csn that they cover, but neither be propagated nor
recomputed, until `setup` loads them.
"""

from __future__ import annotations

from rollview.algebra.view import View, owner
from rollview.catalog import Catalog
from rollview.errors import HistoryBroken


def detached(catalog: Catalog, view: View) -> str:
    """Why a view cannot go on; empty if it can."""
    positions = catalog.positions(view.name).values()
    if not positions:
        return ""
    sites, views = catalog.sites(), catalog.views()
    for table in view.tables:
        if table.source:
            site = sites.get(table.site)
            began = None if site is None else site.origin_csn
            what = f"the history of {table.site}"
        else:
            read = views.get(table.name)
            began = None if read is None else read.loaded_csn
            what = f"the view {owner(table.name)}"
        if began is None:
            return f"{what} is gone"
        if began > min(positions):
            return f"{what} began again at csn {began}"
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

"""Truncations are written with the csn that they belong to, and go with the history of their table."""

from __future__ import annotations

from catalog_world import NO_CAPTURE, ORIGINS, TABLES

from rollview.catalog import Catalog, Part, Sequenced, Truncation, Unit

FOUND = (Truncation("x.r", 2), Truncation("x.s", 2), Truncation("x.r", 4))


def _capture(catalog: Catalog) -> None:
    catalog.register(TABLES, ORIGINS)
    units = tuple(Unit(csn, float(csn), (Part("x", csn, csn),), {"x.r": 1}) for csn in range(1, 6))
    with catalog.lease("capture") as lease:
        step = catalog.begin(lease, "", NO_CAPTURE)
        catalog.finish(lease, step, Sequenced(units, {"x": "after 5"}, truncations=FOUND))


def test_they_are_found_by_table_and_csn(catalog: Catalog) -> None:
    _capture(catalog)
    assert catalog.truncations(["x.r", "x.s", "y.t"]) == list(FOUND)
    assert catalog.truncations(["x.r"], after=2) == [FOUND[2]]
    assert catalog.truncations(["y.t"]) == catalog.truncations([]) == []


def test_they_are_kept_as_long_as_their_csn(catalog: Catalog) -> None:
    _capture(catalog)
    catalog.prune_history(2)
    assert catalog.truncations(["x.r", "x.s"]) == list(FOUND)
    catalog.prune_history(3)
    assert catalog.truncations(["x.r", "x.s"]) == [FOUND[2]]


def test_a_table_that_begins_again_was_never_truncated(catalog: Catalog) -> None:
    _capture(catalog)
    catalog.restart(["x.r"], [TABLES[0]], {})
    assert catalog.truncations(["x.r", "x.s"]) == [FOUND[1]]

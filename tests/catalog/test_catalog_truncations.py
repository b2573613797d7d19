"""Truncations are written with the csn that they belong to, and go with the history of their table."""

from __future__ import annotations

from catalog_world import NO_CAPTURE, ORIGINS, TABLES

from rollview.catalog import Catalog, Part, Sequenced, Truncation, Unit

FOUND = (Truncation("x.r", 2), Truncation("x.s", 2), Truncation("x.r", 4))


def _capture(catalog: Catalog) -> None:
    catalog.captured.register(TABLES, ORIGINS)
    units = tuple(Unit(csn, float(csn), (Part("x", csn, csn),), {"x.r": 1}) for csn in range(1, 6))
    with catalog.lease("capture") as lease:
        step = catalog.steps.begin(lease, "", NO_CAPTURE)
        catalog.steps.finish(lease, step, Sequenced(units, {"x": "after 5"}, truncations=FOUND))


def test_they_are_found_by_table_and_csn(catalog: Catalog) -> None:
    _capture(catalog)
    assert catalog.history.truncations(["x.r", "x.s", "y.t"]) == list(FOUND)
    assert catalog.history.truncations(["x.r"], after=2) == [FOUND[2]]
    assert catalog.history.truncations(["y.t"]) == catalog.history.truncations([]) == []


def test_they_are_kept_as_long_as_their_csn(catalog: Catalog) -> None:
    _capture(catalog)
    catalog.history.prune(2)
    assert catalog.history.truncations(["x.r", "x.s"]) == list(FOUND)
    catalog.history.prune(3)
    assert catalog.history.truncations(["x.r", "x.s"]) == [FOUND[2]]


def test_a_table_that_begins_again_was_never_truncated(catalog: Catalog) -> None:
    _capture(catalog)
    catalog.history.restart(["x.r"], [TABLES[0]], {})
    assert catalog.history.truncations(["x.r", "x.s"]) == [FOUND[1]]

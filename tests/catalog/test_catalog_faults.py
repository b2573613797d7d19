"""What stops sites, tables and views, in the catalog."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rollview.catalog import Catalog, Fault

_SITE = Fault("site", "x", "SourceUnavailable", "x is away", "wait")
_LOSS = Fault("table", "x.r", "SourceChanged", "r was dropped", "setup", csn=7)


def test_a_fault_is_new_once(catalog: Catalog) -> None:
    assert catalog.faults.note(_SITE)
    assert not catalog.faults.note(_SITE)
    since = catalog.faults.of("site")["x"].since
    assert since > 0
    assert catalog.faults.note(replace(_SITE, message="x is gone"))
    assert catalog.faults.of("site")["x"].since == since
    assert catalog.faults.of("view") == {}
    assert catalog.faults.clear("site", "x")
    assert not catalog.faults.clear("site", "x")
    assert catalog.faults.of("site") == {}


@pytest.mark.parametrize(
    ("first", "second", "csn", "columns"),
    [
        ((7, ()), (9, ()), 7, ()),
        ((9, ()), (7, ()), 7, ()),
        ((7, ("a",)), (9, ("a",)), 7, ("a",)),
        ((7, ("a",)), (9, ("b",)), 7, ("a", "b")),
        ((7, ("a",)), (9, ()), 7, ()),
        ((7, ()), (9, ("a",)), 7, ()),
        ((9, ("a",)), (7, ()), 7, ()),
    ],
)
def test_of_two_losses_none_is_forgotten(
    catalog: Catalog,
    first: tuple[int, tuple[str, ...]],
    second: tuple[int, tuple[str, ...]],
    csn: int,
    columns: tuple[str, ...],
) -> None:
    for at, concerned in (first, second):
        catalog.faults.note_losses([replace(_LOSS, csn=at, columns=concerned)])
    found = catalog.faults.of("table")["x.r"]
    assert (found.csn, found.columns) == (csn, columns)

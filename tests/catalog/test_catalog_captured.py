"""What is captured: tables come back as they were registered, and a changed one is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from catalog_world import NAMES, ORIGINS, TABLES, Both, Plan, capture

from rollview.algebra.relation import ForeignKey, Table
from rollview.catalog import Catalog, Part, Site, Unit
from rollview.errors import CatalogError, SourceChanged


def test_tables_come_back_whole(catalog: Catalog) -> None:
    odd = Table(
        "x",
        "größe",
        ("naïve", "b c"),
        key=("b c", "naïve"),
        foreign_keys=(ForeignKey(("naïve",), "x.r"), ForeignKey(("b c", "naïve"), "y.t")),
        types=("timestamp_ntz", "decimal(38,10)"),
    )
    catalog.captured.register([*TABLES, odd], ORIGINS)
    assert catalog.captured.tables() == {table.qualified: table for table in (*TABLES, odd)}
    assert catalog.captured.sites() == {
        "x": Site("x", "x", 0, "x0", None),
        "y.t": Site("y.t", "y", 0, "y0", None),
    }


def test_registering_again_adds_what_is_new_and_moves_no_log_position(catalog: Catalog) -> None:
    catalog.captured.register(TABLES[:1], ORIGINS)
    both = Both()
    both.add(Plan({"x": 5}, {"x.r": 1}))
    capture(catalog, both.units)
    site = catalog.captured.sites()["x"]
    catalog.captured.register(TABLES, {"x": ("x", "elsewhere"), "y.t": ("y", "y7")})
    assert catalog.captured.sites() == {"x": site, "y.t": Site("y.t", "y", 0, "y7", None)}
    assert {name: each.origin_csn for name, each in catalog.captured.histories().items()} == {
        name: 0 if name == "x.r" else 1 for name in NAMES
    }
    assert (site.version, site.log_position) == (1, "after 5") and site.captured_at is not None
    assert set(catalog.captured.tables()) == set(NAMES)


@pytest.mark.parametrize(
    "changed",
    [
        replace(TABLES[0], columns=("b", "a")),
        replace(TABLES[0], types=("int", "int")),
    ],
)
def test_other_types_are_refused(catalog: Catalog, changed: Table) -> None:
    catalog.captured.register(TABLES[:1], ORIGINS)
    with pytest.raises(SourceChanged, match=r"x\.r has changed: it was \(a int, b string\)") as caught:
        catalog.captured.register([TABLES[1], changed], ORIGINS)
    assert caught.value.subject == "x.r" and caught.value.hint
    # Nothing was changed: the new table beside it is not there either.
    assert catalog.captured.tables() == {"x.r": TABLES[0]}


def test_keys_may_change_and_types_become_known(catalog: Catalog) -> None:
    catalog.captured.register([replace(TABLES[0], types=())], ORIGINS)
    catalog.captured.register([TABLES[0]], ORIGINS)
    catalog.captured.register([replace(TABLES[0], types=(), key=("b",))], ORIGINS)
    assert catalog.captured.tables() == {"x.r": replace(TABLES[0], key=("b",))}


def test_a_table_cannot_move_to_another_site(catalog: Catalog) -> None:
    catalog.captured.register(TABLES, ORIGINS)
    with pytest.raises(CatalogError, match="captured as a part of site x"):
        catalog.captured.register([replace(TABLES[0], own_log=True)], {"x.r": ("x", "0")})


def test_a_new_site_needs_a_log_position(catalog: Catalog) -> None:
    with pytest.raises(CatalogError, match=r"y\.t belongs to site y\.t, for which no log position"):
        catalog.captured.register(TABLES, {"x": ("x", "x0")})
    assert catalog.captured.tables() == {} and catalog.captured.sites() == {}


def test_a_forgotten_table_begins_again(catalog: Catalog) -> None:
    catalog.captured.register(TABLES, ORIGINS)
    both = Both()
    both.add(Plan({"x": 1, "y.t": 1}, {"x.r": 1, "x.s": 2, "y.t": 3}))
    capture(catalog, both.units)
    before = catalog.captured.histories()
    catalog.captured.unregister(["y.t", "x.s"])
    assert set(catalog.captured.tables()) == {"x.r"}
    assert set(catalog.captured.sites()) == {"x"}
    catalog.captured.register(TABLES, ORIGINS)
    assert catalog.captured.sites()["y.t"] == Site("y.t", "y", 0, "y0", None)
    after = catalog.captured.histories()
    assert {name for name in NAMES if after[name] != before[name]} == {"y.t", "x.s"}
    assert (after["x.s"].origin_csn, after["y.t"].origin_csn) == (1, 1)
    assert [catalog.history.touched(name, 0, 1) for name in NAMES] == [1, 0, 0]
    assert (catalog.history.version_at("y.t", 1), catalog.history.version_at("x", 1)) == (0, 1)
    # The old source txid and version are free again.
    capture(catalog, [Unit(2, 200.0, (Part("y.t", 1, 1),), {"y.t": 4})])
    assert (catalog.history.touched("y.t", 0, 2), catalog.history.version_at("y.t", 2)) == (4, 1)


def test_columns_come_and_go(catalog: Catalog) -> None:
    catalog.captured.register(TABLES[:1], ORIGINS)
    history = catalog.captured.histories()
    for changed in (
        replace(TABLES[0], columns=("a", "b", "c"), types=("int", "string", "int")),
        replace(TABLES[0], columns=("a",), types=("int",)),
    ):
        catalog.captured.register([changed], ORIGINS)
        assert catalog.captured.tables() == {"x.r": changed}
    assert catalog.captured.histories() == history

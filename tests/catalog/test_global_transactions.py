"""Global transactions that wait for a part: kept, shown, ended by hand; and answers that saw half a unit."""

from __future__ import annotations

import pytest
from catalog_world import NO_CAPTURE, ORIGINS, TABLES

from rollview.algebra.history import Seen
from rollview.catalog import Catalog, Part, Sequenced, Unit, Waiting
from rollview.errors import InputError, NotWaiting, UnitSplit


def test_who_waits_is_kept_with_the_time_since_when(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 10.0
    monkeypatch.setattr(catalog, "_clock", lambda: now)
    assert catalog.global_transactions.waiting() == []
    catalog.global_transactions.wait_for([Waiting("g", ("x",), ("y",))])
    now = 20.0
    catalog.global_transactions.wait_for([Waiting("g", ("x",), ("y",)), Waiting("h", ("y",), ("x", "z"))])
    assert catalog.global_transactions.waiting() == [
        Waiting("g", ("x",), ("y",), 10.0),
        Waiting("h", ("y",), ("x", "z"), 20.0),
    ]
    catalog.global_transactions.wait_for([Waiting("h", ("y",), ("z",))])
    assert catalog.global_transactions.waiting() == [Waiting("h", ("y",), ("z",), 20.0)]


def test_a_wait_is_ended_by_name(catalog: Catalog) -> None:
    catalog.global_transactions.wait_for([Waiting("g", ("x",), ("y",))])
    assert catalog.global_transactions.released() == frozenset()
    assert catalog.global_transactions.release("g").missing == ("y",)
    assert catalog.global_transactions.released() == {"g"} and catalog.global_transactions.waiting() == []
    with pytest.raises(NotWaiting, match="no global transaction g is waiting") as caught:
        catalog.global_transactions.release("g")
    assert isinstance(caught.value, InputError) and "waiting: none" in caught.value.hint


def test_an_answer_that_saw_half_a_unit_has_no_csn(catalog: Catalog) -> None:
    catalog.register(TABLES, ORIGINS)
    units = (
        Unit(1, 1.0, (Part("x", 1, 11),), {}),
        Unit(2, 2.0, (Part("x", 2, 12), Part("x", 3, 13), Part("y.t", 1, 5)), {}),
        Unit(3, 3.0, (Part("x", 4, 14),), {}),
    )
    with catalog.lease("capture") as lease:
        step = catalog.begin(lease, "", NO_CAPTURE)
        catalog.finish(lease, step, Sequenced(units, {"x": "14", "y.t": "5"}))
    assert catalog.in_csn("x", Seen(3)) == Seen(2)
    assert catalog.in_csn("x", Seen(4, frozenset({2, 3}))) == Seen(3, frozenset({2}))
    for split in (Seen(2), Seen(4, frozenset({2})), Seen(3, frozenset({2}))):
        with pytest.raises(UnitSplit):
            catalog.in_csn("x", split)
    assert [catalog.csn_of("x", version) for version in (1, 2, 3, 4)] == [1, 2, 2, 3]
    assert catalog.version_at("x", 2) == 3

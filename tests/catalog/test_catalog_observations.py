"""What is remembered for those who watch: propagated intervals, and the small tables at one moment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from catalog_world import ORIGINS, TABLES, Both, Plan, capture, queries, view_record

from rollview.catalog import Catalog, Lease, LoadStep, Moved, Refresh, Refreshed, ViewAdded, ViewDropped
from rollview.catalog.step_bounds import StepEffect

ALL = tuple(queries())


@pytest.fixture
def lease(catalog: Catalog) -> Iterator[Lease]:
    """Held while the test runs; a view is there."""
    catalog.captured.register(TABLES, ORIGINS)
    with catalog.lease("work") as held:
        _do(catalog, held, ViewAdded(view_record(), queries()))
        yield held


def _do(catalog: Catalog, lease: Lease, *effects: StepEffect) -> None:
    catalog.steps.finish(lease, catalog.steps.begin(lease, "v", LoadStep()), *effects)  # type: ignore[arg-type]


def _intervals(catalog: Catalog, relation: int = 0) -> list[tuple[int, int]]:
    found = catalog.observations.intervals(["v"])
    return [(each.after, each.upto) for each in found if (each.block, each.relation) == (0, relation)]


def test_each_forward_query_has_intervals_of_its_own(catalog: Catalog, lease: Lease) -> None:
    _do(catalog, lease, Moved("v", ((ALL[0], 3), (ALL[1], 5))))
    _do(catalog, lease, Moved("v", ((ALL[0], 4), (ALL[1], 5))))
    assert _intervals(catalog) == [(0, 3), (3, 4)]
    # One that stays where it is has no interval.
    assert _intervals(catalog, 1) == [(0, 5)]
    assert catalog.observations.intervals(["w"]) == []


def test_intervals_are_bounded_and_go_with_the_view(
    catalog: Catalog, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollview.catalog.views._INTERVALS_KEPT", 3)
    for csn in range(1, 8):
        _do(catalog, lease, Moved("v", ((ALL[0], csn),)))
    assert _intervals(catalog) == [(4, 5), (5, 6), (6, 7)]
    _do(catalog, lease, ViewDropped("v"))
    assert _intervals(catalog) == []


def test_the_moment_and_its_fingerprint(catalog: Catalog, lease: Lease) -> None:
    before = catalog.observations.fingerprint()
    assert catalog.observations.fingerprint() == before
    both = Both()
    for source_txid in (1, 2, 3):
        both.add(Plan({"x": source_txid}, {"x.r": source_txid}))
    capture(catalog, both.units)
    captured = catalog.observations.fingerprint()
    assert captured != before
    _do(catalog, lease, Moved("v", tuple((query, 2) for query in ALL)))
    assert catalog.observations.fingerprint() != captured
    moment = catalog.standing()
    assert (moment.last_csn, moment.first_csn, moment.high_water("v")) == (3, 1, 2)
    assert moment.positions("v") == catalog.views.positions("v") and moment.views() == catalog.views.all()
    assert moment.histories() == catalog.captured.histories() and moment.run is None
    with catalog.lease("run"):
        held = catalog.standing().run
        assert held is not None and held.pid > 0
    assert catalog.observations.since("x", ["x.r", "x.s"], 1) == (2, 5)


def test_the_next_change_of_each_table(catalog: Catalog, lease: Lease) -> None:
    both = Both()
    for source_txid, table in enumerate(("x.r", "x.s", "x.r", "x.r"), start=1):
        both.add(Plan({"x": source_txid}, {table: 1}))
    capture(catalog, both.units)
    wanted = [("x.r", 0), ("x.r", 1), ("x.r", 4), ("x.s", 1), ("x.s", 2)]
    found = catalog.observations.next_touches(wanted)
    assert found == {("x.r", 0): 1, ("x.r", 1): 3, ("x.s", 1): 2}
    many = catalog.observations.next_touches(("x.r", csn) for csn in range(2000))
    assert len(many) == 4


def test_refreshes_minute_by_minute(catalog: Catalog, lease: Lease) -> None:
    for number, moment in enumerate((50.0, 61.0, 62.0, 119.9, 120.0, 300.0)):
        refresh = Refresh("v", "incremental", number, number + 1, 1, 0.1, "run", moment)
        _do(catalog, lease, Refreshed(refresh))
    found = catalog.observations.refreshed_minutes("v", 60.0, 60.0)
    ranges = [(each.number, each.first_at, each.from_csn, each.to_csn) for each in found]
    assert ranges == [(0, 50.0, 1, 1), (1, 61.0, 1, 4), (2, 120.0, 4, 5), (5, 300.0, 5, 6)]
    assert catalog.observations.refreshed_at("v", 4) == 119.9
    assert catalog.observations.refreshed_at("v", 7) is None
    pages = catalog.observations.refreshes("v", 0, 2), catalog.observations.refreshes("v", 6, 10)
    assert [each.refresh.to_csn for each in pages[0]] == [6, 5]
    assert [each.refresh.to_csn for each in pages[1]] == [4, 3, 2, 1]

"""Steps and their effects: all at once or not at all, and nothing ever goes back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from catalog_world import ORIGINS, TABLES, queries, view_record

from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import (
    ApplyStep,
    Catalog,
    CondenseStep,
    CsnRange,
    Lease,
    LoadStep,
    MaintainStep,
    Materialized,
    Moved,
    Part,
    Refresh,
    Refreshed,
    Retained,
    Sequenced,
    Step,
    StepBounds,
    StepEffect,
    Unit,
    ViewAdded,
    ViewDropped,
)
from rollview.errors import CatalogError

ALL = tuple(queries())
UNIT = Unit(1, 1.0, (Part("x", 1, 1),), {"x.r": 1})


@pytest.fixture
def lease(catalog: Catalog) -> Iterator[Lease]:
    """Held while the test runs; tables are registered."""
    catalog.register(TABLES, ORIGINS)
    with catalog.lease("work") as held:
        yield held


def _begin(catalog: Catalog, lease: Lease) -> Step[StepBounds[Any]]:
    """A step that may have any effect; the type checker would refuse most of them for a single kind."""
    return catalog.begin(lease, "v", LoadStep())


def _do(catalog: Catalog, lease: Lease, *effects: StepEffect) -> None:
    catalog.finish(lease, _begin(catalog, lease), *effects)


def test_bounds_stay_until_the_step_ends(catalog: Catalog, lease: Lease) -> None:
    first = catalog.begin(lease, "x", CondenseStep(3, 9))
    second = catalog.begin(lease, "y", CondenseStep(4, 5))
    third = catalog.begin(lease, "x", ApplyStep({"x": CsnRange(3, 4)}, "asked for"))
    assert first.id < second.id < third.id
    assert catalog.pending(CondenseStep) == [first, second]
    assert catalog.pending(CondenseStep, "x") == [first] and catalog.pending(MaintainStep) == []
    assert catalog.unfinished() == [first, second, third]
    catalog.abandon(lease, second)
    catalog.finish(lease, first)
    assert catalog.pending(CondenseStep) == []
    for end in (catalog.abandon, catalog.finish):
        with pytest.raises(CatalogError, match=f"condense step {first.id} of x is not pending"):
            end(lease, first)
    assert catalog.begin(lease, "x", LoadStep()).id == third.id + 1


def test_a_view_is_kept_as_it_was_added(catalog: Catalog, lease: Lease) -> None:
    records = {name: view_record(name) for name in ("v", "w")}
    _do(catalog, lease, ViewAdded(records["v"], queries()), ViewAdded(records["w"], {}))
    assert catalog.views() == records
    assert catalog.positions("v") == queries() and catalog.positions("w") == {}
    assert catalog.refreshes("v") == []
    assert (catalog.high_water("v"), catalog.high_water("w")) == (0, 0)
    _do(catalog, lease, Materialized("w", 8, 3, 4), Retained("w", 6))
    changed = replace(records["w"], materialized_csn=8, lake_version=3, state_version=4, oldest_csn=6)
    assert catalog.views() == {"v": records["v"], "w": changed}
    assert catalog.high_water("w") == 8


def test_the_high_water_mark_is_the_least_position(catalog: Catalog, lease: Lease) -> None:
    _do(catalog, lease, ViewAdded(view_record(), queries()))
    _do(catalog, lease, Moved("v", ((ALL[0], 7), (ALL[2], 5))))
    assert catalog.positions("v") == {ALL[0]: 7, ALL[1]: 0, ALL[2]: 5}
    assert catalog.high_water("v") == 0
    _do(catalog, lease, Moved("v", ((ALL[1], 6),)))
    assert catalog.high_water("v") == 5
    _do(catalog, lease, Moved("v", ((ALL[1], 6), (ALL[1], 9))))
    assert catalog.positions("v")[ALL[1]] == 9


def test_a_dropped_view_leaves_nothing(catalog: Catalog, lease: Lease) -> None:
    refresh = Refresh("v", "full", 0, 3, 10, 0.5, "first load", 1.0)
    _do(catalog, lease, ViewAdded(view_record(), queries()), ViewAdded(view_record("w"), queries("w")))
    _do(catalog, lease, Moved("v", ((ALL[0], 3),)), Refreshed(refresh))
    # Replacing a view is one step: what the old one had does not pass to the new one.
    _do(catalog, lease, ViewDropped("v"), ViewAdded(view_record(loaded=4), {ALL[0]: 4}))
    assert catalog.positions("v") == {ALL[0]: 4}
    assert catalog.refreshes("v") == []
    _do(catalog, lease, ViewDropped("v"))
    assert set(catalog.views()) == {"w"} and catalog.positions("v") == {}
    assert catalog.positions("w") == queries("w")


def test_refreshes_come_newest_first_and_are_bounded(
    catalog: Catalog, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollview.catalog.views._REFRESHES_KEPT", 4)
    made = []
    for number in range(6):
        # The clock is set back meanwhile; the order is that of the steps.
        made.append(Refresh("v", "incremental", number, number + 1, 5, 0.25, "policy", 100.0 - number))
        other = replace(made[-1], view="w")
        _do(catalog, lease, Refreshed(made[-1]), Refreshed(other))
    assert catalog.refreshes("v", 2) == made[:-3:-1]
    assert catalog.refreshes("v") == made[:-5:-1]
    assert len(catalog.refreshes("w")) == 4


@pytest.mark.parametrize(
    ("effect", "words"),
    [
        (Moved("v", ((ALL[0], 4),)), "cannot go back from csn 5 to csn 4"),
        (Moved("v", ((ALL[1], 6), (ALL[1], 5))), "cannot go back from csn 6 to csn 5"),
        (Moved("v", ((ForwardQuery("v", 7, 0), 9),)), r"no forward query \(7, 0\)"),
        (Moved("v", ((ForwardQuery("w", 0, 0), 9),)), "view w cannot move view v"),
        (Moved("u", ((ForwardQuery("u", 0, 0), 9),)), "u has no forward query"),
        (Materialized("v", 4, 9, 9), "cannot go back from csn 5 to csn 4"),
        (Materialized("u", 9, 9, 9), "view u is not in the catalog"),
        (Retained("v", 1), "cannot go back from csn 2 to csn 1"),
        (Retained("u", 9), "view u is not in the catalog"),
        (ViewDropped("u"), "view u is not in the catalog"),
        (ViewAdded(view_record(), {}), "view v already exists"),
        (ViewAdded(view_record("u"), queries("v")), "view v cannot move view u"),
        (Sequenced((replace(UNIT, csn=2),), {}), "csn 2 cannot follow csn 0"),
        (Sequenced((), {"z": "1"}), "site z is not captured"),
    ],
)
def test_one_bad_effect_undoes_them_all(
    catalog: Catalog, lease: Lease, effect: StepEffect, words: str
) -> None:
    _do(catalog, lease, ViewAdded(view_record(), queries()))
    _do(catalog, lease, Moved("v", ((ALL[0], 5),)), Materialized("v", 5, 2, 2), Retained("v", 2))
    before = (catalog.views(), catalog.positions("v"), catalog.sites())
    step = _begin(catalog, lease)
    good = (
        Moved("v", ((ALL[2], 1),)),
        ViewAdded(view_record("extra"), {}),
        Refreshed(Refresh("v", "full", 0, 1, 1, 1.0, "", 1.0)),
    )
    for effects in ((*good, effect), (effect, *good)):
        with pytest.raises(CatalogError, match=words):
            catalog.finish(lease, step, *effects)
        assert (catalog.views(), catalog.positions("v"), catalog.sites()) == before
        assert catalog.pending(LoadStep) == [step] and catalog.refreshes("v") == []
        assert catalog.last_csn() == 0
    catalog.finish(lease, step, *good, Sequenced((UNIT,), {"x": "1"}))
    assert catalog.last_csn() == 1 and catalog.pending(LoadStep) == []


def test_an_unknown_view_has_no_high_water_mark(catalog: Catalog) -> None:
    with pytest.raises(CatalogError, match="view u is not in the catalog"):
        catalog.high_water("u")

"""Steps and their effects: all at once or not at all, and nothing ever goes back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from catalog_world import ORIGINS, TABLES, queries, view_record

from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import (
    AlgorithmChoice,
    AlgorithmCost,
    ApplyStep,
    Catalog,
    CondenseStep,
    CsnRange,
    Lease,
    LoadStep,
    MaintainStep,
    Materialized,
    Measured,
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
    Work,
    Worked,
)
from rollview.errors import CatalogError

ALL = tuple(queries())
UNIT = Unit(1, 1.0, (Part("x", 1, 1),), {"x.r": 1})


@pytest.fixture
def lease(catalog: Catalog) -> Iterator[Lease]:
    """Held while the test runs; tables are registered."""
    catalog.captured.register(TABLES, ORIGINS)
    with catalog.lease("work") as held:
        yield held


def _begin(catalog: Catalog, lease: Lease) -> Step[StepBounds[Any]]:
    """A step that may have any effect; the type checker would refuse most of them for a single kind."""
    return catalog.steps.begin(lease, "v", LoadStep())


def _do(catalog: Catalog, lease: Lease, *effects: StepEffect) -> None:
    catalog.steps.finish(lease, _begin(catalog, lease), *effects)


def test_bounds_stay_until_the_step_ends(catalog: Catalog, lease: Lease) -> None:
    first = catalog.steps.begin(lease, "x", CondenseStep(3, 9))
    second = catalog.steps.begin(lease, "y", CondenseStep(4, 5))
    third = catalog.steps.begin(lease, "x", ApplyStep({"x": CsnRange(3, 4)}, "asked for"))
    assert first.id < second.id < third.id
    assert catalog.steps.pending(CondenseStep) == [first, second]
    assert catalog.steps.pending(CondenseStep, "x") == [first] and catalog.steps.pending(MaintainStep) == []
    assert catalog.steps.unfinished() == [first, second, third]
    catalog.steps.abandon(lease, second)
    catalog.steps.finish(lease, first)
    assert catalog.steps.pending(CondenseStep) == []
    for end in (catalog.steps.abandon, catalog.steps.finish):
        with pytest.raises(CatalogError, match=f"condense step {first.id} of x is not pending"):
            end(lease, first)
    assert catalog.steps.begin(lease, "x", LoadStep()).id == third.id + 1


def test_a_view_is_kept_as_it_was_added(catalog: Catalog, lease: Lease) -> None:
    records = {name: view_record(name) for name in ("v", "w")}
    _do(catalog, lease, ViewAdded(records["v"], queries()), ViewAdded(records["w"], {}))
    assert catalog.views.all() == records
    assert catalog.views.positions("v") == queries() and catalog.views.positions("w") == {}
    assert catalog.views.refreshes("v") == []
    assert (catalog.views.high_water("v"), catalog.views.high_water("w")) == (0, 0)
    _do(catalog, lease, Materialized("w", 8, 3, 4), Retained("w", 6))
    changed = replace(records["w"], materialized_csn=8, lake_version=3, state_version=4, oldest_csn=6)
    assert catalog.views.all() == {"v": records["v"], "w": changed}
    assert catalog.views.high_water("w") == 8


def test_the_high_water_mark_is_the_least_position(catalog: Catalog, lease: Lease) -> None:
    _do(catalog, lease, ViewAdded(view_record(), queries()))
    _do(catalog, lease, Moved("v", ((ALL[0], 7), (ALL[2], 5))))
    assert catalog.views.positions("v") == {ALL[0]: 7, ALL[1]: 0, ALL[2]: 5}
    assert catalog.views.high_water("v") == 0
    _do(catalog, lease, Moved("v", ((ALL[1], 6),)))
    assert catalog.views.high_water("v") == 5
    _do(catalog, lease, Moved("v", ((ALL[1], 6), (ALL[1], 9))))
    assert catalog.views.positions("v")[ALL[1]] == 9


def test_a_dropped_view_leaves_nothing(catalog: Catalog, lease: Lease) -> None:
    refresh = Refresh("v", "full", 0, 3, 10, 0.5, "first load", 1.0)
    _do(catalog, lease, ViewAdded(view_record(), queries()), ViewAdded(view_record("w"), queries("w")))
    _do(catalog, lease, Moved("v", ((ALL[0], 3),)), Refreshed(refresh))
    # Replacing a view is one step: what the old one had does not pass to the new one.
    _do(catalog, lease, ViewDropped("v"), ViewAdded(view_record(loaded=4), {ALL[0]: 4}))
    assert catalog.views.positions("v") == {ALL[0]: 4}
    assert catalog.views.refreshes("v") == []
    _do(catalog, lease, ViewDropped("v"))
    assert set(catalog.views.all()) == {"w"} and catalog.views.positions("v") == {}
    assert catalog.views.positions("w") == queries("w")


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
    assert catalog.views.refreshes("v", 2) == made[:-3:-1]
    assert catalog.views.refreshes("v") == made[:-5:-1]
    assert len(catalog.views.refreshes("w")) == 4


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
    before = (catalog.views.all(), catalog.views.positions("v"), catalog.captured.sites())
    step = _begin(catalog, lease)
    good = (
        Moved("v", ((ALL[2], 1),)),
        ViewAdded(view_record("extra"), {}),
        Refreshed(Refresh("v", "full", 0, 1, 1, 1.0, "", 1.0)),
    )
    for effects in ((*good, effect), (effect, *good)):
        with pytest.raises(CatalogError, match=words):
            catalog.steps.finish(lease, step, *effects)
        assert (catalog.views.all(), catalog.views.positions("v"), catalog.captured.sites()) == before
        assert catalog.steps.pending(LoadStep) == [step] and catalog.views.refreshes("v") == []
        assert catalog.history.last_csn() == 0
    catalog.steps.finish(lease, step, *good, Sequenced((UNIT,), {"x": "1"}))
    assert catalog.history.last_csn() == 1 and catalog.steps.pending(LoadStep) == []


def test_costs_are_kept_by_algorithm(catalog: Catalog, lease: Lease) -> None:
    """All of them added up, and those to compare one by one; a view that goes takes them along."""
    _do(catalog, lease, ViewAdded(view_record(), queries()), ViewAdded(view_record("w"), queries("w")))
    work = Work(steps=1, lookups=2, rows_found=3)
    for number in range(10):
        _do(catalog, lease, Worked("v", work, "sweep", number, 0.5))
        catalog.works.note_measured(lease, "v", "sweep", Measured(number, 2, 3, 0.5))
    _do(catalog, lease, Worked("v", work, "sweep", 7, 1.0), Worked("v", work), Worked("w", work, "strobe", 1))
    _do(catalog, lease, Worked("v", work, "c-strobe", 4, 0.25))
    catalog.works.note_failure(lease, "v", "c-strobe", "no rest")
    recent = tuple(Measured(number, 2, 3, 0.5) for number in range(2, 10))
    assert catalog.works.by_algorithm("v") == {
        "sweep": AlgorithmCost("sweep", 11, 45 + 7, 22, 33, 6.0, 0, "", recent),
        "c-strobe": AlgorithmCost("c-strobe", 1, 4, 2, 3, 0.25, 1, "no rest"),
    }
    assert catalog.works.of_view("v") == Work(steps=13, lookups=26, rows_found=39)
    choices = [AlgorithmChoice("sweep", 4, 12, ""), AlgorithmChoice("c-strobe", 0, 13, "cheap")]
    for choice in choices:
        catalog.works.choose(lease, "v", choice, begins_round=choice.transactions > 0)
        assert catalog.works.choices() == {"v": choice}
    assert not any(cost.recent for cost in catalog.works.by_algorithm("v").values())
    _do(catalog, lease, ViewDropped("v"), ViewAdded(view_record(), queries()))
    assert catalog.works.by_algorithm("v") == catalog.works.choices() == {}
    assert catalog.works.by_algorithm("w") == {"strobe": AlgorithmCost("strobe", 1, 1, 2, 3)}


def test_an_unknown_view_has_no_high_water_mark(catalog: Catalog) -> None:
    with pytest.raises(CatalogError, match="view u is not in the catalog"):
        catalog.views.high_water("u")

"""Valid times of tables: as long as nothing changed, and no longer than anything is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from rollview.algebra.relation import Table
from rollview.algebra.valid_time import ValidTime, times_in_common
from rollview.catalog import CaptureStep, Catalog, Fault, Part, Sequenced, Unit
from rollview.upkeep.valid_times import ValidTimes

TOUCHED = [{"x.t"}, {"x.u"}, set(), {"x.t", "x.u"}, {"x.u"}, set()]
LAST = len(TOUCHED)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = Catalog.open(f"sqlite:///{tmp_path / 'catalog.db'}")
    made.captured.register(
        [Table("x", name, ("a",), types=("int",)) for name in ("t", "u")], {"x": ("x", "")}
    )
    units = [
        Unit(csn, float(csn), (Part("x", csn, csn),), dict.fromkeys(names, 1))
        for csn, names in enumerate(TOUCHED, 1)
    ]
    with made.lease("capture") as lease:
        step = made.steps.begin(lease, "", CaptureStep(sites={}, units=(), versions={}))
        made.steps.finish(lease, step, Sequenced(tuple(units), {"x": "end"}))
    return made


def _of(catalog: Catalog, names: list[str], csn: int) -> ValidTime:
    nobody = cast(Any, None)
    return ValidTimes(catalog, nobody, nobody).of_tables(names, csn)


@pytest.mark.parametrize("names", [["x.t"], ["x.u"], ["x.t", "x.u"]])
def test_oracle_from_the_last_change_to_the_next(catalog: Catalog, names: list[str]) -> None:
    for csn in range(LAST + 1):
        changed = [each for each, touched in enumerate(TOUCHED, 1) if touched & set(names)]
        since = max((each for each in changed if each <= csn), default=0)
        until = min((each for each in changed if each > csn), default=None)
        assert _of(catalog, names, csn) == ValidTime(since, until), csn


def test_nothing_is_known_of_what_was_forgotten_or_lost(catalog: Catalog) -> None:
    catalog.history.prune(2)
    assert _of(catalog, ["x.t"], 1) == ValidTime(1, 2)
    assert _of(catalog, ["x.t"], 2) == ValidTime(1, 4)
    # Changes of the table are missing from there on.
    catalog.faults.note(Fault("table", "x.t", "SourceChanged", "lost", csn=6))
    assert _of(catalog, ["x.t"], 4) == _of(catalog, ["x.t"], 5) == ValidTime(4, 6)
    assert _of(catalog, ["x.t"], 6) == ValidTime(6, 7)
    assert _of(catalog, ["x.u"], 6) == ValidTime(5)
    assert _of(catalog, ["x.t", "x.u"], 5) == ValidTime(5, 6)


def test_times_in_common() -> None:
    one = [ValidTime(0, 3), ValidTime(5, 9), ValidTime(12)]
    other = [ValidTime(2, 6), ValidTime(8, 20)]
    assert times_in_common([one, other]) == (
        ValidTime(2, 3),
        ValidTime(5, 6),
        ValidTime(8, 9),
        ValidTime(12, 20),
    )
    assert times_in_common([one, [ValidTime(3, 5)]]) == ()
    assert times_in_common([]) == (ValidTime(0),)

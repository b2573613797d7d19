"""Global transactions that wait for a part: kept, shown, ended by hand; and answers that saw half a unit."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from catalog_world import NO_CAPTURE, ORIGINS, TABLES

from rollview.algebra.history import Seen
from rollview.catalog import Catalog, Part, Sequenced, Unit, Waiting
from rollview.catalog.global_transactions import overdue
from rollview.config.project_file import read_project_file
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


def test_a_wait_is_given_up_once(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_clock", lambda: 10.0)
    transactions = catalog.global_transactions
    transactions.wait_for([Waiting("g", ("x",), ("y",)), Waiting("h", ("y",), ("x",))])
    assert transactions.give_up(["g", "never heard of"]) == [Waiting("g", ("x",), ("y",), 10.0)]
    assert transactions.give_up(["g"]) == [] and transactions.released() == {"g"}
    assert [each.global_id for each in transactions.waiting()] == ["h"]
    # It may come to wait again under the same id, and is given up again.
    transactions.wait_for([Waiting("g", ("x",), ("y",))])
    assert len(transactions.give_up(["g"])) == 1
    assert transactions.last_released(since=10.0) == [("g", 10.0)]
    assert transactions.last_released(since=10.5) == []


def test_what_is_overdue_depends_on_whether_the_missing_sites_had_their_time() -> None:
    waiting = [Waiting("g", ("x",), ("y",), since=100.0), Waiting("h", ("x",), ("y", "z"), since=100.0)]
    end = float("inf")
    # Not long enough; then long enough, with y read to its end, and z as well.
    assert overdue(waiting, 99.0, {"y": end, "z": end}, {}) == []
    assert overdue(waiting, 100.0, {"y": end}, {}) == ["g"]
    assert overdue(waiting, 100.0, {"y": end, "z": end}, {}) == ["g", "h"]
    # y has so many transactions that it was read up to before the wait began, or was not read at all.
    assert overdue(waiting, 100.0, {"y": 99.0, "z": end}, {}) == []
    assert overdue(waiting, 100.0, {"y": 100.5, "z": end}, {}) == ["g", "h"]
    assert overdue(waiting, 100.0, {}, {}) == []
    # z fails: it has the same time, from when it began to fail, whatever was read of it before.
    assert overdue(waiting, 100.0, {"y": end, "z": end}, {"z": 150.0}) == ["g"]
    assert overdue(waiting, 200.0, {"y": end}, {"z": 150.0}) == ["g", "h"]
    # Nobody is ever given up by a project that says `never`.
    assert overdue(waiting, -end, {"y": end, "z": end}, {"y": 0.0}) == []


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("", 300.0),
        ("global_transactions: {}", 300.0),
        ("global_transactions: {give_up_after: 10 minutes}", 600.0),
        ("global_transactions: {give_up_after: 0}", 0.0),
        ("global_transactions: {give_up_after: never}", math.inf),
    ],
)
def test_the_project_file_says_how_long_a_part_is_waited_for(
    tmp_path: Path, said: str, seconds: float
) -> None:
    (tmp_path / "rollview.yml").write_text(f"sources: {{a: {{type: sqlite, path: a.db}}}}\n{said}\n")
    assert read_project_file(tmp_path).give_up_after == seconds


def test_an_answer_that_saw_half_a_unit_has_no_csn(catalog: Catalog) -> None:
    catalog.captured.register(TABLES, ORIGINS)
    units = (
        Unit(1, 1.0, (Part("x", 1, 11),), {}),
        Unit(2, 2.0, (Part("x", 2, 12), Part("x", 3, 13), Part("y.t", 1, 5)), {}),
        Unit(3, 3.0, (Part("x", 4, 14),), {}),
    )
    with catalog.lease("capture") as lease:
        step = catalog.steps.begin(lease, "", NO_CAPTURE)
        catalog.steps.finish(lease, step, Sequenced(units, {"x": "14", "y.t": "5"}))
    assert catalog.history.in_csn("x", Seen(3)) == Seen(2)
    assert catalog.history.in_csn("x", Seen(4, frozenset({2, 3}))) == Seen(3, frozenset({2}))
    for split in (Seen(2), Seen(4, frozenset({2})), Seen(3, frozenset({2}))):
        with pytest.raises(UnitSplit):
            catalog.history.in_csn("x", split)
    assert [catalog.history.csn_of("x", version) for version in (1, 2, 3, 4)] == [1, 2, 2, 3]
    assert catalog.history.version_at("x", 2) == 3

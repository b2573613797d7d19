"""Steps that another release has begun: an older one's are finished, a newer one's are refused untouched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from catalog_world import ORIGINS, TABLES, by_hand, queries, view_record

from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import (
    ApplyStep,
    CaptureStep,
    Catalog,
    CondenseStep,
    CsnRange,
    DropStep,
    Lease,
    LoadStep,
    MaintainStep,
    Materialized,
    Moved,
    Part,
    PlannedUnit,
    PropagateStep,
    QueryInterval,
    QuerySkip,
    Refresh,
    Refreshed,
    Sequenced,
    SiteBatch,
    Step,
    StepBounds,
    Unit,
    UnitPart,
    UnreadableStep,
    ViewAdded,
    migrations,
)
from rollview.catalog.database import Database
from rollview.catalog.step_bounds import KINDS
from rollview.catalog.steps import UPGRADES
from rollview.errors import InputError, StepRefused
from rollview.version import __version__

# As the code before versions wrote them, letter by letter.
OLD_CAPTURE = (
    '{"sites": {"x": {"after": "x0", "upto": "x9", "marks": [7, 9]}, '
    '"y.t": {"after": "y0", "upto": "y3", "marks": [3]}}, '
    '"units": [[1, 10.5, [["x", 1], ["y.t", 1]]], [2, 11.0, [["x", 2]]]], "versions": {"x": 0, "y.t": 0}}'
)
OLD_PROPAGATE = '{"intervals": [[0, 1, 0, 2]], "skipped": [[0, 0, 2], [1, null, 2]]}'
OLD_APPLY = '{"views": {"v": [0, 2], "w": [0, 1]}, "reason": "run"}'
OLD_RANGE = '{"after": 0, "upto": 2}'

CAPTURE = CaptureStep(
    sites={"x": SiteBatch("x0", "x9", (7, 9)), "y.t": SiteBatch("y0", "y3", (3,))},
    units=(
        PlannedUnit(1, 10.5, (UnitPart("x", 1), UnitPart("y.t", 1))),
        PlannedUnit(2, 11.0, (UnitPart("x", 2),)),
    ),
    versions={"x": 0, "y.t": 0},
)
PROPAGATE = PropagateStep((QueryInterval(0, 1, 0, 2),), (QuerySkip(0, 0, 2), QuerySkip(1, None, 2)))
APPLY = ApplyStep({"v": CsnRange(0, 2), "w": CsnRange(0, 1)}, "run")

OF_EVERY_KIND: list[tuple[str, StepBounds[Any]]] = [
    ("", CAPTURE),
    ("v", PROPAGATE),
    ("w", PropagateStep((), (QuerySkip(0, 0, 5),), 5)),
    ("a, b", PropagateStep((QueryInterval(-1, None, 2, 9),), (), algorithm="c-strobe")),
    ("v,w", APPLY),
    ("v", LoadStep()),
    ("v", DropStep()),
    ("v", CondenseStep(0, 2)),
    ("(changes)", MaintainStep(4)),
]


def _rows(url: str) -> list[dict[str, Any]]:
    return by_hand(url, "SELECT * FROM step ORDER BY id")


@pytest.fixture
def old(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """A catalog that a release before versions left behind, with a step of every kind, opened by this one."""
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:4])
        database = Database(url)
        database.migrate(1.0)
        database.close()
    steps = [
        ("capture", "", OLD_CAPTURE),
        ("propagate", "v", OLD_PROPAGATE),
        ("apply", "v,w", OLD_APPLY),
        ("load", "v", "{}"),
        ("drop", "v", "{}"),
        ("condense", "v", OLD_RANGE),
        ("maintain", "(changes)", '{"upto": 4}'),
    ]
    for number, (kind, subject, bounds) in enumerate(steps, 1):
        made = "INSERT INTO step VALUES (:number, :kind, :subject, :bounds, 5.0)"
        by_hand(url, made, number=number, kind=kind, subject=subject, bounds=bounds)
    by_hand(url, f"UPDATE catalog SET last_step = {len(steps)}")
    catalog = Catalog.open(url)
    catalog.captured.register(TABLES, ORIGINS)
    yield catalog
    catalog.close()


@pytest.fixture
def lease(catalog: Catalog) -> Iterator[Lease]:
    """Held while the test runs. Views v, w and `a, b` are loaded."""
    catalog.captured.register(TABLES, ORIGINS)
    with catalog.lease("work") as held:
        added = [ViewAdded(view_record(name), queries(name)) for name in ("v", "w", "a, b")]
        catalog.steps.finish(held, catalog.steps.begin(held, "v", LoadStep()), *added)
        yield held


def test_bounds_of_every_kind_come_back_as_they_were(catalog: Catalog, url: str, lease: Lease) -> None:
    begun = [catalog.steps.begin(lease, subject, bounds) for subject, bounds in OF_EVERY_KIND]
    assert catalog.steps.unfinished() == begun
    for step in begun:
        assert catalog.steps.pending(type(step.bounds), step.subject) == [step]
    assert {type(step.bounds) for step in begun} == set(KINDS.values())
    written = [(row["kind"], row["version"], row["written_by"]) for row in _rows(url)]
    assert written == [(step.kind, step.bounds.version, __version__) for step in begun]


def test_every_older_version_has_its_upgrade() -> None:
    assert set(UPGRADES) == {(kind, version) for kind in KINDS.values() for version in range(kind.version)}


def test_a_long_capture_is_read_whole(catalog: Catalog, lease: Lease) -> None:
    units = tuple(PlannedUnit(n, n / 8, (UnitPart("x", n),)) for n in range(1, 20_001))
    bounds = CaptureStep({"x": SiteBatch("0", "9", tuple(range(20_000)))}, units, {"x": 0})
    step = catalog.steps.begin(lease, "", bounds)
    assert catalog.steps.pending(CaptureStep) == [step]


def test_old_steps_are_read_as_what_they_were(old: Catalog) -> None:
    assert old.steps.pending(CaptureStep) == [Step(1, "", CAPTURE, 5.0)]
    assert old.steps.pending(PropagateStep, "v") == [Step(2, "v", PROPAGATE, 5.0)]
    assert old.steps.pending(ApplyStep) == [Step(3, "v,w", APPLY, 5.0)]
    found = old.steps.unfinished()
    assert [(step.kind, step.subject) for step in found] == [
        ("capture", ""),
        ("propagate", "v"),
        ("apply", "v,w"),
        ("load", "v"),
        ("drop", "v"),
        ("condense", "v"),
        ("maintain", "(changes)"),
    ]
    assert not any(isinstance(step, UnreadableStep) for step in found)
    # Decoded for good: what a driver does with a number or a tuple works.
    for step in found:
        assert isinstance(step, Step) and all(
            type(getattr(step.bounds, each.name)) in (dict, tuple, str, int) for each in fields(step.bounds)
        )


def test_old_steps_are_finished_and_abandoned(old: Catalog, url: str) -> None:
    with old.lease("work") as lease:
        added = [ViewAdded(view_record(name), queries(name)) for name in ("v", "w")]
        # A load is redone: the old one is given up, and a new one begun.
        old.steps.abandon_pending(lease, "v", LoadStep, DropStep)
        old.steps.finish(lease, old.steps.begin(lease, "v", LoadStep()), *added)
        for capture in old.steps.pending(CaptureStep):
            positions = {name: batch.upto for name, batch in capture.bounds.sites.items()}
            taken = {name: iter(batch.source_txids) for name, batch in capture.bounds.sites.items()}
            units = tuple(
                Unit(csn, time, tuple(Part(site, version, next(taken[site])) for site, version in parts), {})
                for csn, time, parts in capture.bounds.units
            )
            old.steps.finish(lease, capture, Sequenced(units, positions))
        for propagate in old.steps.pending(PropagateStep, "v"):
            ends = (*propagate.bounds.intervals, *propagate.bounds.skipped)
            moves = tuple((ForwardQuery("v", each.block, each.relation), each.upto) for each in ends)
            old.steps.finish(lease, propagate, Moved("v", moves))
        for apply in old.steps.pending(ApplyStep):
            for name, (after, _) in apply.bounds.views.items():
                assert (after, old.views.all()[name].materialized_csn) == (0, 0)
            shown = [Materialized(name, each.upto, 1, 1) for name, each in apply.bounds.views.items()]
            refresh = Refresh("v", "incremental", 0, 2, 1, 0.0, apply.bounds.reason, 1.0)
            old.steps.finish(lease, apply, *shown, Refreshed(refresh))
        for condense in old.steps.pending(CondenseStep, "v"):
            old.steps.abandon(lease, condense)
        for maintain in old.steps.pending(MaintainStep, "(changes)"):
            old.steps.abandon(lease, maintain)
    assert old.steps.unfinished() == [] and _rows(url) == []
    assert old.history.last_csn() == 2 and old.history.commit_time(1) == 10.5
    assert {name: site.log_position for name, site in old.captured.sites().items()} == {
        "x": "x9",
        "y.t": "y3",
    }
    assert old.history.source_txids("x").versions([7, 9]) == {7: 1, 9: 2}
    assert old.views.high_water("v") == 2
    assert {name: record.materialized_csn for name, record in old.views.all().items()} == {"v": 2, "w": 1}
    assert old.views.refreshes("v")[0].reason == "run"


@pytest.mark.parametrize(("subject", "bounds"), OF_EVERY_KIND, ids=lambda each: getattr(each, "kind", ""))
def test_a_newer_version_is_refused_untouched(
    catalog: Catalog, url: str, lease: Lease, subject: str, bounds: StepBounds[Any]
) -> None:
    step = catalog.steps.begin(lease, subject, bounds)
    newer = bounds.version + 1
    # Even if the bounds look as if they could be read.
    by_hand(url, "UPDATE step SET version = :newer, written_by = '7.3'", newer=newer)
    before = _rows(url)
    with pytest.raises(StepRefused) as caught:
        catalog.steps.pending(type(bounds), subject)
    of_subject = f" of {subject}" if subject else ""
    start = f"{bounds.kind} step {step.id}{of_subject}, written by rollview 7.3, cannot be finished: "
    assert caught.value.message.startswith(start)
    assert f"version {newer}, and this rollview knows only up to {bounds.version}" in caught.value.message
    assert "install rollview 7.3 or later" in caught.value.hint
    assert isinstance(caught.value, InputError) and caught.value.subject
    assert _rows(url) == before
    found = catalog.steps.unfinished()
    assert [type(each) for each in found] == [UnreadableStep]
    assert isinstance(found[0], UnreadableStep) and found[0].refusal.message == caught.value.message


@pytest.mark.parametrize(
    ("kind", "subject", "views", "command"),
    [
        ("propagate", "v", ("v",), "`rollview setup --reload v`"),
        ("apply", "v,w", ("v", "w"), "`rollview setup --reload v --reload w`"),
        ("apply", "w,a, b", ("a, b", "w"), "`rollview setup --reload 'a, b' --reload w`"),
        ("backfill", "v", ("v",), "`rollview setup --reload v`"),
        ("capture", "", ("a, b", "v", "w"), "`rollview setup --reload all`"),
        ("maintain", "(changes)", ("a, b", "v", "w"), "`rollview setup --reload all`"),
        ("load", "not_loaded_yet", (), "`rollview setup`"),
    ],
)
def test_the_hint_names_the_views_to_reload(
    catalog: Catalog, url: str, lease: Lease, kind: str, subject: str, views: tuple[str, ...], command: str
) -> None:
    made = "INSERT INTO step VALUES (99, :kind, :subject, '{}', 1.0, 9, '7.3')"
    by_hand(url, made, kind=kind, subject=subject)
    (found,) = catalog.steps.unfinished()
    assert isinstance(found, UnreadableStep)
    assert (found.kind, found.subject, found.views) == (kind, subject, views)
    assert found.concerns_all == (subject in ("", "(changes)"))
    assert command in found.refusal.hint


def test_an_unknown_kind_stops_whoever_works_on_its_subject(catalog: Catalog, url: str, lease: Lease) -> None:
    by_hand(url, "INSERT INTO step VALUES (99, 'backfill', 'v', '{}', 1.0, 1, '7.3')")
    mine = catalog.steps.begin(lease, "w", PROPAGATE)
    before = _rows(url)
    for ask in (
        lambda: catalog.steps.pending(PropagateStep, "v"),
        lambda: catalog.steps.pending(LoadStep, "v"),
        lambda: catalog.steps.pending(CaptureStep),
        lambda: catalog.steps.pending(ApplyStep),
    ):
        with pytest.raises(StepRefused, match="does not know steps of the kind backfill") as caught:
            ask()
        assert caught.value.message.startswith("backfill step 99 of v, written by rollview 7.3,")
        assert "install rollview 7.3 or later" in caught.value.hint
    assert _rows(url) == before
    assert catalog.steps.pending(PropagateStep, "w") == [mine]
    unreadable, readable = sorted(catalog.steps.unfinished(), key=lambda step: -step.id)
    assert isinstance(unreadable, UnreadableStep) and readable == mine
    catalog.steps.give_up(lease, unreadable)
    assert catalog.steps.pending(PropagateStep, "v") == [] and catalog.steps.unfinished() == [mine]


@pytest.mark.parametrize(
    ("kind", "version", "bounds"),
    [
        ("capture", 0, OLD_CAPTURE.replace("marks", "source_txids")),
        ("capture", 0, OLD_CAPTURE.replace('"marks": [3]', '"marks": ["3"]')),
        ("capture", 0, OLD_CAPTURE.replace('"upto": "y3", ', "")),
        ("capture", 0, OLD_CAPTURE.replace("[2, 11.0, ", "[2, ")),
        ("capture", 0, "[]"),
        ("capture", -1, OLD_CAPTURE),
        ("capture", 1, OLD_CAPTURE),
        ("propagate", 1, OLD_PROPAGATE.replace("0, 1, 0, 2", "0, 1, null, 2")),
        ("propagate", 1, OLD_PROPAGATE.replace("0, 1, 0, 2", "0, 1, 0, 2.5")),
        ("propagate", 1, OLD_PROPAGATE.replace("0, 1, 0, 2", "0, 1, 0, true")),
        ("apply", 1, OLD_APPLY.replace("[0, 1]", "[0, 1, 2]")),
        ("apply", 1, OLD_APPLY.replace("}, ", ', "u": null}, ')),
        ("condense", 1, '{"after": 0, "upto": 2, "also": 3}'),
        ("maintain", 1, '{"upto": 4'),
        ("maintain", 1, "null"),
        ("load", 1, "[]"),
    ],
)
def test_bounds_that_make_no_sense_are_refused_untouched(
    catalog: Catalog, url: str, lease: Lease, kind: str, version: int, bounds: str
) -> None:
    made = "INSERT INTO step VALUES (99, :kind, 'v', :bounds, 1.0, :version, '')"
    by_hand(url, made, kind=kind, bounds=bounds, version=version)
    before = _rows(url)
    with pytest.raises(StepRefused, match="its bounds cannot be decoded") as caught:
        catalog.steps.pending(KINDS[kind])
    assert caught.value.message.startswith(f"{kind} step 99 of v, written by an earlier rollview,")
    # No other release could do better.
    assert caught.value.hint.startswith("`rollview setup --reload v`")
    assert [type(step) for step in catalog.steps.unfinished()] == [UnreadableStep]
    assert _rows(url) == before


def test_giving_up_what_is_replaced_needs_no_reading(catalog: Catalog, url: str, lease: Lease) -> None:
    kept = [catalog.steps.begin(lease, "v", CondenseStep(0, 2)), catalog.steps.begin(lease, "w", LoadStep())]
    for number, kind in enumerate(("load", "propagate"), 90):
        made = "INSERT INTO step VALUES (:number, :kind, 'v', :bounds, 1.0, 9, '7.3')"
        by_hand(url, made, number=number, kind=kind, bounds=json.dumps(kind))
    catalog.steps.abandon_pending(lease, "v", LoadStep, PropagateStep)
    assert catalog.steps.unfinished() == kept


@pytest.mark.slow
def test_the_type_checker_knows_which_effects_a_step_has(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    file = tmp_path / "drivers.py"
    file.write_text(
        "from rollview.catalog import ApplyStep, CaptureStep, Catalog, Lease, Materialized, Moved\n"
        "from rollview.catalog import PropagateStep, Retained, MaintainStep, Sequenced\n"
        "def drive(catalog: Catalog, lease: Lease) -> None:\n"
        "    for capture in catalog.steps.pending(CaptureStep):\n"
        "        catalog.steps.finish(lease, capture, Sequenced((), {}))\n"
        "        catalog.steps.finish(lease, capture, Moved('v', ()))  # wrong\n"
        "        capture.bounds.site  # wrong\n"
        "    apply = catalog.steps.begin(lease, 'v', ApplyStep({}, ''))\n"
        "    catalog.steps.finish(lease, apply, Materialized('v', 1, 1, 1))\n"
        "    catalog.steps.finish(lease, apply, Materialized('v', 1, 1, 1), Retained('v', 1))  # wrong\n"
        "    catalog.steps.finish(lease, catalog.steps.begin(lease, 'v', MaintainStep(3)))\n"
        "    catalog.steps.begin(lease, 'v', PropagateStep((), (3,)))  # wrong\n"
        "    catalog.steps.begin(lease, 'v', {'upto': 3})  # wrong\n",
        encoding="utf-8",
    )
    printed, trouble, _ = api.run(["--strict", "--cache-dir", str(tmp_path / "cache"), str(file)])
    assert not trouble
    wrong = [n for n, line in enumerate(file.read_text("utf-8").splitlines(), 1) if line.endswith("# wrong")]
    found = {int(line.split(":")[1]) for line in printed.splitlines() if "drivers.py:" in line}
    assert sorted(found) == wrong, printed

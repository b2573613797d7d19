"""A crash at every durable step of every driver, one by one, each followed by recovery.

After every recovery all views equal the oracle at the csn they show and at an older one, and no transaction
was lost or applied twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from crash_bench import DEEP_VIEWS, STATEFUL_VIEWS, VIEWS, Bench
from crashing import Executioner
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from shop import shown

from rollview.errors import HistoryBroken
from rollview.project.project import Project
from rollview.views.resumable import detached

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

EVERY_STEP = (
    "begin of capture",
    "_commit of crm/customer",
    "finish of capture",
    "acknowledge of crm",
    "begin of propagate",
    "_commit of deltas/states_of_size",
    "finish of propagate",
    "begin of apply",
    # Views are rolled side by side, so which one comes first differs from time to time.
    "_commit of views/",
    "_commit of state/",
    "finish of apply",
)


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A project that is set up. Maintenance has a test of its own; here it would only take time."""
    monkeypatch.setattr("rollview.run.run.RunDriver.maintain_lake", lambda driver: {})
    made = Bench(tmp_path / "shop", spark, Executioner(monkeypatch))
    assert made.do(lambda project: project.setup())
    yield made
    made.shop.close()


def test_oracle_a_crash_of_run(bench: Bench) -> None:
    for place in bench.every_crash(lambda project: project.run(once=True), *EVERY_STEP):
        bench.check(place)
        with Project.open(bench.shop.folder, bench.spark) as project:
            assert project.status().last_csn == bench.shop.commits(), place


@pytest.mark.soak
@pytest.mark.parametrize("text", STATEFUL_VIEWS.values(), ids=STATEFUL_VIEWS)
def test_oracle_a_crash_of_an_operator_with_state(
    text: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollview.run.run.RunDriver.maintain_lake", lambda driver: {})
    bench = Bench(tmp_path / "shop", spark, Executioner(monkeypatch), {"view": text})
    assert bench.do(lambda project: project.setup())
    for place in bench.every_crash(lambda project: project.run(once=True), "_commit of deltas/view"):
        bench.check(place)
    bench.shop.close()


def test_oracle_a_crash_of_refresh(bench: Bench) -> None:
    """Captured is everything, rolled to the second to last csn, by one view only; the rest follows."""

    def action(project: Project) -> None:
        project.capture()
        project.refresh("sales_by_state", to=project.status().last_csn - 1)

    # The view above is not refreshed, so that nothing is written for it.
    steps = [place for place in EVERY_STEP if "states_of_size" not in place]
    for place in bench.every_crash(action, *steps):
        bench.check(place)


@pytest.mark.soak
def test_oracle_a_crash_of_the_first_set_up(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each crash meets a fresh project, and writers continue before somebody sets it up again.

    The view has a stage, and reads both databases.
    """
    monkeypatch.setattr("rollview.run.run.RunDriver.maintain_lake", lambda driver: {})
    executioner = Executioner(monkeypatch)
    views = {"states_of_size": DEEP_VIEWS["states_of_size"]}
    moment, finished = 0, False
    while not finished:
        bench = Bench(tmp_path / f"shop-{moment}", spark, executioner, views)
        finished = bench.do(lambda project: project.setup(), moment)
        place = f"moment {moment}, {executioner.place}"
        executioner.revive()
        for _ in range(2):
            bench.shop.transact()
        bench.check(place, lambda project: project.setup())
        bench.shop.close()
        moment += 1
    assert moment > 10


def test_oracle_a_crash_of_condense(bench: Bench) -> None:
    """Whether a range was condensed or not, its ends and all outside of it stay what they were."""
    name, start = "states_of_size", 0

    def first(project: Project) -> None:
        """Something to condense: not every transaction changes the view."""
        nonlocal start
        start = project.status().last_csn
        project.run(once=True)
        while not project.deltas(name, start).count():
            bench.change_every_source()
            project.run(once=True)

    def action(project: Project) -> None:
        project.condense(name, start, project.status().last_csn)

    wanted = ("begin of condense", "finish of condense", f"_commit of deltas/{name}")
    for place in bench.every_crash(action, *wanted, first=first):
        bench.check(place)
        with Project.open(bench.shop.folder, bench.spark) as project:
            for each in project._warehouse.catalog.views.condensed(name)[-1:]:
                for csn in (each.after, each.upto):
                    expected = bench.shop.expected(project, name, csn)
                    assert shown(project, name, csn) == expected, (place, csn)


@pytest.mark.soak
@pytest.mark.parametrize("reload", [["sales_by_state"], []])
def test_oracle_a_crash_of_a_reload(bench: Bench, reload: list[str]) -> None:
    """Before somebody sets it up again, what is still there is right at every csn it can be read at."""

    def action(project: Project) -> None:
        # Deltas that are not applied yet are what a reload could lose.
        project.capture()
        project.propagate("sales_by_state")
        project.setup(reload)

    known = _what_is_shown(bench)
    for place in bench.every_crash(action, "finish of load"):
        _check_what_is_there(bench, place, known)
        bench.check(place, lambda project: project.setup())
        known = _what_is_shown(bench)


@pytest.mark.soak
def test_oracle_a_crash_while_a_definition_changes(bench: Bench) -> None:
    """Other columns and back again, with a view above that has to follow."""
    with_mean = VIEWS["sales_by_state"].replace("AS total", "AS total, avg(s.amount) AS mean")
    _change_definition(bench, "sales_by_state", [with_mean, VIEWS["sales_by_state"]])


@pytest.mark.soak
def test_oracle_a_crash_while_a_stage_changes(bench: Bench) -> None:
    """The inner query of a view has other columns, the view itself the same."""
    text = DEEP_VIEWS["states_of_size"]
    _change_definition(bench, "states_of_size", [text.replace("AS total", "AS total, count(*) AS m"), text])


@pytest.mark.soak
def test_oracle_a_crash_while_a_comment_changes(bench: Bench) -> None:
    """Nothing is reloaded; and the table says what the text says, or what it said before."""
    texts = [
        f"CREATE MATERIALIZED VIEW sales_by_state COMMENT '{comment}' AS {VIEWS['sales_by_state']}"
        for comment in ("one", "two")
    ]
    _change_definition(bench, "sales_by_state", texts, "describe of views/sales_by_state")
    with Project.open(bench.shop.folder, bench.spark) as project:
        assert not project.setup().loaded
    table = DeltaTable(str(bench.shop.folder / "lake/views/sales_by_state"))
    assert f"COMMENT '{table.metadata().description}'" in bench.shop.views["sales_by_state"]


def _change_definition(bench: Bench, view: str, texts: list[str], *places: str) -> None:
    def action(project: Project) -> None:
        project.setup()

    wanted = places or ("finish of load", "LakeTables.drop")
    for number, place in enumerate(_with_texts(bench, view, texts, action, *wanted)):
        assert number < 100
        bench.check(place, lambda project: project.setup())


def _with_texts(
    bench: Bench, view: str, texts: list[str], action: Callable[[Project], object], *places: str
) -> Iterator[str]:
    """Gives the view another text before every attempt."""
    crashes = bench.every_crash(action, *places)
    while True:
        texts.reverse()
        bench.shop.views[view] = texts[0]
        bench.shop.write_project()
        place = next(crashes, None)
        if place is None:
            return
        yield place


def _what_is_shown(bench: Bench) -> dict[str, tuple[int, Counter[Any]]]:
    """The csn and the rows of each view."""
    with Project.open(bench.shop.folder, bench.spark) as project:
        return {each.name: (each.materialized, shown(project, each.name)) for each in project.status().views}


def _check_what_is_there(bench: Bench, place: str, known: Mapping[str, tuple[int, Counter[Any]]]) -> None:
    """A view that cannot continue can be read as it was, too; then the oracle knows another history."""
    with Project.open(bench.shop.folder, bench.spark) as project:
        if not project.views:
            return
        # A view whose tables have begun again cannot continue until it is loaded; `run` says so at the end.
        with suppress(HistoryBroken):
            project.run(once=True)
        bench.shop.match(project)
        catalog, views = project._warehouse.catalog, project._warehouse.views
        has_begun_again = any(detached(catalog.now, view) for view in views.all().values())
        for view in project.status().views:
            if has_begun_again:
                csn, rows = known[view.name]
                # One that was loaded meanwhile has it as an earlier span.
                assert shown(project, view.name, csn) == rows, (place, view.name)
                continue
            for csn in {view.oldest, view.materialized}:
                expected = bench.shop.expected(project, view.name, csn)
                assert shown(project, view.name, csn) == expected, (place, view.name, csn)


@pytest.mark.soak
@pytest.mark.parametrize("retention", ["{}", "{changes: 0s, deltas: 0s, files: 0s}"])
def test_oracle_a_crash_of_maintenance(bench: Bench, retention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction of logs with many files, and pruning of all that may go."""
    monkeypatch.setattr("rollview.upkeep.maintenance.MANY_FILES", 2)
    monkeypatch.setattr("rollview.lake.maintenance._FEWEST", 2)
    bench.shop.write_project(retention=retention)
    done: dict[str, int] = {}
    crashes = bench.every_crash(lambda project: done.update(project.maintain()), "finish of maintain")
    for place in _after_small_files(bench, crashes):
        bench.check(place)
    wanted = "rows pruned" if "0s" in retention else "files compacted"
    assert any(wanted in what for what in done), done


def _after_small_files(bench: Bench, crashes: Iterator[str]) -> Iterator[str]:
    """Before every crash the logs get some small files, in peace."""
    while True:
        for _ in range(2):
            bench.shop.transact()
            assert bench.do(lambda project: project.run(once=True))
        place = next(crashes, None)
        if place is None:
            return
        yield place

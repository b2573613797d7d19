"""Damage to what is stored: each kind, and short random campaigns; `benchmarks/damage.py` runs long ones."""

from __future__ import annotations

import shlex
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from crashing import Died
from damage import COMMAND, Damaged
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from shop import shown

from rollview.catalog import CaptureStep
from rollview.cli.main import main
from rollview.errors import LakeError, LakeMisfit, RollviewError
from rollview.project.project import Project

pytestmark = pytest.mark.slow


@pytest.mark.campaign
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3))])
def test_oracle_random_damage(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    world = Damaged(tmp_path, spark, seed, monkeypatch)
    for number in range(12):
        try:
            world.round()
        except BaseException as error:
            error.add_note(f"round {number} of seed {seed}: {dict(world.deeds)}")
            raise
    world.shop.close()


def _follow(spark: SparkSession, folder: Path, error: RollviewError) -> None:
    """Types the command of a hint."""
    command = COMMAND.findall(error.hint)[0]
    words = [*shlex.split(command)[1:], "--project", str(folder)]
    done = CliRunner().invoke(main, words, obj=spark)
    assert done.exit_code == 0, (command, done.output)


def _run_with_hints(project: Project, spark: SparkSession, folder: Path) -> None:
    """Runs; whatever an error says to do is done."""
    for _ in range(3):
        try:
            project.run(once=True)
            return
        except RollviewError as error:
            _follow(spark, folder, error)
    project.run(once=True)


@pytest.mark.parametrize("when", ["before propagate", "before capture", "while it runs"])
def test_oracle_a_delta_source_loses_the_newest_entry_of_its_log(
    tmp_path: Path, spark: SparkSession, when: str
) -> None:
    """The source's table is what it was a version ago; every view follows, or says what to do."""
    table = str(tmp_path / "d" / "sales")
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "kind": ["a", "b"]})
    write_deltalake(table, rows)
    (tmp_path / "rollview.yml").write_text(
        "name: x\nsources:\n  d: {type: delta, path: ./d, key.sales: id}\n"
    )
    (tmp_path / "views").mkdir()
    views = {
        "v": "SELECT id, kind FROM d.sales",
        "w": "SELECT kind, count(*) AS n FROM d.sales GROUP BY kind",
    }
    for name, sql in views.items():
        (tmp_path / "views" / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
    project = Project.open(tmp_path, spark)
    project.setup()
    for number in range(3, 6):
        write_deltalake(table, pa.table({"id": pa.array([number], pa.int64()), "kind": ["c"]}), mode="append")
        if number == 3 or when != "before capture":
            project.capture()
        if number == 4:
            project.run(once=True)
    if when != "while it runs":
        project.close()
        project = Project.open(tmp_path, spark)
    entries = sorted((tmp_path / "d" / "sales" / "_delta_log").glob("*.json"))
    entries[-1].unlink()
    _run_with_hints(project, spark, tmp_path)
    assert all(verdict.is_right for verdict in project.verify())
    write_deltalake(table, pa.table({"id": pa.array([9], pa.int64()), "kind": ["a"]}), mode="append")
    _run_with_hints(project, spark, tmp_path)
    now = DeltaTable(table).to_pyarrow_table()
    assert sorted(row["id"] for row in project.read("v").collect()) == sorted(now["id"].to_pylist())
    counts = {row["kind"]: row["n"] for row in project.read("w").collect()}
    assert counts == {kind: now["kind"].to_pylist().count(kind) for kind in set(now["kind"].to_pylist())}
    project.close()


_TABLES = ("changes/shop/sales", "deltas/sold", "state/sales_by_state", "views/sold")
_LOST = [("newest entry", table) for table in _TABLES]
_LOST += [("first entry", "changes/shop/sales"), ("all entries", "deltas/sold")]
_OTHERS = [(deed, table) for deed in ("first entry", "all entries") for table in _TABLES]


@pytest.mark.parametrize(
    ("deed", "table"),
    [*_LOST, *(pytest.param(*each, marks=pytest.mark.soak) for each in _OTHERS if each not in _LOST)],
)
def test_oracle_a_log_that_lost_entries(tmp_path: Path, spark: SparkSession, table: str, deed: str) -> None:
    """Of a table in the lake: noticed by the running process and the next, repaired as its hint says."""
    world = Damaged(tmp_path, spark, seed=8)
    with world.open() as project:
        world.write(4)
        project.run(once=True)
        world.write(4)
        project.capture()
        for view in project.views:
            project.propagate(view)
        entries = sorted((world.lake / table / "_delta_log").glob("*.json"))
        for entry in {"newest entry": entries[-1:], "first entry": entries[:1], "all entries": entries}[deed]:
            entry.unlink()
    world.lead_back(f"{deed} of {table}")
    world.shop.close()


def test_oracle_a_capture_of_two_sites_cannot_be_finished_for_one(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The site is begun again as the hint says; the capture's rows of the other one are removed."""
    world = Damaged(tmp_path, spark, 8, monkeypatch)
    with world.open() as project:
        world.write(4)
        project.run(once=True)
    world.write(12)
    assert _pending(world) == [{"crm", "shop"}]
    (entry, *_) = sorted((world.lake / "changes" / "crm" / "customer" / "_delta_log").glob("*.json"))
    entry.unlink()
    world.lead_back("first entry of a change log")
    world.shop.close()


def _pending(world: Damaged) -> list[set[str]]:
    """The sites of a capture that died between its beginning and its end."""
    assert world.executioner is not None
    for moment in range(10):
        world.executioner.kill_at(moment)
        with suppress(Died), world.open() as project:
            project.capture()
        world.executioner.revive()
        with world.open() as project:
            found = [set(each.bounds.sites) for each in project._warehouse.catalog.steps.pending(CaptureStep)]
        if found:
            break
    return found


def test_oracle_two_copies_of_a_catalog(tmp_path: Path, spark: SparkSession) -> None:
    """The second one takes the lake over; the first one is refused before its next write."""
    world = Damaged(tmp_path, spark, seed=9)
    first = world.open()
    world.write()
    first.run(once=True)
    for path in world.lake.glob("catalog.db*"):
        shutil.copy2(path, tmp_path / path.name.replace("catalog", "second"))
    world.shop.write_project(catalog=f"sqlite:///{tmp_path}/second.db")
    world.write()
    with world.open() as second:
        second.run(once=True)
    world.write()
    with pytest.raises(LakeMisfit, match="another copy of the catalog") as caught:
        first.run(once=True)
    assert "`rollview recover`" in caught.value.hint
    first.close()
    with world.open() as second:
        second.run(once=True)
        assert all(shown(second, view) == world.shop.expected_now(view) for view in second.views)
    world.shop.write_project()
    world.lead_back("the first copy again")
    world.shop.close()


def test_recover_leaves_a_locked_catalog_alone(tmp_path: Path, spark: SparkSession) -> None:
    world = Damaged(tmp_path, spark, seed=10)
    before = {path for path in world.lake.rglob("*") if path.suffix != ".db-shm"}
    locked = sqlite3.connect(world.lake / "catalog.db", isolation_level=None)
    locked.execute("BEGIN EXCLUSIVE")
    with world.open() as project, pytest.raises(RollviewError):
        project.recover()
    locked.close()
    assert before <= set(world.lake.rglob("*"))
    world.lead_back("a catalog that was locked")
    world.shop.close()


@pytest.mark.parametrize("deed", ["gone", "cut off"])
def test_oracle_the_lake_forgets_whose_it_is(tmp_path: Path, spark: SparkSession, deed: str) -> None:
    """Before a start it is assigned again, if nothing contradicts; a process at work is refused."""
    world = Damaged(tmp_path, spark, seed=11)
    file = world.lake / "lake.json"
    with world.open() as project:
        project.run(once=True)
        file.unlink() if deed == "gone" else file.write_text('{"lake"')
        world.write()
        with pytest.raises(LakeError) as caught:
            project.run(once=True)
        assert "`rollview recover`" in caught.value.hint
    world.lead_back(deed)
    world.shop.close()


def test_a_copy_beside_the_state_is_not_ours(tmp_path: Path, spark: SparkSession) -> None:
    world = Damaged(tmp_path, spark, seed=12)
    copies = [world.lake / kind / "sales_by_state.old" for kind in ("state", "deltas")]
    for copy in copies:
        shutil.copytree(copy.with_suffix(""), copy)
    with world.open() as project:
        project.setup([])
        project.run(once=True)
        tables = project._warehouse.tables
        tables.drop_generations("sales_by_state", except_for=[2])
        assert not (world.lake / "state" / "sales_by_state").exists()
    assert all(copy.is_dir() for copy in copies)
    world.shop.close()

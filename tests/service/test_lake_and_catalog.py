"""Lake and catalog know each other: what does not fit is refused, with a way out that leads back to right."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from shop import Shop, check_all, check_every_csn, shown, transact

from rollview.cli.main import main
from rollview.errors import CatalogError, InputError, LakeMisfit, RollviewError
from rollview.maintain.retry import Stop
from rollview.project.project import Project
from rollview.setup.recover import last_known
from servers.postgres import shared_server

pytestmark = pytest.mark.slow

YEAR_SECONDS = 365 * 86_400.0


@pytest.fixture
def shown_shop(shop: Shop, spark: SparkSession) -> Shop:
    """A project that was set up, and followed some transactions."""
    transact(shop, 12)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        transact(shop)
        project.run(once=True)
    return shop


def _files_of_catalog(folder: Path) -> list[Path]:
    return sorted((folder / "lake").glob("catalog.db*"))


def _content(folder: Path) -> set[str]:
    found = (folder / "lake").rglob("*")
    return {str(path) for path in found if not path.name.endswith(("-shm", "-wal"))}


def _expect_misfit(shop: Shop, spark: SparkSession, reason: str) -> None:
    """Every command is refused, and says how to continue; nothing is changed by that."""
    before = _content(shop.folder)
    for command in (Project.setup, Project.refresh, lambda project: project.read("sold")):
        with Project.open(shop.folder, spark) as project, pytest.raises(LakeMisfit) as caught:
            command(project)
        assert reason in caught.value.message
        assert "`rollview recover`" in caught.value.hint
    assert _content(shop.folder) == before


def _recover(shop: Shop, spark: SparkSession) -> Path:
    reached = last_known(shop.folder / "lake")[0]
    with Project.open(shop.folder, spark) as project:
        report = project.recover()
        assert set(report.setup.loaded) == set(shop.views)
        # No csn is given twice.
        assert project.status().last_csn >= reached > 0
        shop.begin()
        transact(shop)
        check_all(shop, project)
        assert all(verdict.is_right for verdict in project.verify())
        with pytest.raises(InputError, match="nothing to recover"):
            project.recover()
    return Path(report.set_aside)


def test_a_catalog_that_was_deleted(shown_shop: Shop, spark: SparkSession) -> None:
    for file in _files_of_catalog(shown_shop.folder):
        file.unlink()
    _expect_misfit(shown_shop, spark, "its catalog is gone")
    assert _files_of_catalog(shown_shop.folder) == []
    aside = _recover(shown_shop, spark)
    assert DeltaTable(aside / "views" / "sold").to_pyarrow_table().num_rows >= 0


def test_a_catalog_that_is_another_ones(shown_shop: Shop, spark: SparkSession, tmp_path: Path) -> None:
    second = f"sqlite:///{tmp_path}/second.db"
    shown_shop.write_project(catalog=second)
    with (
        Project.open(shown_shop.folder, spark) as project,
        pytest.raises(LakeMisfit, match="catalog is gone"),
    ):
        project.setup()
    # Made before, beside another lake.
    shown_shop.write_project(catalog=second, lake="./other")
    with Project.open(shown_shop.folder, spark) as project:
        project.setup()
    shown_shop.write_project(catalog=second)
    _expect_misfit(shown_shop, spark, "belongs to another catalog")


def test_a_catalog_that_was_restored(shown_shop: Shop, spark: SparkSession, tmp_path: Path) -> None:
    for file in _files_of_catalog(shown_shop.folder):
        shutil.copy2(file, tmp_path / file.name)
    with Project.open(shown_shop.folder, spark) as project:
        transact(shown_shop)
        project.run(once=True)
    for file in _files_of_catalog(shown_shop.folder):
        file.unlink()
    for file in tmp_path.glob("catalog.db*"):
        shutil.copy2(file, shown_shop.folder / "lake" / file.name)
    _expect_misfit(shown_shop, spark, "the catalog is older than the lake")
    _recover(shown_shop, spark)


def test_a_lake_that_was_restored(shown_shop: Shop, spark: SparkSession, tmp_path: Path) -> None:
    lake = shown_shop.folder / "lake"
    for name in ("changes", "deltas", "views"):
        shutil.copytree(lake / name, tmp_path / name)
    with Project.open(shown_shop.folder, spark) as project:
        transact(shown_shop, 8)
        project.run(once=True)
    for name in ("changes", "deltas", "views"):
        shutil.rmtree(lake / name)
        shutil.copytree(tmp_path / name, lake / name)
    _expect_misfit(shown_shop, spark, "the lake is older than the catalog")
    _recover(shown_shop, spark)


def test_a_lake_of_an_earlier_release_is_adopted(shown_shop: Shop, spark: SparkSession) -> None:
    (shown_shop.folder / "lake" / "lake.json").unlink()
    with Project.open(shown_shop.folder, spark) as project:
        transact(shown_shop)
        check_all(shown_shop, project)
    assert (shown_shop.folder / "lake" / "lake.json").exists()


def test_a_clock_that_is_a_year_ahead_prunes_nothing(shown_shop: Shop, spark: SparkSession) -> None:
    with Project.open(shown_shop.folder, spark) as project:
        oldest = {view.name: view.oldest for view in project.status().views}
        catalog = project._warehouse.catalog
        catalog._clock = lambda: time.time() + YEAR_SECONDS
        project.run(once=True)
        project.maintain()
        catalog._clock = time.time
        assert {view.name: view.oldest for view in project.status().views} == oldest
        for name, csn in oldest.items():
            assert shown(project, name, csn) == shown_shop.expected(project, name, csn)


def test_others_may_put_files_together(shown_shop: Shop, spark: SparkSession) -> None:
    """OPTIMIZE and VACUUM by another program: the rows are the same, the files are others."""
    with Project.open(shown_shop.folder, spark) as project:
        for _ in range(3):
            transact(shown_shop)
            project.run(once=True)
        for folder in ("views/sold", "deltas/sold", "views/sales_by_state", "changes/shop/sales"):
            table = DeltaTable(shown_shop.folder / "lake" / folder)
            table.optimize.compact()
            table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with Project.open(shown_shop.folder, spark) as project:
        transact(shown_shop)
        check_all(shown_shop, project)
        assert all(verdict.is_right for verdict in project.verify())


def test_a_backup_is_made_while_run_works_and_can_be_restored(
    shown_shop: Shop, spark: SparkSession, tmp_path: Path
) -> None:
    with Project.open(shown_shop.folder, spark) as project:
        stop = Stop()
        running = threading.Thread(target=project.run, args=(False, stop))
        running.start()
        try:
            for _ in range(6):
                transact(shown_shop, 1)
                time.sleep(0.3)
            with Project.open(shown_shop.folder, spark) as other:
                assert other.backup(tmp_path / "backup") > 0
                with pytest.raises(InputError, match="is not empty"):
                    other.backup(tmp_path / "backup")
        finally:
            stop.now()
            running.join()
        transact(shown_shop)
        project.run(once=True)
        with pytest.raises(InputError, match="is not a backup"):
            project.restore(tmp_path)
    with Project.open(shown_shop.folder, spark) as project:
        aside = Path(project.restore(tmp_path / "backup"))
        assert (aside / "views" / "sold" / "_delta_log").is_dir()
        for view in project.status().views:
            for csn in {view.oldest, view.materialized}:
                expected = shown_shop.expected(project, view.name, csn)
                assert shown(project, view.name, csn) == expected, (view.name, csn)
        # The sources' logs have been let go of beyond it, which is said, and what is said helps.
        with pytest.raises(RollviewError) as caught:
            project.run(once=True)
        assert "setup --reload" in caught.value.hint
        project.setup([])
        shown_shop.begin()
        transact(shown_shop)
        check_all(shown_shop, project)


def test_a_catalog_moves_to_a_server_and_back(
    shown_shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With steps, leases and history; whoever still has the old one is refused."""
    shop, url = shown_shop, shared_server().create_database("moved_catalog")
    monkeypatch.setenv("CATALOG_URL", url)
    _moved(shop, spark, "${CATALOG_URL}", [])
    _moved(shop, spark, "sqlite:///./back.db", ["${CATALOG_URL}"])
    with Project.open(shop.folder, spark) as project:
        project.run(once=True)
        check_every_csn(shop, project)


def _moved(shop: Shop, spark: SparkSession, catalog: str, old: list[str]) -> None:
    with Project.open(shop.folder, spark) as early:
        transact(shop)
        early.capture()
        shop.write_project(catalog=f'"{catalog}"')
        arguments = ["move-catalog", *old, "--project", str(shop.folder)]
        with early._warehouse.catalog.lease("run"):
            said = CliRunner().invoke(main, arguments, obj=spark)
            assert said.exit_code != 0 and "`rollview run` is at work" in said.output
        said = CliRunner().invoke(main, arguments, obj=spark)
        assert said.exit_code == 0 and said.output.startswith("the catalog is moved: "), said.output
        with pytest.raises(LakeMisfit, match="another copy of the catalog"):
            early.run(once=True)
    said = CliRunner().invoke(main, arguments, obj=spark)
    assert said.exit_code == 1 and "another copy of the catalog" in said.output
    with Project.open(shop.folder, spark) as project:
        transact(shop)
        check_all(shop, project)


def test_a_catalog_whose_move_is_cut_off(
    shown_shop: Shop, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old one is the catalog, and the copy is refused; a copy that differs is not made."""
    shop = shown_shop
    shop.write_project(catalog=f"sqlite:///{tmp_path}/new.db")
    with Project.open(shop.folder, spark) as project:
        with monkeypatch.context() as patch:
            patch.setattr("rollview.catalog.copying._copy", lambda *_: (1, 1))
            with pytest.raises(CatalogError, match=r"the copy of .* differs"):
                project.move_catalog()
        with monkeypatch.context() as patch:
            patch.setattr("rollview.upkeep.backup.write_identity", _dies)
            with pytest.raises(OSError, match="planted"):
                project.move_catalog()
        with pytest.raises(LakeMisfit, match="another copy of the catalog"):
            project.status()
    with (
        Project.open(shop.folder, spark) as project,
        pytest.raises(InputError, match="has a catalog already"),
    ):
        project.move_catalog()
    with Project.open(shop.folder, spark) as project:
        for place, reason in (
            ("sqlite:///./none.db", "there is no catalog at"),
            ("postgresql://me:secret@host/x", "has a password"),
            ("lake/catalog.db", "no address of a catalog"),
            ("postgresql://me:${NO_SUCH}@host/x", "no variable NO_SUCH"),
        ):
            with pytest.raises(InputError, match=reason) as caught:
                project.move_catalog(place)
            assert "secret" not in str(caught.value)
    shop.write_project()
    with Project.open(shop.folder, spark) as project:
        transact(shop)
        check_all(shop, project)


def _dies(*_: object) -> None:
    raise OSError("planted")

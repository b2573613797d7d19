"""Lake and catalog know each other: what does not fit is refused, with a way out that leads back to right."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from shop import Shop, check_all, shown, transact

from rollview.errors import InputError, LakeMisfit, RollviewError
from rollview.service.project import Project
from rollview.service.recover import last_known
from rollview.service.retry import Stop

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
    """Every command is refused, and says how to go on; nothing is changed by that."""
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

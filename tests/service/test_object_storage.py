"""A project whose lake is on object storage: every state against DuckDB, in memory and on a real S3."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from crash_bench import Bench
from crashing import Executioner
from deltalake import DeltaTable, write_deltalake
from obstore.store import MemoryStore
from pyspark.sql import SparkSession
from shop import VIEWS, Shop, check_all, check_every_csn, transact

from rollview.cli.main import main
from rollview.errors import InputError, LakeMisfit, LakeMoved, StoreUnavailable
from rollview.lake.object_store import ObjectStore, ObjectTable
from rollview.project.project import Project
from servers.s3 import S3, SECRET, s3_server

pytestmark = pytest.mark.slow

CATALOG = "sqlite:///./catalog.db"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3_server(tmp_path_factory.mktemp("s3")) as started:
        yield started


def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """All projects of a test have the same stores, which are gone afterwards."""
    kept: defaultdict[str, Any] = defaultdict(MemoryStore)

    def opened(url: str, settings: Any, copies: Path) -> ObjectStore:
        return ObjectStore(kept[url], url, copies)

    monkeypatch.setattr("rollview.project.warehouse.open_s3", opened)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    views = {**VIEWS, "states_of_size": "SELECT n, count(*) AS c FROM sales_by_state GROUP BY n"}
    made = Shop(tmp_path / "shop", views)
    yield made
    made.close()


def work(shop: Shop, spark: SparkSession) -> None:
    """Set up, changed, reloaded, condensed; processes and copies of files come and go in between."""
    transact(shop, 12)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        for _ in range(2):
            transact(shop)
            check_all(shop, project)
    assert not (shop.folder / "lake").exists()
    rmtree(shop.folder / ".rollview")
    transact(shop)
    with Project.open(shop.folder, spark) as project:
        check_all(shop, project)
        check_every_csn(shop, project)
        project.maintain()
        assert all(each.is_right for each in project.verify())


def test_oracle_a_lake_in_memory(shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory(monkeypatch)
    shop.write_project(lake="s3://bucket/lake", catalog=CATALOG)
    work(shop, spark)
    with Project.open(shop.folder, spark) as project, pytest.raises(InputError, match="stay where they are"):
        project.recover()
    # Another project's catalog may not write here.
    (shop.folder / "catalog.db").unlink()
    with Project.open(shop.folder, spark) as project, pytest.raises(LakeMisfit, match="its catalog is gone"):
        project.setup()


def test_oracle_a_lake_moves_with_its_history(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a folder to object storage, by a backup to other object storage, and back to a folder."""
    in_memory(monkeypatch)
    transact(shop, 12)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        transact(shop)
        check_all(shop, project)
    _continues_at(shop, spark, "s3://bucket/one", catalog=f"sqlite:///{shop.folder}/lake/catalog.db")
    with Project.open(shop.folder, spark) as project:
        assert project.backup(shop.folder / "copy") > 0
        with pytest.raises(InputError, match="stay where they are"):
            project.restore(shop.folder / "copy")
    shop.write_project(lake="s3://bucket/two", catalog=CATALOG)
    with Project.open(shop.folder, spark) as project:
        assert project.restore(shop.folder / "copy") == ""
        transact(shop)
        check_all(shop, project)
        check_every_csn(shop, project)
    _continues_at(shop, spark, "s3://bucket/three", catalog=CATALOG)
    _continues_at(shop, spark, str(shop.folder / "last"), catalog=CATALOG)


def _continues_at(shop: Shop, spark: SparkSession, place: str, catalog: str) -> None:
    """After a move the project has all its states; nobody goes on at the old place."""
    with Project.open(shop.folder, spark) as early:
        early.status()
        transact(shop)
        said = CliRunner().invoke(main, ["move-lake", place, "--project", str(shop.folder)], obj=spark)
        assert said.exit_code == 0 and f"  lake: {place}\n" in said.output, said.output
        assert (f"  catalog: {catalog}\n" in said.output) == (catalog != CATALOG)
        for project in (early, Project.open(shop.folder, spark)):
            with pytest.raises(LakeMoved, match=f"moved to {place}") as caught:
                project.run(once=True)
            assert f"`lake: {place}`" in caught.value.hint
            with pytest.raises((LakeMoved, InputError)):
                project.recover()
    shop.write_project(lake=place, catalog=catalog)
    with Project.open(shop.folder, spark) as project:
        check_all(shop, project)
        check_every_csn(shop, project)
        project.maintain()
        assert all(each.is_right for each in project.verify())


def test_a_move_harms_no_table_of_others(shop: Shop, spark: SparkSession) -> None:
    foreign = shop.folder / "theirs" / "views" / "orders"
    write_deltalake(foreign, pa.table({"k": [1, 2]}))
    with Project.open(shop.folder, spark) as project:
        project.setup()
        with pytest.raises(InputError, match=r"is not empty: .*orders is a table"):
            project.move_lake(str(shop.folder / "theirs"))
        with pytest.raises(InputError, match="neither a folder nor s3"):
            project.move_lake("gs://bucket/lake")
        with pytest.raises(InputError, match="has a lake already"):
            project.move_lake(str(shop.folder / "lake"))
        assert all(each.is_right for each in project.verify())
    assert DeltaTable(foreign).to_pyarrow_table().num_rows == 2


@pytest.mark.parametrize("crash", ["take_log", "moved"])
def test_a_move_that_is_cut_off_is_repeated(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    """There is one lake at any time, and what was copied is not copied again."""
    in_memory(monkeypatch)
    transact(shop, 12)
    shop.begin()
    put: Counter[str] = Counter()
    uploads = ObjectTable.publish

    def publish(table: ObjectTable, paths: list[Path]) -> None:
        put.update(path.name for path in paths)
        uploads(table, paths)

    def broken(*_: object) -> None:
        raise StoreUnavailable("planted")

    with Project.open(shop.folder, spark) as project:
        project.setup()
        transact(shop)
        project.run(once=True)
        with monkeypatch.context() as patch:
            patch.setattr(ObjectTable, "publish", publish)
            catalog = project._warehouse.catalog
            with catalog.lease("run"), pytest.raises(InputError, match="is at work"):
                project.move_lake("s3://bucket/new")
            assert put
            with monkeypatch.context() as broken_patch:
                if crash == "moved":
                    broken_patch.setattr(ObjectStore, "put", broken)
                else:
                    broken_patch.setattr(ObjectTable, "take_log", broken)
                with pytest.raises(StoreUnavailable):
                    project.move_lake("s3://bucket/new")
            if crash == "take_log":
                transact(shop)
                check_all(shop, project)
                project.move_lake("s3://bucket/new")
            assert set(put.values()) == {1}
    shop.write_project(lake="s3://bucket/new", catalog=f"sqlite:///{shop.folder}/lake/catalog.db")
    with Project.open(shop.folder, spark) as project:
        transact(shop)
        check_all(shop, project)
        check_every_csn(shop, project)


@pytest.mark.soak
@pytest.mark.campaign
def test_oracle_a_crash_at_every_request(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `test_crashes.py`, and also before and after the store has taken an entry, or data files."""
    in_memory(monkeypatch)
    monkeypatch.setattr("rollview.run.run.RunDriver.maintain_lake", lambda driver: {})
    views = {"sales_by_state": VIEWS["sales_by_state"]}
    bench = Bench(tmp_path / "shop", spark, Executioner(monkeypatch), views)
    bench.shop.write_project(lake="s3://bucket/lake", catalog=CATALOG)
    assert bench.do(lambda project: project.setup())
    expected = (
        "before ObjectStore.put_if_absent",
        "after ObjectStore.put_if_absent",
        "after ObjectTable.publish",
    )
    for place in bench.every_crash(lambda project: project.run(once=True), *expected):
        bench.check(place)
    bench.shop.close()


def test_oracle_a_lake_on_s3(
    shop: Shop, spark: SparkSession, server: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With 5 % of all requests failing; and a reader who has nothing but the bucket finds plain tables."""
    monkeypatch.setenv("LAKE_SECRET", SECRET)
    server.bucket("lake")
    storage = {**server.settings, "secret_access_key": "${LAKE_SECRET}"}
    written = ", ".join(f'{name}: "{value}"' for name, value in storage.items())
    shop.write_project(lake="s3://lake/shop", catalog=CATALOG, storage=f"{{{written}}}")
    server.faults = 0.05
    work(shop, spark)
    server.faults = 0.0
    sold = DeltaTable("s3://lake/shop/views/sold", storage_options=server.storage_options)
    rows = sold.to_pyarrow_table()
    assert sorted(map(tuple, (row.values() for row in rows.to_pylist()))) == sorted(
        shop.expected_now("sold").elements()
    )
    # The key is nowhere on disk but where the project file may say it.
    found = [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert found == []

"""The promises of `lake/store.py`, one suite for every store: a folder, memory, a real S3 server."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest
from lake_rows import CHANGES, bag, changes, commit, content
from obstore.store import MemoryStore

from rollview.errors import ConflictError, LakeDamaged, LakeError, StoreUnavailable
from rollview.lake import Commit, LakeTable, object_store
from rollview.lake.description import OPERATION as DESCRIBE
from rollview.lake.disk import Disk
from rollview.lake.identity import LakeIdentity, newest_commit, read_identity, tables_in, write_identity
from rollview.lake.object_store import LOG, ObjectStore
from rollview.lake.store import Store
from servers.s3 import S3, s3_server

Opened = Callable[[], Store]
"""The same store as another machine has it: with copies of its own."""

PLACE = ("views", "a~20b$1")


@pytest.fixture(params=["disk", "memory", "s3"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    if request.param == "disk":
        (tmp_path / "lake").mkdir()
        return lambda: Disk(tmp_path / "lake")
    kept: Any = MemoryStore()
    if request.param == "s3":
        server: S3 = request.getfixturevalue("server")
        kept = server.bucket("suite")
    numbers = iter(range(1000))
    return lambda: ObjectStore(kept, f"{request.param}://lake", tmp_path / f"copies {next(numbers)}")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with s3_server(tmp_path_factory.mktemp("s3")) as started:
        yield started


@pytest.fixture
def memory(tmp_path: Path) -> ObjectStore:
    return ObjectStore(MemoryStore(), "memory://lake", tmp_path / "copies")


def table_of(store: Store, steps: int = 0) -> LakeTable:
    """A change log with so many appends; its checkpoints come often."""
    table = LakeTable(store.table(*PLACE))
    table.create(CHANGES, {"delta.checkpointInterval": "5"})
    for step in range(1, steps + 1):
        table.append(changes(step, 10), commit(step))
    return table


def rows_of(parts: Iterable[pa.Table]) -> Counter[tuple[Any, ...]]:
    """The rows of several tables together."""
    return sum((bag(part) for part in parts), Counter())


def test_documents(opened: Opened) -> None:
    store, other = opened(), opened()
    store.check()
    with pytest.raises(FileNotFoundError):
        store.get("a.json")
    store.put("a.json", b"one")
    other.put("a.json", b"two")
    assert store.get("a.json") == b"two"
    assert store.put_if_absent("b.json", b"first")
    assert not other.put_if_absent("b.json", b"second")
    assert other.get("b.json") == b"first"
    assert store.folders("views") == []


def test_one_of_many_writers_puts(opened: Opened) -> None:
    stores = [opened() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for name in ("a", "b", "c"):
            tries = [
                pool.submit(store.put_if_absent, name, str(at).encode()) for at, store in enumerate(stores)
            ]
            won = [at for at, each in enumerate(tries) if each.result()]
            assert len(won) == 1 and stores[0].get(name) == str(won[0]).encode()


def test_whose_lake_it_is(opened: Opened) -> None:
    store = opened()
    assert read_identity(store) is None
    write_identity(store, LakeIdentity("a", "b", "c"))
    assert read_identity(opened()) == LakeIdentity("a", "b", "c")


def test_a_description_is_a_commit_that_changes_no_rows(opened: Opened) -> None:
    """It replaces the one before, is put back by nobody, and is made once."""
    table = table_of(opened(), 3)
    name = CHANGES[0][0]
    table.describe("one", {"k": "v"}, {name: "c"}, _described(4))
    assert table.is_described("one", {"k": "v"}, {name: "c"})
    table.describe("two", {"l": "w"}, {}, _described(5))
    other = LakeTable(opened().table(*PLACE))
    assert other.is_described("two", {"l": "w"}, {}) and not other.is_described("two", {}, {})
    assert other.columns == CHANGES and content(other) == content(table)
    assert other.check_no_external_writes(0) == other.version() == 5
    assert (made := other.commit_at(5)) is not None and made.operation == DESCRIBE
    assert other.same_rows(3) == 5
    other.describe("two", {"l": "w"}, {}, _described(6))
    assert other.version() == 5
    # Whoever takes back what came later keeps the description that came before it.
    other.append(changes(7, 10), commit(7))
    assert other.same_rows(3) == 5
    other.restore(other.same_rows(3), commit(8))
    assert other.is_described("two", {"l": "w"}, {}) and content(other) == content(table)
    other.describe("", {}, {}, _described(9))
    assert other.is_described("", {}, {}) and table.is_described("", {}, {})


def _described(step: int) -> Commit:
    return replace(commit(step), writer="describe", operation=DESCRIBE)


def test_a_table_from_two_machines(opened: Opened) -> None:
    here, there = opened(), opened()
    table = table_of(here, steps=12)
    other = LakeTable(there.table(*PLACE))
    assert other.exists() and (other.version(), other.last_step("capture")) == (12, 12)
    assert content(other) == content(table) and other.columns == table.columns
    assert [each.name for each in tables_in(there)] == [PLACE[1]]
    found = newest_commit(there.table(*PLACE))
    assert found is not None and (found.writer, found.step) == ("capture", 12)
    # Each writes what the other has to see; a repeat changes nothing.
    other.append(changes(13, 10), commit(13))
    table.append(changes(13, 10), commit(13))
    table.append(changes(14, 10), commit(14))
    assert table.version() == other.version() == 14
    assert (
        content(other)
        == content(table)
        == sum((bag(changes(step, 10)) for step in range(1, 15)), bag(changes(1, 0)))
    )
    other.check_no_external_writes(0)
    removed = table.files(csn=(0, 3))
    table.replace(removed, [changes(3, 4)], commit(1, "apply"))
    with pytest.raises(ConflictError):
        other.replace(removed, [changes(3, 5)], commit(2, "apply"))
    assert other.files(version=14) != other.files() == table.files()
    other.restore(14, commit(3, "back"))
    assert content(table) == content(LakeTable(opened().table(*PLACE)))
    other.add_columns([("more", "string")], commit(4, "add"))
    assert table.columns == (*CHANGES, ("more", "string"))
    assert table.commit_at(14) == commit(14)


def test_writers_at_once_lose_nothing(opened: Opened) -> None:
    table_of(opened())

    def work(name: str) -> None:
        table = LakeTable(opened().table(*PLACE))
        for step in range(1, 9):
            table.append(changes(step, 5, seed=len(name)), commit(step, name))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, ("a", "bb", "ccc")))
    table = LakeTable(opened().table(*PLACE))
    assert [table.last_step(name) for name in ("a", "bb", "ccc")] == [8, 8, 8]
    wanted = [changes(step, 5, seed=seed) for step in range(1, 9) for seed in (1, 2, 3)]
    assert content(table) == sum((bag(each) for each in wanted), bag(changes(1, 0)))


def test_dropped_and_created_again(opened: Opened) -> None:
    table, other = table_of(opened(), steps=7), LakeTable(opened().table(*PLACE))
    assert other.version() == 7
    table.place.drop()
    assert not table.exists() and not other.exists() and not any(tables_in(opened()))
    table.create(CHANGES)
    table.append(changes(1, 3), commit(1))
    assert content(other) == content(table) == bag(changes(1, 3))


def test_vacuum(opened: Opened) -> None:
    table = table_of(opened(), steps=10)
    before = {file.name for file in table.place.data_files()}
    table.replace(table.files(), [changes(1, 4)], commit(1, "apply"))
    table.vacuum(keep_seconds=0, now=time.time() + 1, versions=[3])
    left = {file.name for file in table.place.data_files()}
    assert left == {file.path for file in (*table.files(), *table.files(version=3))}
    assert len(before - left) == 7
    # A file that no commit names goes when it is old.
    stray = table.place.data / "part-stray.parquet"
    stray.write_bytes(b"PAR1")
    table.place.publish([stray])
    table.vacuum(keep_seconds=0, now=time.time() + 1)
    assert "part-stray.parquet" in {file.name for file in table.place.data_files()}
    if isinstance(opened(), Disk):
        os.utime(stray, (1, 1))
    table.vacuum(keep_seconds=0, now=time.time() + 90_000)
    assert "part-stray.parquet" not in {file.name for file in table.place.data_files()}
    assert content(LakeTable(opened().table(*PLACE))) == bag(changes(1, 4))


def test_a_data_file_that_is_gone(opened: Opened) -> None:
    table = table_of(opened(), steps=2)
    other = LakeTable(opened().table(*PLACE))
    table.place.delete([table.files()[0].path])
    for read in (lambda: other.check_no_external_writes(0), lambda: other.load(other.files())):
        with pytest.raises(LakeDamaged, match="a~20b"):
            read()


# On object storage: what a failed request leaves, and what is asked for.


def test_requests(server: S3, tmp_path: Path) -> None:
    """Design note 26 states these figures."""
    kept = server.bucket("counted")
    table = table_of(ObjectStore(kept, "s3://counted", tmp_path / "here"), steps=5)
    other = LakeTable(ObjectStore(kept, "s3://counted", tmp_path / "there").table(*PLACE))
    assert other.version() == 5

    def asked(action: Callable[[], Any]) -> dict[str, int]:
        server.requests.clear()
        action()
        return dict(server.requests)

    # A look whether the step was made, the file, a look at the newest version, the entry.
    assert asked(lambda: table.append(changes(6, 10), commit(6))) == {"LIST": 2, "PUT": 2}
    assert asked(lambda: table.append(changes(6, 10), commit(6))) == {"LIST": 2}
    # What was written here is not asked for; another machine asks for entries and files once.
    assert asked(lambda: table.load(table.files())) == {"LIST": 1}
    assert asked(lambda: other.load(other.files())) == {"LIST": 1, "GET": 1 + 6}
    assert asked(lambda: other.load(other.files())) == {"LIST": 1}


@pytest.mark.parametrize(
    ("url", "changed", "reason"),
    [
        ("s3://nobucket/lake", {}, "NoSuchBucket"),
        ("s3://counted/lake", {"secret_access_key": "another-Secret-99"}, "SignatureDoesNotMatch"),
        ("s3://counted/lake", {"access_key_id": "somebody"}, "InvalidAccessKeyId|UserNotFound"),
    ],
)
def test_a_store_that_refuses(
    server: S3, tmp_path: Path, url: str, changed: dict[str, str], reason: str
) -> None:
    server.bucket("counted")
    store = object_store.open_s3(url, {**server.settings, **changed}, tmp_path)
    requests: list[Callable[[], Any]] = [
        store.check, lambda: store.put("a", b""), lambda: store.get("a"), lambda: store.folders("views"),
    ]  # fmt: skip
    for request in requests:
        with pytest.raises(StoreUnavailable, match=reason) as caught:
            request()
        assert "ecret" not in str(caught.value)


@pytest.mark.slow
def test_a_faulty_server(server: S3, tmp_path: Path) -> None:
    """A tenth of all requests fail, half of these after they were carried out, or are carried out twice."""
    kept = server.bucket("faulty")
    table_of(ObjectStore(kept, "s3://faulty", tmp_path / "first"))
    server.faults = 0.1

    def work(name: str) -> None:
        table = LakeTable(ObjectStore(kept, "s3://faulty", tmp_path / name).table(*PLACE))
        step = 1
        while step <= 8:
            try:
                table.append(changes(step, 5, seed=len(name)), commit(step, name))
                step += 1
            except StoreUnavailable:
                continue

    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, ("a", "bb")))
    finally:
        server.faults = 0.0
    table = LakeTable(ObjectStore(kept, "s3://faulty", tmp_path / "last").table(*PLACE))
    assert [table.last_step(name) for name in ("a", "bb")] == [8, 8]
    assert content(table) == rows_of(changes(step, 5, seed=seed) for step in range(1, 9) for seed in (1, 2))
    table.check_no_external_writes(0)


def answers_lost(monkeypatch: pytest.MonkeyPatch, is_done: bool, names: str = ".json") -> None:
    """The next conditional write fails, after it was carried out or instead of it."""
    put = object_store.obstore.put

    def lost(kept: Any, name: str, *rest: Any, **options: Any) -> Any:
        if not name.endswith(names):
            return put(kept, name, *rest, **options)
        monkeypatch.undo()
        if is_done:
            put(kept, name, *rest, **options)
        raise obstore.exceptions.GenericError("the connection was closed")

    monkeypatch.setattr(obstore, "put", lost)


def test_a_commit_whose_answer_was_lost_is_found(
    memory: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(memory, steps=1)
    answers_lost(monkeypatch, is_done=True)
    assert table.append(changes(2, 10), commit(2)) == 2
    assert content(table) == bag(changes(1, 10)) + bag(changes(2, 10))


def test_a_commit_that_may_come_late_keeps_its_files(
    memory: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The store carries out the request after everybody has given it up."""
    table, late = table_of(memory, steps=1), []
    put = obstore.put

    def delayed(kept: Any, name: str, content: Any, **options: Any) -> Any:
        if not name.endswith(".json"):
            return put(kept, name, content, **options)
        monkeypatch.undo()
        late.append(lambda: put(kept, name, content, **options))
        raise obstore.exceptions.GenericError("no answer in time")

    monkeypatch.setattr(obstore, "put", delayed)
    with pytest.raises(StoreUnavailable):
        table.append(changes(2, 10), commit(2))
    assert table.version() == 1 and content(table) == bag(changes(1, 10))
    late[0]()
    other = LakeTable(ObjectStore(memory.kept, "memory://lake", tmp_path / "elsewhere").table(*PLACE))
    for each in (table, other):
        assert each.last_step("capture") == 2
        assert content(each) == bag(changes(1, 10)) + bag(changes(2, 10))
    assert table.append(changes(2, 10), commit(2)) == 2


def test_a_failed_upload_changes_nothing(memory: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(memory, steps=1)
    answers_lost(monkeypatch, is_done=False, names=".parquet")
    with pytest.raises(StoreUnavailable, match="connection was closed"):
        table.append(changes(2, 10), commit(2))
    assert content(table) == bag(changes(1, 10)) and len(table.place.data_files()) == 1
    assert table.append(changes(2, 10), commit(2)) == 2


def test_a_failed_checkpoint_is_no_failure(memory: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(memory, steps=3)
    answers_lost(monkeypatch, is_done=False, names=".checkpoint.parquet")
    assert table.append(changes(4, 10), commit(4)) == 4
    assert content(LakeTable(memory.table(*PLACE))) == content(table)


def test_an_interrupt_between_copy_and_store(memory: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(memory, steps=1)

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(table.place, "commit_entry", interrupted)
    with pytest.raises(KeyboardInterrupt):
        table.append(changes(2, 10), commit(2))
    monkeypatch.undo()
    assert table.version() == 1 and table.append(changes(2, 5), commit(2)) == 2
    assert (
        content(table) == content(LakeTable(memory.table(*PLACE))) == bag(changes(1, 10)) + bag(changes(2, 5))
    )


def test_a_drop_that_died_halfway(memory: ObjectStore) -> None:
    table = table_of(memory, steps=7)
    names = [file.name for file in memory.files(f"{table.place._place}/{LOG}")]  # type: ignore[attr-defined]
    gone = [name for name in names if "checkpoint" in name or name.startswith(f"{0:020}")]
    memory.delete([f"views/{PLACE[1]}/{LOG}/{name}" for name in gone])
    again = LakeTable(memory.table(*PLACE))
    assert not again.exists()
    again.create(CHANGES)
    again.append(changes(1, 3), commit(1))
    assert again.version() == 1 and content(LakeTable(memory.table(*PLACE))) == bag(changes(1, 3))


def test_a_log_is_cleaned_up(memory: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(memory, steps=8)
    monkeypatch.setattr(object_store, "LOG_SECONDS", -1.0)
    for step in range(9, 15):
        table.append(changes(step, 10), commit(step))
    versions = [file.name[:20] for file in memory.files(f"views/{PLACE[1]}/{LOG}") if file.name[0] != "_"]
    assert min(versions) == f"{14:020}"
    assert content(LakeTable(memory.table(*PLACE))) == content(table)
    assert LakeTable(memory.table(*PLACE)).last_step("capture") == 14


def test_a_copy_that_was_cut_off_is_read_again(memory: ObjectStore) -> None:
    table = table_of(memory, steps=1)
    (table.place.data / table.files()[0].path).write_bytes(b"")
    assert content(table) == bag(changes(1, 10))


def test_copies_of_files_that_another_machine_has_deleted(memory: ObjectStore, tmp_path: Path) -> None:
    table = table_of(memory, steps=2)
    other = LakeTable(ObjectStore(memory.kept, "memory://lake", tmp_path / "there").table(*PLACE))
    other.replace(other.files(), [changes(1, 4)], commit(1, "apply"))
    other.vacuum(keep_seconds=0, now=time.time() + 1)
    assert len(list(table.place.data.glob("*.parquet"))) == 2
    table.vacuum(keep_seconds=3600, now=time.time())
    assert len(list(table.place.data.glob("*.parquet"))) == 2
    table.vacuum(keep_seconds=3600, now=time.time() + 90_000)
    assert list(table.place.data.glob("*.parquet")) == []
    assert content(table) == bag(changes(1, 4))


def test_a_store_without_conditional_writes_is_refused(
    memory: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = obstore.put

    def careless(kept: Any, name: str, content: bytes, **options: Any) -> Any:
        return put(kept, name, content)

    monkeypatch.setattr(obstore, "put", careless)
    with pytest.raises(LakeError, match="it overwrites an object") as caught:
        memory.check()
    assert "conditional writes" in caught.value.hint
    assert memory.files("") == []

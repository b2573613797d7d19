"""Processes killed at any moment, several writers at once, a disk that fills up: all of a step or nothing."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from lake_rows import CHANGES, bag, change_log, changes, commit, content

from rollview.errors import LakeError
from rollview.lake import FileLayout, LakeTable, data_files, disk, transaction

SCRIPT = Path(__file__).with_name("write_steps.py")


def writer(folder: Path, name: str, steps: int, rows: int) -> subprocess.Popen[bytes]:
    """A process that appends steps."""
    return subprocess.Popen([sys.executable, str(SCRIPT), str(folder), name, str(steps), str(rows)])


def expected(steps: int, rows: int, seed: int) -> Counter[Any]:
    """The rows of that many steps of one writer."""
    total = bag(changes(1, 0))
    for step in range(1, steps + 1):
        total += bag(changes(step, rows, seed=seed))
    return total


@pytest.mark.slow
def test_killed_at_any_moment_a_step_is_there_or_not(tmp_path: Path) -> None:
    folder, chance, rows = tmp_path / "t", random.Random(4), 2000
    kills, limit, seen = 0, 100_000, []
    while kills < 12:
        process = writer(folder, "capture", limit, rows)
        # Until it has begun to write, nothing can be torn; then at any moment.
        begun = LakeTable(folder).version() if LakeTable(folder).exists() else 0
        while not LakeTable(folder).exists() or LakeTable(folder).version() <= begun:
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.3))
        process.kill()
        process.wait()
        kills += 1
        table = LakeTable(folder)
        steps = table.last_step("capture")
        seen.append(steps)
        assert content(table) == expected(steps, rows, seed=7)
        assert DeltaTable(folder).to_pyarrow_table().num_rows == steps * rows
        table.check_no_external_writes(0)
    assert seen == sorted(seen) and seen[-1] > seen[0]
    for path in (*folder.glob("*.parquet"), *folder.glob("_staging/*")):
        os.utime(path, (1, 1))
    table.vacuum(keep_seconds=0, now=time.time())
    assert {path.name for path in folder.glob("*.parquet")} == {file.path for file in table.files()}
    assert content(table) == expected(seen[-1], rows, seed=7)


@pytest.mark.slow
def test_several_writers_at_once(tmp_path: Path) -> None:
    folder, names, steps = tmp_path / "t", ("a", "bb", "ccc"), 15
    change_log(folder)
    processes = [writer(folder, name, steps, 20) for name in names]
    assert [process.wait(timeout=120) for process in processes] == [0, 0, 0]
    table = LakeTable(folder)
    assert [table.last_step(name) for name in names] == [steps] * 3
    wanted: Counter[Any] = Counter()
    for name in names:
        wanted += expected(steps, 20, seed=len(name))
    assert content(table) == wanted
    table.check_no_external_writes(0)


@pytest.mark.slow
def test_two_processes_with_the_same_steps_make_each_once(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    processes = [writer(folder, "capture", 15, 20) for _ in range(2)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    assert content(LakeTable(folder)) == expected(15, 20, seed=7)


def test_the_same_step_from_a_stale_view_is_made_once(tmp_path: Path, monkeypatch: Any) -> None:
    """The other writer comes in after the last look at the log and before the commit."""
    table, other = change_log(tmp_path / "t", steps=1), LakeTable(tmp_path / "t")
    commits = transaction._commit

    def late(*arguments: Any) -> None:
        monkeypatch.setattr(transaction, "_commit", commits)
        other.append(changes(2, 5), commit(2))
        commits(*arguments)

    monkeypatch.setattr(transaction, "_commit", late)
    assert table.append(changes(2, 5), commit(2)) == 2
    assert content(table) == bag(changes(1, 10)) + bag(changes(2, 5))
    assert len(list(table.folder.glob("*.parquet"))) == 2

    def later(*arguments: Any) -> None:
        monkeypatch.setattr(transaction, "_commit", commits)
        other.append(changes(3, 5), commit(1, "other"))
        commits(*arguments)

    monkeypatch.setattr(transaction, "_commit", later)
    version = table.append(changes(4, 5), commit(4))
    assert version == 4 and table.commit_at(4) == commit(4)


def test_a_step_made_between_two_looks_is_noticed(tmp_path: Path, monkeypatch: Any) -> None:
    """The other writer comes in right after this one has looked up its last step."""
    table, other = change_log(tmp_path / "t", steps=1), LakeTable(tmp_path / "t")
    last_step = table._log.last_step
    looks = []

    def looked_up(writer: str) -> int:
        found = last_step(writer)
        looks.append(found)
        if len(looks) == 2:
            other.append(changes(2, 5), commit(2))
        return found

    monkeypatch.setattr(table._log, "last_step", looked_up)
    assert table.append(changes(2, 5), commit(2)) == 2
    assert looks == [1, 1, 2]
    assert content(table) == bag(changes(1, 10)) + bag(changes(2, 5))


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


FAULTS: dict[str, tuple[Any, str]] = {
    "data file": (data_files.pq, "write_table"),
    "data on disk": (disk, "sync"),
    "footer": (data_files, "statistics_of"),
    "commit": (transaction, "_commit"),
}


@pytest.mark.parametrize("place", FAULTS)
def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: Any, place: str) -> None:
    table = change_log(tmp_path / "t", steps=10)
    before, files = content(table), sorted(table.folder.glob("*.parquet"))
    chosen = table.files(csn=(0, 3))
    monkeypatch.setattr(*FAULTS[place], full)
    acts: list[Callable[[], Any]] = [
        lambda: table.append(changes(11, 10), commit(11)),
        lambda: table.replace(chosen, [changes(3, 10)], commit(1, "apply"), FileLayout(("k",), 4)),
        lambda: table.compact(commit(1, "compact")),
    ]
    for act in acts:
        with pytest.raises(LakeError, match="No space left") as caught:
            act()
        assert "disk is full" in caught.value.hint
        assert (content(table), table.version()) == (before, 10)
        assert sorted(table.folder.glob("*.parquet")) == files
    monkeypatch.undo()
    for act in acts:
        act()
    table.check_no_external_writes(0)


def test_a_torn_data_file_is_not_left_behind(tmp_path: Path, monkeypatch: Any) -> None:
    table = change_log(tmp_path / "t", steps=1)

    def torn(rows: Any, path: Path, **_: Any) -> None:
        path.write_bytes(b"PAR1 and no more")
        full()

    monkeypatch.setattr(data_files.pq, "write_table", torn)
    with pytest.raises(LakeError):
        table.append(changes(2, 5), commit(2))
    assert len(list(table.folder.glob("*.parquet"))) == 1


@pytest.mark.parametrize("error", [DeltaError("checkpoint failed"), KeyboardInterrupt()], ids=repr)
def test_a_failure_after_the_commit_loses_no_file(
    tmp_path: Path, monkeypatch: Any, error: BaseException
) -> None:
    """The commit goes through, then its checkpoint fails or somebody interrupts: the files must stay."""
    table, commits = change_log(tmp_path / "t", steps=1), transaction._commit

    def fails_afterwards(*arguments: Any) -> None:
        commits(*arguments)
        raise error

    monkeypatch.setattr(transaction, "_commit", fails_afterwards)
    try:
        assert table.append(changes(2, 5), commit(2)) == 2
    except KeyboardInterrupt:
        assert isinstance(error, KeyboardInterrupt)
    monkeypatch.undo()
    assert content(table) == bag(changes(1, 10)) + bag(changes(2, 5))
    monkeypatch.setattr(disk.DiskTable, "sync_entry", full)
    with pytest.raises(LakeError, match="may not be on disk"):
        table.append(changes(3, 5), commit(3))
    monkeypatch.undo()
    assert table.append(changes(3, 5), commit(3)) == 3
    table.check_no_external_writes(0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte; only root can make one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
def test_a_really_full_disk(small_disk: Path) -> None:
    """Room is made two kilobytes at a time, so that now the data, now the log, now the checkpoint fails."""
    table = LakeTable(small_disk / "t")
    table.create(CHANGES, {"delta.checkpointInterval": "3"})
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as stream, pytest.raises(OSError, match="No space"):
        while True:
            stream.write(b"x" * 1024)
    step, failures = 1, 0
    while step < 40:
        try:
            table.append(changes(step, 300), commit(step))
            step += 1
        except LakeError as error:
            failures += 1
            assert "disk is full" in error.hint
            os.truncate(filler, filler.stat().st_size - 2048)
        for opened in (table, LakeTable(table.folder)):
            assert opened.last_step("capture") == step - 1
            opened.check_no_external_writes(0)
    assert failures > 20
    assert content(LakeTable(table.folder)) == sum((bag(changes(s, 300)) for s in range(1, 40)), Counter())
    assert len(list(table.folder.glob("*.parquet"))) == 39

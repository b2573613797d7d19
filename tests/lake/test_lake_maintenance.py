"""Compaction changes no row, pruning only old ones, vacuum only files that nobody needs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from lake_rows import bag, change_log, changes, commit, content

from rollview.errors import LakeError
from rollview.lake import LakeFile, LakeTable
from rollview.lake.maintenance import SAFE_AGE_SECONDS, groups_to_compact


def aged(path: Path, seconds: float) -> None:
    """Makes a file look as if it had been written so long ago."""
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_compaction_keeps_the_content(tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=20)
    before = content(table)
    assert table.compact(commit(1, "compact"), target_rows=1000, upto=15) == 21
    assert content(LakeTable(table.folder)) == before
    assert sorted(file.rows for file in table.files()) == [10] * 5 + [150]
    (big,) = [file for file in table.files() if file.rows == 150]
    assert (big.minimum["_csn"], big.maximum["_csn"]) == (1, 15)
    numbers = table.load([big], columns=["_csn"])["_csn"].to_pylist()
    assert numbers == sorted(numbers)
    assert bag(table.load(table.files(csn=(4, 9)), csn=(4, 9))) == sum(
        (bag(changes(csn, 10)) for csn in range(5, 10)), start=bag(changes(1, 0))
    )
    table.check_no_external_writes(0)
    added = [action["add"] for action in table._log.actions(21) if "add" in action]
    assert [action["dataChange"] for action in added] == [False]
    # Not worthwhile again, and a repeat of the step does nothing either.
    assert table.compact(commit(2, "compact"), target_rows=1000, upto=15) is None
    assert table.compact(commit(1, "compact"), target_rows=1000) is None
    assert bag(pa.table(DeltaTable(table.folder).to_pyarrow_table())) == before


def test_compaction_by_another_reader(tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=10)
    before = content(table)
    seen = []

    def rewrite(scan):  # type: ignore[no-untyped-def]
        seen.append(scan)
        return table.load(table.files())

    table.compact(commit(1, "compact"), rewrite=rewrite)
    assert len(seen[0].files) == 10
    assert content(table) == before


def test_compaction_yields_to_whoever_was_faster(tmp_path: Path) -> None:
    table, other = change_log(tmp_path / "t", steps=10), LakeTable(tmp_path / "t")

    def rewrite(scan):  # type: ignore[no-untyped-def]
        other.prune(3, commit(1, "prune"))
        return table.load(table.files(version=10))

    assert table.compact(commit(1, "compact"), rewrite=rewrite) is None
    assert sum(content(table).values()) == 70
    assert len(list(table.folder.glob("*.parquet"))) == 10


sizes = st.lists(st.integers(1, 400), max_size=60)


@given(sizes, st.none() | st.integers(0, 60))
def test_groups_are_neighbours_that_gain_from_it(sizes: list[int], upto: int | None) -> None:
    files = [LakeFile(str(csn), rows, 1, {"_csn": csn}, {"_csn": csn}) for csn, rows in enumerate(sizes)]
    groups = groups_to_compact(files, 500, upto)
    chosen = [file for group in groups for file in group]
    assert len({file.path for file in chosen}) == len(chosen)
    for group in groups:
        csns = [file.minimum["_csn"] for file in group]
        assert csns == list(range(csns[0], csns[0] + len(csns))) and len(group) > 1
        assert sum(file.rows for file in group) < 500 + 250
        assert all(file.rows <= 250 for file in group)
        assert upto is None or csns[-1] <= upto


def test_rows_are_rewritten_a_logarithmic_number_of_times() -> None:
    """Appends of 10 rows, compaction tried after every one: files stay few and little is rewritten."""
    files: list[LakeFile] = []
    rewritten = 0
    for csn in range(4000):
        files.append(LakeFile(str(csn), 10, 1, {"_csn": csn}, {"_csn": csn}))
        for group in groups_to_compact(files, 100_000, None):
            rows = sum(file.rows for file in group)
            rewritten += rows
            first, last = group[0].minimum, group[-1].maximum
            files = [file for file in files if file not in group]
            files.append(LakeFile(f"{csn} {first}", rows, 1, first, last))
        assert len(files) < 64
    assert rewritten / 40_000 < 12


def test_pruning_drops_whole_files_of_the_past(tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=5)
    table.append(changes(3, 4, seed=1), commit(6))
    assert table.prune(3, commit(1, "prune")) == 34
    assert content(table) == bag(changes(4, 10)) + bag(changes(5, 10))
    assert table.prune(3, commit(2, "prune")) == 0
    assert table.prune(9, commit(1, "prune")) == 0
    assert table.version() == 7


def test_a_file_that_reaches_beyond_is_kept_whole(tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=10)
    table.compact(commit(1, "compact"))
    assert table.prune(9, commit(1, "prune")) == 0
    assert table.prune(10, commit(2, "prune")) == 100


def test_vacuum_keeps_what_recent_versions_need(tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=10)
    old = {file.path for file in table.files()}
    for path in old:
        aged(table.folder / path, 30 * 86_400)
    table.compact(commit(1, "compact"))
    table.vacuum(keep_seconds=3600, now=time.time())
    assert sum(bag(table.load(table.files(version=10))).values()) == 100
    # Also when only a checkpoint remembers the removal.
    DeltaTable(table.folder).create_checkpoint()
    for entry in (table.folder / "_delta_log").glob("*.json"):
        if int(entry.stem) < table.version():
            entry.unlink()
    table.append(changes(11, 1), commit(11))
    (table.folder / "_delta_log" / f"{11:020}.json").unlink()
    LakeTable(table.folder).vacuum(keep_seconds=3600, now=time.time())
    assert all((table.folder / path).exists() for path in old)
    LakeTable(table.folder).vacuum(keep_seconds=0, now=time.time())
    assert not any((table.folder / path).exists() for path in old)
    assert sum(content(LakeTable(table.folder)).values()) == 101
    LakeTable(table.folder).check_no_external_writes(11)


def test_vacuum_takes_leftovers_only_when_they_are_old(tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=2)
    orphan = table.folder / "part-0.parquet"
    staged = table.folder / "_staging" / "abc" / "_temporary" / "part-1.parquet"
    staged.parent.mkdir(parents=True)
    for path in (orphan, staged):
        path.write_text("torn")
    table.vacuum(keep_seconds=0, now=time.time())
    assert orphan.exists() and staged.exists()
    for path in (orphan, staged, staged.parent, staged.parent.parent):
        aged(path, SAFE_AGE_SECONDS + 60)
    for file in table.files():
        aged(table.folder / file.path, SAFE_AGE_SECONDS + 60)
    table.vacuum(keep_seconds=2 * SAFE_AGE_SECONDS, now=time.time())
    assert orphan.exists()
    table.vacuum(keep_seconds=0, now=time.time())
    assert not orphan.exists() and not staged.parent.parent.exists()
    assert sum(content(table).values()) == 20
    with pytest.raises(LakeError, match="cannot be kept"):
        table.vacuum(keep_seconds=1e9, now=time.time())

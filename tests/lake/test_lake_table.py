"""A table from outside: created once, appended to in steps, replaced file by file, changed by nobody else."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from lake_rows import CHANGES, EVERY_TYPE, bag, change_log, changes, commit, content, every_type

from rollview.errors import ConflictError, LakeError, UnsupportedError
from rollview.lake import Commit, FileLayout, LakeTable
from rollview.rows import arrow_schema


def test_a_table_is_created_once(tmp_path: Path) -> None:
    table = LakeTable(tmp_path / "deep" / "sales")
    assert not table.exists()
    table.create(EVERY_TYPE, {"delta.checkpointInterval": "7", "rollview.view": "sales"})
    assert table.exists()
    table.create(EVERY_TYPE)
    assert LakeTable(table.folder).columns == EVERY_TYPE
    assert table.version() == 0
    assert table.commit_at(0) is not None
    with pytest.raises(LakeError, match="exists with other columns"):
        table.create(CHANGES)


def test_what_cannot_be_created_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="has no type"):
        LakeTable(tmp_path / "a").create((("nothing", "void"),))
    with pytest.raises(UnsupportedError):
        LakeTable(tmp_path / "b").create((("things", "map<int,int>"),))
    for name in ("50%20off", "back\\slash"):
        with pytest.raises(LakeError, match="cannot be in a folder"):
            LakeTable(tmp_path / name).create(CHANGES)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LakeError, match="not a table"):
        LakeTable(tmp_path / "c").version()


def test_every_type_comes_back(tmp_path: Path) -> None:
    table = LakeTable(tmp_path / "types")
    table.create(EVERY_TYPE)
    table.append(every_type(), commit(1))
    assert table.load(table.files()).equals(every_type())
    table.check_no_external_writes(0)
    opened = DeltaTable(table.folder)
    assert pa.table(opened.to_pyarrow_table()).cast(arrow_schema(EVERY_TYPE)).equals(every_type())
    paths = [str(table.folder / file.path) for file in table.files()]
    with duckdb.connect() as connection:
        found = connection.execute("SET TimeZone = 'UTC'").execute(
            "SELECT big, wide, text, day, local, instant FROM parquet_scan($1) ORDER BY _csn", [paths]
        )
        wanted = every_type().select(["big", "wide", "text", "day", "local"]).to_pylist()
        assert [row[:5] for row in found.fetchall()] == [tuple(row.values()) for row in wanted]


def test_strange_folders_and_names(tmp_path: Path) -> None:
    table = change_log(tmp_path / "a [b] {c} k=1 #?é" / "t'x", steps=3)
    assert sum(content(table).values()) == 30
    table.compact(commit(1, "compact"), target_rows=1000)
    table.check_no_external_writes(0)


def test_a_commit_says_what_it_is(tmp_path: Path) -> None:
    table = change_log(tmp_path / "t")
    said = Commit("propagate:sales", 17, 99, 1234.5, "propagate sales (90, 99]")
    version = table.append(changes(99, 3), said)
    assert LakeTable(table.folder).commit_at(version) == said
    assert table.last_step("propagate:sales") == 17
    assert table.last_step("capture") == 0
    assert json.loads(DeltaTable(table.folder).history(1)[0]["userMetadata"]) == {
        "operation": said.operation,
        "csn": 99,
        "commit_time": "1970-01-01T00:20:34.500000+00:00",
    }
    with pytest.raises(LakeError, match="version 99"):
        table.commit_at(99)


def test_a_repeated_step_is_harmless(tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=3)
    before = content(table)
    files = sorted(table.folder.glob("*.parquet"))
    for step in (1, 2, 3):
        assert table.append(changes(step, 10), commit(step)) == 3
    assert LakeTable(table.folder).append(changes(3, 10), commit(3)) == 3
    assert content(table) == before
    assert sorted(table.folder.glob("*.parquet")) == files
    assert table.append(changes(4, 10), commit(4, "other")) == 4


def test_an_empty_append_moves_the_csn(tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=1)
    version = table.append(changes(2, 0), commit(2))
    said = table.commit_at(version)
    assert said is not None and said.csn == 2
    assert len(table.files()) == 1


def test_rows_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=1)
    good = changes(2, 3)
    shuffled = good.select(["_csn", "name", "k", "_count"])
    for bad in (good.drop(["name"]), good.append_column("more", good["k"])):
        with pytest.raises(LakeError, match="columns"):
            table.append(bad, commit(2))
    with pytest.raises(LakeError, match="writing data files"):
        table.append(good.set_column(0, "k", pa.array(["x"] * 3)), commit(2))
    assert table.version() == 1
    table.append(shuffled, commit(2))
    assert bag(table.load(table.files(), csn=(1, 2))) == bag(good)
    assert len(list(table.folder.glob("*.parquet"))) == 2


def test_replace_removes_and_adds_in_one_commit(tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=3)
    first, second, third = sorted(table.files(), key=lambda file: file.minimum["_csn"])
    version = table.replace([first, second], [changes(9, 25)], commit(1, "apply"), FileLayout(("k",), 10))
    assert version == 4
    new = [file for file in table.files() if file.path != third.path]
    assert sorted(file.rows for file in new) == [8, 8, 9]
    ranges = sorted((file.minimum["k"], file.maximum["k"]) for file in new)
    assert all(one[1] <= other[0] for one, other in pairwise(ranges))
    assert content(table) == bag(changes(3, 10)) + bag(changes(9, 25))
    assert table.files(version=3) and {file.path for file in table.files(version=3)} >= {first.path}
    with pytest.raises(ConflictError, match="no longer part"):
        table.replace([first], [], commit(2, "apply"))
    assert table.replace([third], [], commit(2, "apply")) == 5
    assert content(table) == bag(changes(9, 25))
    assert len(list(table.folder.glob("*.parquet"))) == 6


def test_another_object_sees_what_was_committed(tmp_path: Path) -> None:
    table, reader = change_log(tmp_path / "t"), LakeTable(tmp_path / "t")
    for step in range(1, 6):
        table.append(changes(step, 2), commit(step))
        assert (reader.version(), reader.last_step("capture"), len(reader.files())) == (step, step, step)


def test_the_log_is_cleaned_up_and_stays_readable(tmp_path: Path) -> None:
    table, reader = LakeTable(tmp_path / "t"), LakeTable(tmp_path / "t")
    table.create(CHANGES, {"delta.checkpointInterval": "5", "delta.logRetentionDuration": "interval 1 hours"})
    assert reader.version() == 0
    old = dt.datetime.now().timestamp() - 7200
    for step in range(1, 40):
        table.append(changes(step, 2), commit(step))
        for entry in (table.folder / "_delta_log").glob("0*"):
            os.utime(entry, (old, old))
    entries = list((table.folder / "_delta_log").glob("*.json"))
    assert len(entries) < 15
    # The reader's own version is no longer in the log, and no entry follows it.
    assert reader.version() == 39
    for opened in (reader, LakeTable(table.folder)):
        assert content(opened) == content(table)
        assert (opened.last_step("capture"), opened.append(changes(1, 2), commit(1))) == (39, 39)
        opened.check_no_external_writes(0)
    assert sum(content(table).values()) == 78


def test_a_recreated_table_is_noticed(tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=2)
    assert len(table.files()) == 2
    shutil.rmtree(table.folder)
    other = change_log(tmp_path / "t", steps=1, rows=3)
    assert table.version() == 1
    assert content(table) == content(other)


def test_changes_by_hand_are_noticed(tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=2)
    table.check_no_external_writes(0)
    write_deltalake(table.folder, changes(1, 1), mode="append")
    table.append(changes(3, 1), commit(3))
    assert table.commit_at(3) is None
    for since in (0, 2):
        with pytest.raises(LakeError, match=r"version 3, WRITE"):
            table.check_no_external_writes(since)
    table.check_no_external_writes(3)
    DeltaTable(table.folder).delete("k >= 0")
    with pytest.raises(LakeError, match=r"version 5, DELETE"):
        table.check_no_external_writes(4)
    DeltaTable(table.folder).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(LakeError, match=r"version 6"):
        table.check_no_external_writes(5)


def test_housekeeping_by_others_is_no_change(tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=4)
    before = content(table)
    DeltaTable(table.folder).optimize.compact()
    DeltaTable(table.folder).vacuum(dry_run=False)
    assert table.version() > 4
    table.check_no_external_writes(4)
    assert content(table) == before


def test_lost_files_are_noticed(tmp_path: Path) -> None:
    table = change_log(tmp_path / "t", steps=2)
    (table.folder / table.files()[0].path).unlink()
    with pytest.raises(LakeError, match="missing 1 of its data files"):
        table.check_no_external_writes(2)
    with pytest.raises(LakeError, match="reading data files"):
        table.load(table.files())

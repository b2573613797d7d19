"""Delta tables in a bucket: what a log may name, and which copies there are."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from delta_tables import SITE, append, captured, counts, in_bucket, make_table
from deltalake import DeltaTable

from rollview.errors import CaptureRefused, LogLost, SourceMissing
from rollview.rows import FileScan
from rollview.sources import bucket
from rollview.sources.delta import DeltaSource
from rollview.sources.registry import open_source


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    (tmp_path / "tables").mkdir()
    return tmp_path / "tables"


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    return tmp_path / "copies"


def opened(tables: Path, copies: Path) -> DeltaSource:
    return DeltaSource("d", in_bucket(tables, copies))


def files_of(copies: Path) -> dict[str, int]:
    """The copies, each with an identity that another copy would not have."""
    return {path.name: path.stat().st_ino for path in copies.rglob("*") if path.is_file()}


def log_entry(tables: Path, version: int) -> Path:
    return tables / "orders" / "_delta_log" / f"{version:020}.json"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("file:///etc/hostname", "not below"),
        ("file:/etc/hostname", "not below"),
        ("/etc/hostname", "no object has"),
        ("s3://another/orders/part.parquet", "not below"),
        ("s3://bucket/orders2/part.parquet", "not below"),
        ("../items/part.parquet", "no object has"),
        ("%2e%2e/items/part.parquet", "no object has"),
        ("s3://bucket/orders/../items/part.parquet", "no object has"),
        ("a//part.parquet", "no object has"),
        ("a%00/part.parquet", "no object has"),
        ("\ud800.parquet", "no object has|cannot be opened"),
        ("", "no object has"),
    ],
)
def test_a_log_leads_to_no_other_files(tables: Path, copies: Path, path: str, reason: str) -> None:
    make_table(tables, [(1, "a")])
    (tables / "items").mkdir()
    source = opened(tables, copies)
    (table,) = source.tables()
    origin = source.current_position(SITE)
    added = {"path": path, "size": 1, "partitionValues": {}, "modificationTime": 1, "dataChange": True}
    log_entry(tables, 1).write_text(json.dumps({"add": added}) + "\n")
    for act in (
        lambda: source.capture(SITE, origin, 10),
        lambda: source.read({table: table.columns}, copies),
    ):
        with pytest.raises(CaptureRefused, match=reason):
            act()
    assert files_of(copies) == {}


def test_an_address_of_its_own_is_a_name(tables: Path, copies: Path) -> None:
    make_table(tables, [(1, "a")])
    entry = log_entry(tables, 0)
    entry.write_text(entry.read_text().replace('"path":"', '"path":"s3://bucket/orders/'))
    assert captured(opened(tables, copies), "-1:")[0] == [{(1, "a"): 1}]


def test_odd_names(tmp_path: Path, tables: Path, copies: Path) -> None:
    """Of tables and of objects; a copy has a name of its own, and a site is no way out of the bucket."""
    for number, name in enumerate(["a b", "x%20y", "it's", "ü", "k=1", "[x]*"]):
        make_table(tables, [(number, "v")])
        (tables / "orders").rename(tables / name)
    source = opened(tables, copies)
    found = {table.name: table for table in source.tables()}
    assert sorted(found) == sorted(["a b", "x%20y", "it's", "ü", "k=1", "[x]*"])
    for number, name in enumerate(["a b", "x%20y", "it's", "ü", "k=1", "[x]*"]):
        rows = source.read({found[name]: ("k", "v")}, tmp_path).rows[0]
        assert counts(rows) == {(number, "v"): 1}
    assert all(set(name) <= set("0123456789abcdef") for name in files_of(copies))
    for site in ("d...", "d.a/b", "d.", "e.orders"):
        with pytest.raises(SourceMissing):
            source.current_position(site)


def test_a_file_is_read_once(tables: Path, copies: Path) -> None:
    make_table(tables, [(1, "a")])
    (table,) = opened(tables, copies).tables()
    opened(tables, copies).read({table: table.columns}, copies)
    (name, identity) = next(iter(files_of(copies).items()))
    append(tables, [(2, "b")])
    found = opened(tables, copies).read({table: table.columns}, copies)
    assert counts(found.rows[0]) == {(1, "a"): 1, (2, "b"): 1}
    assert files_of(copies)[name] == identity and len(files_of(copies)) == 2
    # A copy that a crash of the machine cut off.
    path = next(copies.rglob(name))
    path.write_bytes(path.read_bytes()[:7])
    found = opened(tables, copies).read({table: table.columns}, copies)
    assert counts(found.rows[0]) == {(1, "a"): 1, (2, "b"): 1}


def test_a_file_of_unknown_size_is_read_again(tables: Path, copies: Path) -> None:
    table = make_table(tables, [(1, "a")])
    source = opened(tables, copies)
    origin = source.current_position(SITE)
    opened(tables, copies).read({source.tables()[0]: ("k", "v")}, copies)
    (copy,) = copies.glob("*/*")
    copy.write_bytes(b"cut off")
    table.delete()
    entry = log_entry(tables, 1)
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for each in actions:
        each.get("remove", {}).pop("size", None)
    entry.write_text("\n".join(map(json.dumps, actions)))
    assert captured(source, origin)[0] == [{(1, "a"): -1}]


def test_copies_that_nobody_needs_go_after_a_day(
    tables: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tables, [(1, "a")])
    source = opened(tables, copies)
    position = source.current_position(SITE)
    (known,) = source.tables()

    def tidied(age: float) -> set[str]:
        """The copies that are left when they are so old."""
        for path in copies.glob("*/*"):
            os.utime(path, (time.time() - age, path.stat().st_mtime))
        monkeypatch.setattr(bucket, "TIDY_SECONDS", -1.0)
        source.acknowledge(SITE, position)
        return set(files_of(copies))

    source.read({known: known.columns}, copies)
    table.delete("k = 1")
    append(tables, [(2, "b")])
    found = source.read({known: known.columns}, copies).rows[0]
    assert isinstance(found, FileScan)
    newest = {Path(file.path).name for file in found.files}
    assert tidied(4000.0) > newest
    assert captured(source, position)[0] == [{(1, "a"): -1}, {(2, "b"): 1}]
    assert tidied(90_000.0) == newest
    # And what is gone is read again.
    assert captured(source, position)[0] == [{(1, "a"): -1}, {(2, "b"): 1}]


def test_a_copy_that_is_asked_for_is_young(tables: Path, copies: Path) -> None:
    make_table(tables, [(1, "a")])
    (file,) = (tables / "orders").glob("*.parquet")
    bucket = in_bucket(tables, copies)
    bucket.have("orders", {file.name: file.stat().st_size})
    copy = bucket.copy_of("orders", file.name)
    os.utime(copy, (time.time() - 90_000, 5.0))
    bucket.have("orders", {file.name: file.stat().st_size})
    bucket.forget("orders", lambda: ())
    assert time.time() - copy.stat().st_atime < 600 and copy.stat().st_mtime == 5.0
    os.utime(copy, (time.time() - 90_000, 5.0))
    bucket.forget("orders", lambda: ())
    assert files_of(copies) == {}


def in_two_parts(log: Path) -> list[Path]:
    """The checkpoint at version 2 as some writers make it of large tables."""
    whole = log / f"{2:020}.checkpoint.parquet"
    rows = pq.read_table(whole)
    parts = [log / f"{2:020}.checkpoint.{number:010}.{2:010}.parquet" for number in (1, 2)]
    for part, taken in zip(parts, (rows.slice(0, 2), rows.slice(2)), strict=True):
        pq.write_table(taken, part)
    whole.unlink()
    (log / "_last_checkpoint").unlink()
    return parts


def test_a_checkpoint_in_parts(tables: Path, copies: Path) -> None:
    make_table(tables, [(1, "a")])
    append(tables, [(2, "b")])
    append(tables, [(3, "c")])
    DeltaTable(tables / "orders").create_checkpoint()
    parts = in_two_parts(tables / "orders" / "_delta_log")
    for version in (0, 1):
        log_entry(tables, version).unlink()
    source = opened(tables, copies)
    (table,) = source.tables()
    found = source.read({table: table.columns}, copies)
    assert counts(found.rows[0]) == {(1, "a"): 1, (2, "b"): 1, (3, "c"): 1}
    parts[1].unlink()
    with pytest.raises(CaptureRefused, match="entries of its log are missing"):
        opened(tables, copies).current_position(SITE)


def test_commits_before_a_checkpoint_are_read_when_they_are_needed(tables: Path, copies: Path) -> None:
    make_table(tables, [(1, "a")])
    origin = opened(tables, copies).current_position(SITE)
    append(tables, [(2, "b")])
    append(tables, [(3, "c")])
    DeltaTable(tables / "orders").create_checkpoint()
    assert captured(opened(tables, copies), origin)[0] == [{(2, "b"): 1}, {(3, "c"): 1}]


def test_a_process_that_was_behind_a_cleaned_up_log(tables: Path, copies: Path) -> None:
    make_table(tables, [(1, "a")])
    source = opened(tables, copies)
    origin = source.current_position(SITE)
    append(tables, [(2, "b")])
    append(tables, [(3, "c")])
    DeltaTable(tables / "orders").create_checkpoint()
    log_entry(tables, 1).unlink()
    (table,) = source.tables()
    found = source.read({table: table.columns}, copies)
    assert counts(found.rows[0]) == {(1, "a"): 1, (2, "b"): 1, (3, "c"): 1}
    with pytest.raises(LogLost, match="version 1 has been cleaned up"):
        source.capture(SITE, origin, 10)


def test_the_name_of_a_table_for_others(tmp_path: Path) -> None:
    def named(path: str) -> tuple[str, str]:
        source = open_source("d", "delta", {"path": path, "region": "r"}, tmp_path)
        assert isinstance(source, DeltaSource)
        return source.dataset("orders")

    assert named("s3://company-data/team/a/") == ("s3://company-data", "team/a/orders")
    assert named("s3://company-data") == ("s3://company-data", "orders")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_only_its_owner_can_read(tables: Path, tmp_path: Path) -> None:
    make_table(tables, [(1, "a")])
    copies = tmp_path / ".rollview" / "sources" / "d"
    source = opened(tables, copies)
    (table,) = source.tables()
    source.read({table: table.columns}, copies)
    assert [path.stat().st_mode & 0o077 for path in (copies, *copies.parents[:2])] == [0, 0, 0]

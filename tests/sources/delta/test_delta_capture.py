"""What is a transaction of a Delta table, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from delta_tables import SITE, Opened, append, arrow, captured, counts, make_table
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from pages.what_if import what_if
from rollview.algebra.history import Seen
from rollview.errors import (
    CaptureRefused,
    LogLost,
    OptionError,
    PointError,
    SourceChanged,
    SourceMissing,
)
from rollview.rows import FileScan
from rollview.sources.delta import DeltaSource, capture

FEED = {"delta.enableChangeDataFeed": "true"}

_MAP = pa.array([[("x", 1)]], pa.map_(pa.string(), pa.int64()))
"""Of a type that is not supported."""


@what_if(
    "Delta tables",
    "`UPDATE`, `DELETE`, `MERGE`, overwrite, `RESTORE`",
    "transactions like any other",
    under="nothing stops",
)
@pytest.mark.parametrize("configuration", [{}, FEED])
def test_update_delete_merge_overwrite_restore(
    opened: Opened, tmp_path: Path, configuration: dict[str, str]
) -> None:
    table = make_table(tmp_path, [(1, "a"), (2, "b"), (3, None)], configuration=configuration)
    source = opened(tmp_path)
    origin = source.current_position(SITE)
    table.update(updates={"v": "'z'"}, predicate="k = 1")
    table.delete("k = 3")
    merged = table.merge(arrow([(2, "m"), (4, "n")]), "t.k = s.k", source_alias="s", target_alias="t")
    merged.when_matched_update_all().when_not_matched_insert_all().execute()
    table.delete()
    append(tmp_path, [(9, "x"), (9, "x")])
    write_deltalake(str(tmp_path / "orders"), arrow([(9, "x"), (7, "y")]), mode="overwrite")
    DeltaTable(tmp_path / "orders").restore(1)
    found, log_position = captured(source, origin)
    assert found == [
        {(1, "a"): -1, (1, "z"): 1},
        {(3, None): -1},
        {(2, "b"): -1, (2, "m"): 1, (4, "n"): 1},
        {(1, "z"): -1, (2, "m"): -1, (4, "n"): -1},
        {(9, "x"): 2},
        {(9, "x"): -1, (7, "y"): 1},
        {(9, "x"): -1, (7, "y"): -1, (1, "z"): 1, (2, "b"): 1, (3, None): 1},
    ]
    assert source.capture(SITE, log_position, 10).transactions == ()


def test_what_changes_no_row_is_no_transaction_but_moves_the_log_position(
    opened: Opened, tmp_path: Path
) -> None:
    table = make_table(tmp_path, [(1, "a")])
    append(tmp_path, [(2, "b")])
    source = opened(tmp_path)
    origin = source.current_position(SITE)
    DeltaTable(tmp_path / "orders").optimize.compact()
    table = DeltaTable(tmp_path / "orders")
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    table.update(updates={"v": "v"}, predicate="k = 1")
    found, log_position = captured(source, origin)
    assert found == []
    assert log_position.partition(":")[0] == str(DeltaTable(tmp_path / "orders").version()) == "4"


def test_from_before_the_first_version(opened: Opened, tmp_path: Path) -> None:
    make_table(tmp_path, [(1, "a")])
    append(tmp_path, [(2, "b")])
    source = opened(tmp_path)
    batch = source.capture(SITE, "-1:", 1)
    assert [each.source_txid for each in batch.transactions] == [1]
    assert [each.source_txid for each in source.capture(SITE, batch.log_position, 1).transactions] == [2]


def test_many_rows_stay_in_their_files(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "FEW_ADDED_ROWS", 2)
    monkeypatch.setattr(capture, "FEW_REWRITTEN_ROWS", 3)
    table = make_table(tmp_path, [(1, "a"), (2, "b")])
    source = opened(tmp_path)
    origin = source.current_position(SITE)
    append(tmp_path, [(3, "c"), (4, "d"), (5, "e")])
    table = DeltaTable(tmp_path / "orders")
    table.update(updates={"v": "'z'"}, predicate="k = 5")
    batch = source.capture(SITE, origin, 100)
    rows = [each.rows[SITE] for each in batch.transactions]
    assert all(isinstance(each, FileScan) for each in rows)
    assert [counts(each) for each in rows] == [
        {(3, "c"): 1, (4, "d"): 1, (5, "e"): 1},
        {(5, "e"): -1, (5, "z"): 1},
    ]


def test_the_commit_says_when_it_was_made(opened: Opened, tmp_path: Path) -> None:
    make_table(tmp_path, [(1, "a")])
    log = tmp_path / "orders" / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"] |= {"inCommitTimestamp": 1_500_000_000_250, "timestamp": 1}
    log.write_text("\n".join(map(json.dumps, actions)))
    (transaction,) = opened(tmp_path).capture(SITE, "-1:", 1).transactions
    assert transaction.commit_time == 1_500_000_000.25


@what_if(
    "Delta tables",
    "`VACUUM` removed files that were not captured yet",
    "stops",
    "a file is missing",
    under="the table stops",
)
@pytest.mark.parametrize("configuration", [{}, FEED])
def test_vacuumed_files_are_missed_in_words(
    opened: Opened, tmp_path: Path, configuration: dict[str, str]
) -> None:
    table = make_table(tmp_path, [(1, "a"), (2, "b")], configuration=configuration)
    source = opened(tmp_path)
    origin = source.current_position(SITE)
    table.update(updates={"v": "'z'"}, predicate="k = 1")
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    shutil.rmtree(tmp_path / "orders" / "_change_data", ignore_errors=True)
    with pytest.raises(LogLost, match=r"d\.orders version 1 .* vacuumed") as caught:
        source.capture(SITE, origin, 10)
    assert "rollview setup" in caught.value.hint


def test_a_change_data_feed_does_without_the_data_files(opened: Opened, tmp_path: Path) -> None:
    table = make_table(tmp_path, [(1, "a"), (2, "b")], configuration=FEED)
    source = opened(tmp_path)
    origin = source.current_position(SITE)
    table.update(updates={"v": "'z'"}, predicate="k = 1")
    for file in (tmp_path / "orders").glob("*.parquet"):
        file.unlink()
    assert captured(source, origin)[0] == [{(1, "a"): -1, (1, "z"): 1}]


@what_if(
    "Delta tables",
    "log cleaned up before it was captured; a log entry that vanished",
    "stops",
    "a commit is missing",
    under="the table stops",
)
def test_a_log_cleaned_up_behind_a_checkpoint(opened: Opened, tmp_path: Path) -> None:
    make_table(tmp_path, [(1, "a")])
    source = opened(tmp_path)
    origin = source.current_position(SITE)
    append(tmp_path, [(2, "b")])
    append(tmp_path, [(3, "c")])
    DeltaTable(tmp_path / "orders").create_checkpoint()
    (tmp_path / "orders" / "_delta_log" / f"{1:020d}.json").unlink()
    for each in (source, opened(tmp_path)):
        with pytest.raises(LogLost, match="the log of version 1 has been cleaned up"):
            each.capture(SITE, origin, 10)


def test_a_log_entry_that_vanished(place: str, opened: Opened, tmp_path: Path) -> None:
    make_table(tmp_path, [(1, "a")])
    source = opened(tmp_path)
    origin = source.current_position(SITE)
    append(tmp_path, [(2, "b")])
    append(tmp_path, [(3, "c")])
    log_position = captured(source, origin)[1]
    (tmp_path / "orders" / "_delta_log" / f"{1:020d}.json").unlink()
    if place == "bucket":
        # It has a copy of what it has read.
        assert captured(source, origin)[0] == [{(2, "b"): 1}, {(3, "c"): 1}]
    else:
        with pytest.raises(LogLost, match="version 1"):
            source.capture(SITE, origin, 10)
    with pytest.raises(CaptureRefused, match="cannot be opened"):
        opened(tmp_path).capture(SITE, origin, 10)
    # The newest entry: the table is back at an older version than was captured.
    (tmp_path / "orders" / "_delta_log" / f"{2:020d}.json").unlink()
    for each in (source, opened(tmp_path)):
        with pytest.raises(SourceChanged, match="not the table that was captured up to version 2"):
            each.capture(SITE, log_position, 10)


@what_if(
    "Delta tables",
    "column added, also one of a type that is not supported; other partitions, properties, "
    "`OPTIMIZE`, checkpoints",
    "nothing",
    under="nothing stops",
)
def test_a_new_column_stops_nothing(opened: Opened, tmp_path: Path) -> None:
    make_table(tmp_path, [(1, "a")])
    source = opened(tmp_path)
    (table,) = source.tables()
    origin = source.current_position(SITE)
    append(tmp_path, [(2, "b")])
    DeltaTable(tmp_path / "orders").alter.add_columns([Field("extra", PrimitiveType("string"))])
    rows = pa.table({"k": [3], "v": ["c"], "extra": ["x"], "place": _MAP})
    write_deltalake(str(tmp_path / "orders"), rows, mode="append", schema_mode="merge")
    DeltaTable(tmp_path / "orders").delete("k = 1")
    for each in (source, opened(tmp_path)):
        found, log_position = captured(each, origin)
        assert found == [{(2, "b"): 1}, {(3, "c"): 1}, {(1, "a"): -1}]
        assert captured(each, log_position) == ([], log_position)
        read = each.read({table: ("k", "v")}, tmp_path)
        assert each.seen(SITE, read.read_point, _Marks(log_position)) == Seen(5)
    assert "version 4" in source.setup([table]).done[0]
    # Whoever begins now has the new column, as far as it can be captured.
    assert "extra" in source.current_position(SITE)
    assert "place" not in source.current_position(SITE)


def test_other_partitions_stop_nothing(opened: Opened, tmp_path: Path) -> None:
    make_table(tmp_path, [(1, "a")])
    source = opened(tmp_path)
    origin = source.current_position(SITE)
    rows = pa.table({"k": [1, 2], "v": ["a", "b"], "day": ["x", "y"]})
    write_deltalake(
        str(tmp_path / "orders"), rows, mode="overwrite", schema_mode="overwrite", partition_by=["v", "day"]
    )
    found, log_position = captured(source, origin)
    assert found == [{(2, "b"): 1}]
    DeltaTable(tmp_path / "orders").delete("v = 'a'")
    write_deltalake(
        str(tmp_path / "orders"),
        arrow([(2, "c")]),
        mode="overwrite",
        schema_mode="overwrite",
        partition_by=[],
    )
    log = tmp_path / "orders" / "_delta_log" / f"{3:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "remove" in action:
            # A remove action may leave them out.
            action["remove"].pop("partitionValues", None)
    log.write_text("\n".join(map(json.dumps, actions)))
    assert captured(source, log_position)[0] == [{(1, "a"): -1}, {(2, "b"): -1, (2, "c"): 1}]


def test_a_column_of_another_type(opened: Opened, tmp_path: Path) -> None:
    make_table(tmp_path, [(1, "a")])
    source = opened(tmp_path)
    (table,) = source.tables()
    origin = source.current_position(SITE)
    append(tmp_path, [(2, "b")])
    other = pa.table({"k": ["1"], "v": ["a"]})
    write_deltalake(str(tmp_path / "orders"), other, mode="overwrite", schema_mode="overwrite")
    found, log_position = captured(source, origin)
    assert found == [{(2, "b"): 1}]
    for each in (source, opened(tmp_path)):
        with pytest.raises(SourceChanged, match="at version 2: column k bigint has type string now"):
            each.capture(SITE, log_position, 10)
        with pytest.raises(SourceChanged, match=r"column k bigint of .* has type string now"):
            each.read({table: ("k",)}, tmp_path)


@what_if(
    "Delta tables",
    "captured column dropped, renamed or of another type",
    "stops after all that was committed before",
    "the commit says so",
    under="the table stops",
)
def test_a_column_that_is_gone(opened: Opened, tmp_path: Path) -> None:
    make_table(tmp_path, [(1, "a")])
    source = opened(tmp_path)
    (table,) = source.tables()
    origin = source.current_position(SITE)
    other = pa.table({"k": pa.array([1], pa.int64()), "w": ["a"]})
    write_deltalake(str(tmp_path / "orders"), other, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SourceChanged, match="at version 1: column v string is gone"):
        source.capture(SITE, origin, 10)
    with pytest.raises(SourceChanged, match=r"column v string of d\.orders is gone"):
        source.read({table: ("k",)}, tmp_path)


@what_if(
    "Delta tables",
    "folder restored from an older copy, written since or not",
    "stops",
    "the commit at the log position is not the one that was captured",
    under="the table stops",
)
@pytest.mark.parametrize("commits", [0, 1, 2])
def test_a_folder_restored_from_an_older_copy(opened: Opened, tmp_path: Path, commits: int) -> None:
    """The same table, the same versions, but other commits under them."""
    make_table(tmp_path, [(1, "a")])
    shutil.copytree(tmp_path / "orders", tmp_path / "backup")
    append(tmp_path, [(2, "b")])
    source = opened(tmp_path)
    (table,) = (each for each in source.tables() if each.name == "orders")
    origin = source.current_position(SITE)
    read_point = source.read({table: ("k",)}, tmp_path).read_point
    shutil.rmtree(tmp_path / "orders")
    (tmp_path / "backup").rename(tmp_path / "orders")
    for number in range(commits):
        append(tmp_path, [(number + 10, "other")])
    for each in (source, opened(tmp_path)):
        with pytest.raises(SourceChanged, match="not the table that was captured up to version 1"):
            each.capture(SITE, origin, 10)
        with pytest.raises(SourceChanged, match="not the table that was captured up to version 1"):
            each.seen(SITE, read_point, _Marks(origin))


@what_if(
    "Delta tables",
    "table dropped and created again, or replaced by another one",
    "stops",
    "identity in the metadata",
    under="the table stops",
)
@pytest.mark.parametrize("commits", [0, 1, 4])
def test_a_table_made_again_under_the_old_name(opened: Opened, tmp_path: Path, commits: int) -> None:
    make_table(tmp_path, [(1, "a")])
    append(tmp_path, [(2, "b")])
    source = opened(tmp_path)
    (table,) = source.tables()
    origin = source.current_position(SITE)
    shutil.rmtree(tmp_path / "orders")
    make_table(tmp_path, [(3, "c")])
    for number in range(commits):
        append(tmp_path, [(number, "d")])
    for each in (source, opened(tmp_path)):
        with pytest.raises(SourceChanged, match="not the table that was captured up to version 1"):
            each.capture(SITE, origin, 10)
    found = source.read({table: table.columns}, tmp_path)
    assert (3, "c") in counts(found.rows[0])
    if commits < 2:
        with pytest.raises(SourceChanged, match="a different table"):
            source.seen(SITE, found.read_point, _Marks(origin))


class _Marks:
    def __init__(self, log_position: str) -> None:
        self.log_position = log_position

    def latest(self, source_txid: int) -> int:
        return source_txid

    def versions(self, source_txids: Sequence[int]) -> dict[int, int]:
        return dict(zip(source_txids, source_txids, strict=True))

    def since(self, source_txid: int) -> dict[int, int]:
        return {source_txid: source_txid}


@what_if(
    "Delta tables",
    "table dropped",
    "stops until it is back",
    under="the table stops",
)
def test_a_dropped_table(opened: Opened, tmp_path: Path) -> None:
    make_table(tmp_path, [(1, "a")])
    source = opened(tmp_path)
    origin = source.current_position(SITE)
    shutil.rmtree(tmp_path / "orders")
    assert source.tables() == ()
    with pytest.raises(SourceMissing, match=r"there is no Delta table d\.orders"):
        source.capture(SITE, origin, 10)


@what_if(
    "Delta tables",
    "deletion vectors, column mapping, or a reader feature that rollview does not know",
    "stops at the commit that brings it",
    "protocol of the commit",
    under="the table stops",
)
@pytest.mark.parametrize(
    ("features", "configuration", "reason"),
    [
        (["deletionVectors"], {}, "deletion vectors"),
        (["columnMapping"], {"delta.columnMapping.mode": "name"}, "column mapping"),
        (["somethingNew"], {}, "somethingNew"),
    ],
)
def test_features_that_change_how_files_are_read(
    opened: Opened, tmp_path: Path, features: list[str], configuration: dict[str, str], reason: str
) -> None:
    """The commit that brings the feature is refused, before anything is read from it."""
    make_table(tmp_path, [(1, "a")])
    source = opened(tmp_path)
    origin = source.current_position(SITE)
    first = (tmp_path / "orders" / "_delta_log" / f"{0:020d}.json").read_text()
    metadata = next(json.loads(line) for line in first.splitlines() if "metaData" in line)
    metadata["metaData"]["configuration"] = configuration
    if configuration:
        schema = json.loads(metadata["metaData"]["schemaString"])
        for number, field in enumerate(schema["fields"], 1):
            field["metadata"] = {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": f"column-{number}",
            }
        metadata["metaData"]["schemaString"] = json.dumps(schema)
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": features,
    }
    log = tmp_path / "orders" / "_delta_log" / f"{1:020d}.json"
    log.write_text("\n".join(map(json.dumps, [{"protocol": protocol}, metadata])))
    with pytest.raises(CaptureRefused, match=reason):
        source.capture(SITE, origin, 10)
    with pytest.raises(CaptureRefused):
        opened(tmp_path).current_position(SITE)


def test_a_type_that_is_not_supported_is_refused_at_setup_by_column(opened: Opened, tmp_path: Path) -> None:
    rows = pa.table({"k": [1], "place": _MAP})
    write_deltalake(str(tmp_path / "orders"), rows)
    source = opened(tmp_path)
    (table,) = source.tables()
    with pytest.raises(CaptureRefused, match=r"column place of d\.orders has type map") as caught:
        source.setup([table])
    assert caught.value.subject == "d.orders.place"


def test_options(opened: Opened, tmp_path: Path) -> None:
    make_table(tmp_path, [(1, "a")])
    assert opened(tmp_path, {"key.orders": "k"}).tables()[0].key == ("k",)
    with pytest.raises(OptionError, match="names x"):
        opened(tmp_path, {"key.orders": "x"}).tables()
    with pytest.raises(OptionError, match="no option kez"):
        opened(tmp_path, {"kez": "x"})
    with pytest.raises(SourceMissing, match="there is no folder"):
        DeltaSource("d", tmp_path / "nowhere")


def test_a_removed_file_without_partition_values_and_odd_names(opened: Opened, tmp_path: Path) -> None:
    """A remove action may leave them out; the version before has them. Paths in the log are encoded."""
    rows = arrow([(1, "a b"), (2, "50%"), (3, "x=y/z"), (4, None), (5, "ü")])
    write_deltalake(str(tmp_path / "orders"), rows, partition_by=["v"])
    source = opened(tmp_path)
    (table,) = source.tables()
    expected = {(row["k"], row["v"]): 1 for row in rows.to_pylist()}
    assert counts(source.read({table: table.columns}, tmp_path).rows[0]) == expected
    origin = source.current_position(SITE)
    DeltaTable(tmp_path / "orders").delete("k < 4")
    log = tmp_path / "orders" / "_delta_log" / f"{1:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "remove" in action:
            del action["remove"]["partitionValues"], action["remove"]["extendedFileMetadata"]
    log.write_text("\n".join(map(json.dumps, actions)))
    found, _ = captured(source, origin)
    assert found == [{(1, "a b"): -1, (2, "50%"): -1, (3, "x=y/z"): -1}]


def test_a_version_is_a_position(opened: Opened, tmp_path: Path) -> None:
    make_table(tmp_path, [(1, "a")])
    source = opened(tmp_path)
    origin = source.current_position(SITE)
    append(tmp_path, [(2, "b")])
    append(tmp_path, [(3, "c")])
    batch = source.capture(SITE, origin, 10)
    assert [source.reach(SITE, str(version), batch.log_position) for version in (0, 1, 2)] == [1, 2, 3]
    assert [each.place for each in batch.transactions] == [2, 3]
    with pytest.raises(PointError, match="has not been captured up to 2 yet, but up to 0"):
        source.reach(SITE, "2", origin)
    with pytest.raises(PointError, match="`x` is not a version of"):
        source.reach(SITE, "x", origin)

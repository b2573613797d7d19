"""Dumps: which count, in which order, what changed from one to the next, and what is refused."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import LocalStore, MemoryStore

from pages.what_if import what_if
from rollview.algebra.bag import COUNT
from rollview.algebra.history import Seen
from rollview.errors import DumpError, InputError, LogLost, OptionError, SourceChanged
from rollview.rows import FileScan
from rollview.sources.bucket import Bucket
from rollview.sources.files import FileSource, folder
from rollview.sources.files.dumps import Dump, complete_dumps, natural
from rollview.sources.files.place import dump_places
from rollview.sources.files.state import differential

SITE = "f.customer"


_buckets: dict[Path, Path] = {}
"""Folders that are read as buckets are, each with the folder of the copies."""


@pytest.fixture(params=["folder", "bucket"])
def dumps(request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    (tmp_path / "customer").mkdir()
    if request.param == "bucket":
        _buckets[tmp_path] = tmp_path_factory.mktemp("copies")
    return tmp_path / "customer"


def place_of(dumps: Path) -> Path | Bucket:
    """The folder of the table's source."""
    folder = dumps.parent
    return Bucket(LocalStore(folder), "s3://b", _buckets[folder]) if folder in _buckets else folder


def opened(dumps: Path, **options: Any) -> FileSource:
    return FileSource("f", place_of(dumps), {"settle_seconds": 0, **options})


def listed(dumps: Path) -> list[Dump]:
    """The complete dumps."""
    return complete_dumps(dump_places("f", place_of(dumps))["customer"], 0)


def csv(dumps: Path, name: str, *lines: str) -> Path:
    file = dumps / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("id,name\n" + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


def parquet(dumps: Path, name: str, rows: Sequence[tuple[int, str | None]]) -> Path:
    table = pa.table(
        {"id": [row[0] for row in rows], "name": pa.array([row[1] for row in rows], pa.string())}
    )
    (dumps / name).parent.mkdir(exist_ok=True)
    pq.write_table(table, dumps / name)
    return dumps / name


def changes(source: FileSource, after: str) -> tuple[dict[Any, int] | None, str]:
    batch = source.capture(SITE, after, 10)
    if not batch.transactions:
        return None, batch.log_position
    rows = batch.transactions[0].rows[SITE]
    return {(row["id"], row["name"]): row[COUNT] for row in rows.to_pylist()}, batch.log_position


def test_numbers_in_names_count_by_value() -> None:
    names = ["dump_10.csv", "dump_9.csv", "dump.csv", "dump_9b.csv", "2024-02-01.csv", "2024-1-31.csv"]
    expected = ["2024-1-31.csv", "2024-02-01.csv", "dump.csv", "dump_9.csv", "dump_9b.csv", "dump_10.csv"]
    assert sorted(names, key=natural) == expected


def test_what_is_still_being_written_does_not_count(dumps: Path) -> None:
    csv(dumps, "d1.csv", "1,a")
    for name in ("d2.csv.tmp", "d3.part", "_d4.csv", ".d5.csv", "notes.txt"):
        csv(dumps, name, "2,b")
    parquet(dumps, "d6/part-0.parquet", [(1, "a")])
    csv(dumps, "d6/_temporary/0.csv", "1,a")
    csv(dumps, "d7.csv", "3,c")
    assert [dump.name for dump in listed(dumps)] == ["d1.csv"]
    shutil.rmtree(dumps / "d6" / "_temporary")
    (dumps / "d6" / "_SUCCESS").touch()
    assert [dump.name for dump in listed(dumps)] == ["d1.csv", "d6", "d7.csv"]


def test_an_object_may_stand_for_a_folder(tmp_path: Path) -> None:
    kept = MemoryStore()
    for name, content in (
        ("t/d1", b""),
        ("t/d1/a.csv", b"id\n1\n"),
        ("t/d2/b.csv", b"id\n2\n"),
        ("t/d2", b""),
    ):
        kept.put(name, content)
    source = FileSource("f", Bucket(kept, "s3://b", tmp_path / "copies"), {"settle_seconds": 0})
    (table,) = source.tables()
    assert source.read({table: table.columns}, tmp_path).rows[0].to_pylist() == [{"id": 2, COUNT: 1}]
    kept.put("t/d3/c.csv", b"id\n3\n")
    before = source.current_position("f.t")
    assert source.read({table: table.columns}, tmp_path).rows[0].to_pylist() == [{"id": 3, COUNT: 1}]
    # A dump that is rewritten at the same size in the same moment is another one all the same.
    kept.put("t/d3/c.csv", b"id\n4\n")
    assert source.current_position("f.t") != before
    assert source.read({table: table.columns}, tmp_path).rows[0].to_pylist() == [{"id": 4, COUNT: 1}]


def test_a_file_that_grows_waits_and_so_do_those_after_it(dumps: Path) -> None:
    source = FileSource("f", place_of(dumps), {"schema.customer": "id bigint, name string"})
    origin = source.current_position(SITE)
    old = time.time() - 60
    os.utime(csv(dumps, "d1.csv", "1,a"), (old, old))
    csv(dumps, "d2.csv", "2,b")
    os.utime(csv(dumps, "d3.csv", "3,c"), (old, old))
    found, log_position = changes(source, origin)
    assert found == {(1, "a"): 1}
    assert changes(source, log_position) == (None, log_position)
    # A clock that was set back makes files of the future, which are not waited for.
    ahead = time.time() + 3600
    os.utime(dumps / "d2.csv", (ahead, ahead))
    assert changes(source, log_position)[0] == {(2, "b"): 1, (1, "a"): -1}


def test_a_folder_of_parts_is_one_dump(dumps: Path) -> None:
    parquet(dumps, "d1/a.parquet", [(1, "a")])
    parquet(dumps, "d1/b.parquet", [(2, "b")])
    source = opened(dumps)
    origin = source.current_position(SITE)
    parquet(dumps, "d2/a.parquet", [(2, "b")])
    parquet(dumps, "d2/b.parquet", [(1, "z"), (1, "z")])
    assert changes(source, origin)[0] == {(1, "a"): -1, (1, "z"): 2}


@what_if(
    "dumps",
    "dump removed before the next one was captured",
    "stops when the next one comes",
    under="the table stops",
)
def test_a_dump_that_is_needed_and_gone_or_another_one(dumps: Path) -> None:
    first = csv(dumps, "d1.csv", "1,a")
    source = opened(dumps)
    origin = source.current_position(SITE)
    csv(dumps, "d2.csv", "1,b")
    (_, log_position), batch = changes(source, origin), source.capture(SITE, origin, 1)
    first.write_text("id,name\n1,other\n")
    with pytest.raises(SourceChanged, match=r"d1\.csv of f\.customer is not the one"):
        source.capture(SITE, origin, 10)
    first.unlink()
    with pytest.raises(LogLost, match=r"d1\.csv of f\.customer is gone"):
        source.replay(SITE, origin, [each.source_txid for each in batch.transactions], log_position)
    # It is not needed any more once the next one has been taken.
    csv(dumps, "d3.csv", "1,c")
    assert changes(source, log_position)[0] == {(1, "b"): -1, (1, "c"): 1}
    assert changes(opened(dumps), log_position)[0] == {(1, "b"): -1, (1, "c"): 1}


@what_if(
    "dumps",
    "key twice or `NULL`",
    "stops until the dump is replaced",
    "the declared key is checked in every dump",
    under="the table stops",
)
@pytest.mark.parametrize(
    ("line", "reason"), [("1,b", "id = 1 occurs 2 times"), (",b", "id = NULL occurs 1 time")]
)
def test_a_key_that_is_none(dumps: Path, line: str, reason: str) -> None:
    csv(dumps, "d1.csv", "1,a")
    source = opened(dumps, **{"key.customer": "id"})
    (table,) = source.tables()
    assert table.key == ("id",)
    origin = source.current_position(SITE)
    csv(dumps, "d2.csv", "1,a", line)
    with pytest.raises(DumpError, match=reason):
        source.capture(SITE, origin, 10)
    with pytest.raises(DumpError, match=reason):
        source.setup([table])


def test_types_are_inferred_once(dumps: Path) -> None:
    (dumps / "d1.csv").write_text("a,b,c,d,e\n1,1.5,2020-01-01,2020-01-01 10:00:00,x\n")
    source = opened(dumps)
    (table,) = source.tables()
    assert table.types == ("bigint", "double", "date", "timestamp_ntz", "string")
    origin = source.current_position(SITE)
    (dumps / "d2.csv").write_text("a,b,c,d,e\n2,2,,,7\n")
    (transaction,) = source.capture(SITE, origin, 1).transactions
    found = transaction.rows[SITE].to_pylist()
    assert [(row["b"], row["e"]) for row in found if row["a"] == 2] == [(2.0, "7")]
    (dumps / "d3.csv").write_text("a,b,c,d,e\nmany,2,,,7\n")
    with pytest.raises(DumpError, match=r"d3\.csv of f\.customer cannot be read: .*'many'"):
        source.capture(SITE, source.capture(SITE, origin, 1).log_position, 1)


@what_if(
    "dumps",
    "column missing, or of another type",
    "stops; it continues after a correct dump replaces this one, or with the new columns after `setup "
    "--reload`",
    "header or schema of the dump",
    under="the table stops",
)
def test_a_column_that_is_missing(dumps: Path) -> None:
    csv(dumps, "d1.csv", "1,a")
    source = opened(dumps)
    (table,) = source.tables()
    origin = source.current_position(SITE)
    (dumps / "d2.csv").write_text("id,label\n1,a\n")
    with pytest.raises(SourceChanged, match=r"dump d2\.csv of f\.customer .*: column name is gone"):
        source.capture(SITE, origin, 10)
    with pytest.raises(SourceChanged, match="column name is gone"):
        source.read({table: ("id",)}, dumps)


@what_if(
    "dumps",
    "column added, or columns in another order",
    "nothing; the new column is not captured",
    under="nothing stops",
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_new_column_stops_nothing(dumps: Path, kind: str) -> None:
    if kind == "csv":
        csv(dumps, "d1.csv", "1,a")
    else:
        parquet(dumps, "d1.parquet", [(1, "a")])
    source = opened(dumps)
    (table,) = source.tables()
    origin = source.current_position(SITE)
    if kind == "csv":
        (dumps / "d2.csv").write_text("extra,id,name\nx,1,a\ny,2,b\n")
    else:
        rows = pa.table({"extra": ["x", "y"], "id": [1, 2], "name": ["a", "b"]})
        pq.write_table(rows, dumps / "d2.parquet")
    for each in (source, opened(dumps)):
        assert changes(each, origin)[0] == {(2, "b"): 1}
        (found,) = each.read({table: table.columns}, dumps).rows
        if isinstance(found, FileScan):
            assert [name for name, _ in found.schema] == ["id", "name", COUNT]
        else:
            assert {(row["id"], row["name"]) for row in found.to_pylist()} == {(1, "a"), (2, "b")}
    csv(dumps, "d3.csv", "2,b")
    assert changes(source, changes(source, origin)[1])[0] == {(1, "a"): -1}


@what_if(
    "dumps",
    "captured dump replaced, for example by an older one",
    "stops at once",
    "size and time of its files",
    under="the table stops",
)
def test_a_dump_replaced_by_an_older_one_is_noticed_at_once(dumps: Path) -> None:
    """Not only when the next dump comes: until then, look-ups would find what nobody has captured."""
    csv(dumps, "d1.csv", "1,a")
    source = opened(dumps)
    (table,) = source.tables()
    origin = source.current_position(SITE)
    csv(dumps, "d2.csv", "1,b")
    found, log_position = changes(source, origin)
    assert found == {(1, "a"): -1, (1, "b"): 1}
    (dumps / "d2.csv").write_bytes((dumps / "d1.csv").read_bytes())
    os.utime(dumps / "d2.csv", (1, 1))
    for each in (source, opened(dumps)):
        with pytest.raises(SourceChanged, match=r"d2\.csv of f\.customer is not the one that was captured"):
            each.capture(SITE, log_position, 10)
        read_point = each.read({table: table.columns}, dumps).read_point
        with pytest.raises(SourceChanged, match="not the one that was captured"):
            each.seen(SITE, read_point, _Marks(log_position, {}))


@what_if(
    "dumps",
    "all dumps removed",
    "look-ups are refused: a folder without dumps is not an empty table",
    under="the table stops",
)
def test_dumps_that_are_all_gone_are_not_an_empty_table(dumps: Path) -> None:
    first = csv(dumps, "d1.csv", "1,a")
    source = opened(dumps)
    (table,) = source.tables()
    origin = source.current_position(SITE)
    first.unlink()
    read_point = source.read({table: table.columns}, dumps).read_point
    with pytest.raises(SourceChanged, match=r"all dumps of f\.customer are gone"):
        source.seen(SITE, read_point, _Marks(origin, {}))


@what_if(
    "dumps",
    "dump changes or vanishes while it is read",
    "the rows read so far are dropped, and the read is retried",
    under="nothing stops",
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_dump_that_vanishes_or_changes_while_it_is_read(
    dumps: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    write = csv if kind == "csv" else lambda dumps, name, line: parquet(dumps, name, [(1, line)])
    write(dumps, f"d1.{kind}", "1,a")
    source = opened(dumps)
    (table,) = source.tables()
    origin = source.current_position(SITE)
    dump = write(dumps, f"d2.{kind}", "1,b")
    (seen,) = (each for each in listed(dumps) if each.name == dump.name)
    monkeypatch.setattr(
        folder, "complete_dumps", lambda path, seconds: [*complete_dumps(path, seconds)[:1], seen]
    )
    dump.unlink()
    with pytest.raises(DumpError, match=rf"dump d2\.{kind} of f\.customer vanished while it was read"):
        opened(dumps).capture(SITE, origin, 10)
    with pytest.raises(DumpError, match="vanished while it was read"):
        opened(dumps).read({table: table.columns}, dumps)
    write(dumps, f"d2.{kind}", "1,longer")
    # Of an object the version that was listed is read, or none.
    reason = "vanished" if isinstance(place_of(dumps), Bucket) else "changed"
    with pytest.raises(DumpError, match=f"{reason} while it was read"):
        opened(dumps).capture(SITE, origin, 10)
    with pytest.raises(DumpError, match=f"{reason} while it was read"):
        opened(dumps).read({table: table.columns}, dumps)


@what_if(
    "dumps",
    "dump cut off or not readable",
    "stops until the dump is replaced",
    under="the table stops",
)
def test_a_parquet_dump_that_was_cut_off(dumps: Path) -> None:
    parquet(dumps, "d1.parquet", [(1, "a")])
    source = opened(dumps)
    begun = source.current_position(SITE)
    whole = parquet(dumps, "d2.parquet", [(2, "b")])
    whole.write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(DumpError, match=r"d2\.parquet of f\.customer cannot be read") as caught:
        source.capture(SITE, begun, 10)
    assert caught.value.hint == "replace the dump with a correct one"


def test_parquet_of_another_type(dumps: Path) -> None:
    parquet(dumps, "d1.parquet", [(1, "a")])
    source = opened(dumps)
    origin = source.current_position(SITE)
    pq.write_table(pa.table({"id": ["1"], "name": ["a"]}), dumps / "d2.parquet")
    with pytest.raises(SourceChanged, match="column id has type string, not bigint"):
        source.capture(SITE, origin, 10)


def test_large_parquet_dumps_are_left_to_spark(dumps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "FEW_ROWS", 1)
    parquet(dumps, "d1.parquet", [(1, "a")])
    source = opened(dumps, **{"key.customer": ["id"]})
    origin = source.current_position(SITE)
    parquet(dumps, "d2.parquet", [(2, "b"), (3, "c")])
    rows = source.capture(SITE, origin, 1).transactions[0].rows[SITE]
    assert isinstance(rows, FileScan)
    signs = {pq.read_metadata(file.path).num_rows: file.constants[COUNT] for file in rows.files}
    assert signs == {1: -1, 2: 1}
    parquet(dumps, "d2.parquet", [(2, "b"), (2, "c")])
    with pytest.raises(DumpError, match="id = 2 occurs 2 times"):
        source.capture(SITE, origin, 1)


def test_delimiter_encoding_and_options(dumps: Path) -> None:
    (dumps / "d1.csv").write_bytes("id;name\n1;größer\n".encode("latin-1"))
    source = opened(dumps, delimiter=";", encoding="latin-1")
    (table,) = source.tables()
    assert source.read({table: ("name",)}, dumps).rows[0].to_pylist() == [{"name": "größer", COUNT: 1}]
    with pytest.raises(OptionError, match="no option delimeter"):
        opened(dumps, delimeter=";")
    with pytest.raises(OptionError, match="`id` is not a column with a type"):
        opened(dumps, **{"schema.customer": "id"}).tables()
    with pytest.raises(OptionError, match="column id: columns of type number"):
        opened(dumps, **{"schema.customer": "id number"}).tables()


def test_a_table_without_a_dump(dumps: Path) -> None:
    assert opened(dumps).tables() == ()
    with pytest.raises(InputError, match="no dump yet"):
        opened(dumps).current_position(SITE)
    source = opened(dumps, **{"schema.customer": "id bigint, name string, amount decimal(15, 2)"})
    (table,) = source.tables()
    assert table.types == ("bigint", "string", "decimal(15,2)")
    found = source.read({table: table.columns}, dumps)
    assert found.rows[0].num_rows == 0
    assert source.seen(SITE, found.read_point, _Marks(source.current_position(SITE), {})) == Seen(0)


@what_if(
    "dumps",
    "a dump under a name before the last one",
    "never looked at",
    under="nothing stops",
)
def test_a_dump_under_a_name_before_the_last_one_is_not_looked_at(dumps: Path) -> None:
    csv(dumps, "d5.csv", "1,a")
    source = opened(dumps)
    origin = source.current_position(SITE)
    csv(dumps, "d4.csv", "2,b")
    assert source.capture(SITE, origin, 10).transactions == ()
    csv(dumps, "d6.csv", "1,a", "3,c")
    assert changes(source, origin)[0] == {(3, "c"): 1}


def test_read_points_of_dumps_that_were_never_captured(dumps: Path) -> None:
    csv(dumps, "d5.csv", "1,a")
    source = opened(dumps)
    (table,) = source.tables()
    origin = source.current_position(SITE)
    early = csv(dumps, "d4.csv", "1,x")
    (dumps / "d5.csv").rename(dumps / "d5.tmp")
    read_point = source.read({table: table.columns}, dumps).read_point
    with pytest.raises(SourceChanged, match=r"d4\.csv of f\.customer was read, but"):
        source.seen(SITE, read_point, _Marks(origin, {}))
    early.unlink()
    (dumps / "d5.tmp").rename(dumps / "d5.csv")
    csv(dumps, "d5.csv", "1,rewritten")
    read_point = source.read({table: table.columns}, dumps).read_point
    with pytest.raises(SourceChanged, match="not the one that was captured"):
        source.seen(SITE, read_point, _Marks(origin, {}))


class _Marks:
    def __init__(self, log_position: str, known: dict[int, int]) -> None:
        self.log_position = log_position
        self._known = known

    def latest(self, source_txid: int) -> int:
        return self._known.get(source_txid, 0)

    def versions(self, source_txids: Sequence[int]) -> dict[int, int]:
        return {
            source_txid: self._known[source_txid]
            for source_txid in source_txids
            if source_txid in self._known
        }

    def since(self, source_txid: int) -> dict[int, int]:
        return {each: version for each, version in self._known.items() if each >= source_txid}


values = st.tuples(
    st.none() | st.integers(0, 2),
    st.sampled_from([None, "", "a"]),
    st.sampled_from([None, 0.5, float("nan"), float("inf")]),
)
_NAN = object()


def _named(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_NAN if value != value else value for value in row)  # noqa: PLR0124 - NaN is what differs


@given(st.lists(values, max_size=8), st.lists(values, max_size=8))
def test_oracle_differential(before: list[Any], after: list[Any]) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])

    def table(rows: list[Any]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip("abc", row, strict=True)) for row in rows], schema)

    expected = Counter(map(_named, after))
    expected.subtract(Counter(map(_named, before)))
    found = differential(table(before), table(after))
    assert found.schema == schema.append(pa.field(COUNT, pa.int64()))
    got = {_named((row["a"], row["b"], row["c"])): row[COUNT] for row in found.to_pylist()}
    assert len(got) == found.num_rows
    assert got == {row: count for row, count in expected.items() if count}

"""Whole tables: large ones come in files, from several connections, as one state."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg
import pytest
from postgres_history import Database, History, add, bag, net, table_named

from rollview.errors import NotSetUp
from rollview.rows import FileScan, arrow_schema
from rollview.sources.postgres.address import address_of
from rollview.sources.postgres.read import load as load_module
from rollview.sources.postgres.read.load import chunks

pytestmark = pytest.mark.slow


def fill(database: Database, rows: int) -> None:
    database.execute(
        "CREATE TABLE item (id int PRIMARY KEY, text text)",
        "CREATE TABLE other (id int)",
        f"INSERT INTO item SELECT i, repeat('x', i % 50) FROM generate_series(1, {rows}) AS i",
        "INSERT INTO other VALUES (1), (1), (NULL)",
    )


def test_tables_of_one_reading_are_of_one_state(database: Database, tmp_path: Path) -> None:
    fill(database, 100)
    source, history = database.ready()
    item, other = table_named(source, "item"), table_named(source, "other")
    found = source.read({item: ("text",), other: ("id",)}, tmp_path)
    assert sum(bag(found.rows[0]).values()) == 100 and bag(found.rows[1]) == {(1,): 2, (None,): 1}
    assert found.rows[0].schema == arrow_schema((("text", "string"), ("_count", "bigint")))
    assert history.seen(found.read_point).upto == 0
    # No column at all is still a number of rows.
    assert bag(source.read({other: ()}, tmp_path).rows[0]) == {(): 3}
    database.execute("DELETE FROM other")
    assert source.read({other: ("id",)}, tmp_path).rows[0].num_rows == 0


def test_oracle_large_tables_come_in_files_while_writers_write(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_module, "LARGE_BYTES", 100_000)
    monkeypatch.setattr(load_module, "_PART_BYTES", 60_000)
    fill(database, 5000)
    source, _ = database.ready()
    item = table_named(source, "item")
    history = History(source)
    initial = bag(source.read({item: item.columns}, tmp_path).rows[0])

    one_at_a_time = threading.Lock()

    def write_between(*arguments: object) -> object:
        """Rows move to other pages after the snapshot was taken and before they are read."""
        with one_at_a_time, psycopg.connect(database.dsn, autocommit=True) as connection:
            connection.execute("UPDATE item SET text = text || '!' WHERE id % 3 = 0")
            connection.execute("DELETE FROM item WHERE id = (SELECT min(id) FROM item)")
        return chunks(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(load_module, "chunks", write_between)
    for _ in range(3):
        found = source.read({item: item.columns}, tmp_path)
        assert isinstance(found.rows[0], FileScan) and len(found.rows[0].files) > 2
        expected = history.changes("item", history.seen(found.read_point))
        add(expected, initial)
        assert bag(found.rows[0]) == net(expected)


def test_texts_longer_than_a_chunk_and_rows_cut_anywhere(database: Database) -> None:
    database.execute("CREATE TABLE item (id int, text text)")
    database.execute("INSERT INTO item SELECT i, repeat(E'a\n\"', i * 100) FROM generate_series(1, 40) AS i")
    source, _ = database.ready()
    table = table_named(source, "item")
    found = source.read({table: table.columns}, Path("unused")).rows[0]
    assert {row: len(text) for row, text in bag(found)} == {i: i * 300 for i in range(1, 41)}
    with psycopg.connect(database.dsn) as connection:
        from rollview.sources.postgres.structure import structures

        columns = structures(connection, address_of("s", database.dsn, {}))["item"].columns
        query = "SELECT id, text FROM item ORDER BY id"
        whole = list(chunks(connection, query, columns, "s.item", 5000))
    assert len(whole) > 5 and sum(part.num_rows for part in whole) == 40


def test_only_captured_tables_can_be_read(database: Database) -> None:
    fill(database, 1)
    source, _ = database.ready("item")
    with pytest.raises(NotSetUp, match=r"s\.other"):
        source.read({table_named(source, "other"): ("id",)}, Path("unused"))

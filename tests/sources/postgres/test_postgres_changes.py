"""Everything that can happen to rows, as capture reports it."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from postgres_history import Database, History, bag, read, table_named

from pages.what_if import what_if
from rollview.algebra.history import Seen
from rollview.errors import SourceChanged
from rollview.sources.changed_rows import SPILL_ROWS
from rollview.sources.source import Comparison, Lookup

pytestmark = pytest.mark.slow

LARGE = "x" * 30 + "0123456789" * 2000


def item(database: Database, *rows: str) -> None:
    database.execute("CREATE TABLE item (id int PRIMARY KEY, size int, text text)")
    if rows:
        database.execute(f"INSERT INTO item VALUES {', '.join(rows)}")


def captured_rows(history: History, table: str = "item") -> list[Counter[tuple[object, ...]]]:
    return [bag(each.rows[f"s.{table}"]) for each in history.capture() if f"s.{table}" in each.rows]


def test_inserts_updates_and_deletes_have_complete_old_rows(database: Database) -> None:
    item(database, "(1, 10, 'a')", "(2, NULL, NULL)")
    _, history = database.ready()
    database.execute(
        "INSERT INTO item VALUES (3, 30, '')",
        "UPDATE item SET size = 11 WHERE id = 1",
        "UPDATE item SET id = 9 WHERE id = 2",
        "DELETE FROM item WHERE id = 9",
    )
    assert captured_rows(history) == [
        {(3, 30, ""): 1},
        {(1, 10, "a"): -1, (1, 11, "a"): 1},
        {(2, None, None): -1, (9, None, None): 1},
        {(9, None, None): -1},
    ]


def test_equal_rows_of_a_table_without_a_key(database: Database) -> None:
    """Of two equal rows one is updated, and one deleted."""
    database.execute("CREATE TABLE item (size int, text text)")
    database.execute("INSERT INTO item VALUES (1, 'a'), (1, 'a'), (1, 'a'), (NULL, NULL)")
    source, history = database.ready()
    assert table_named(source, "item").key == ()
    database.execute(
        "UPDATE item SET size = 2 WHERE ctid = (SELECT min(ctid) FROM item)",
        "DELETE FROM item WHERE ctid = (SELECT min(ctid) FROM item WHERE size = 1)",
        "UPDATE item SET size = size",
        "BEGIN",
        "INSERT INTO item VALUES (2, 'a'), (2, 'a')",
        "DELETE FROM item WHERE ctid = (SELECT max(ctid) FROM item WHERE size = 2)",
        "COMMIT",
    )
    assert captured_rows(history) == [{(1, "a"): -1, (2, "a"): 1}, {(1, "a"): -1}, {}, {(2, "a"): 1}]
    there = Counter([(1, "a"), (2, "a"), (2, "a"), (None, None)])
    assert bag(read(source, "item").rows[0]) == there == Counter(database.rows("SELECT * FROM item"))


def test_a_large_value_that_did_not_change_is_filled_in(database: Database) -> None:
    """PostgreSQL keeps large values apart and does not log them again: the old row has it."""
    item(database)
    database.execute("ALTER TABLE item ALTER text SET STORAGE EXTERNAL")
    _, history = database.ready()
    database.execute(f"INSERT INTO item VALUES (1, 1, '{LARGE}')", "UPDATE item SET size = 2")
    database.execute(f"UPDATE item SET text = '{LARGE}!', id = 2", "DELETE FROM item")
    assert captured_rows(history) == [
        {(1, 1, LARGE): 1},
        {(1, 1, LARGE): -1, (1, 2, LARGE): 1},
        {(1, 2, LARGE): -1, (2, 2, LARGE + "!"): 1},
        {(2, 2, LARGE + "!"): -1},
    ]


def test_what_was_rolled_back_did_not_happen(database: Database) -> None:
    item(database)
    _, history = database.ready()
    database.execute("BEGIN", "INSERT INTO item VALUES (1, 1, 'gone')", "ROLLBACK")
    database.execute(
        "BEGIN",
        "INSERT INTO item VALUES (2, 2, 'kept')",
        "SAVEPOINT one",
        "INSERT INTO item VALUES (3, 3, 'gone')",
        "ROLLBACK TO one",
        "SAVEPOINT two",
        "INSERT INTO item VALUES (4, 4, 'kept')",
        "RELEASE two",
        "COMMIT",
    )
    assert captured_rows(history) == [{(2, 2, "kept"): 1, (4, 4, "kept"): 1}]


def test_transactions_come_with_their_id_and_time_in_order_of_commit(database: Database) -> None:
    item(database)
    source, history = database.ready()
    other = database.connect()
    began = time.time()
    database.execute("BEGIN", "INSERT INTO item VALUES (1, 1, 'first to begin')")
    ((source_txid,),) = database.rows("SELECT pg_current_xact_id()::text::bigint")
    other.execute("INSERT INTO item VALUES (2, 2, 'first to commit')")
    database.execute("COMMIT")
    second, first = sorted(history.capture(), key=lambda each: each.source_txid)
    assert second.source_txid == source_txid and second.transaction_id == str(source_txid)
    assert history.transactions == [first, second]
    assert began - 1 < first.commit_time <= second.commit_time < time.time() + 1
    assert second.log_position and first.log_position != second.log_position
    # Each log position leads to what comes behind it.
    again = History(source, first.log_position)
    assert [each.source_txid for each in again.capture()] == [source_txid]


def test_nothing_new_is_known_at_once_and_moves_nothing(database: Database) -> None:
    item(database)
    database.execute("CREATE TABLE other (id int)")
    source, history = database.ready("item")
    database.execute("INSERT INTO other VALUES (1)")
    history.capture()
    for _ in range(3):
        began = time.monotonic()
        assert source.capture("s", history.log_position, 10).transactions == ()
        assert time.monotonic() - began < 0.5


def test_transactions_of_other_tables_are_passed_over(database: Database) -> None:
    item(database)
    database.execute("CREATE TABLE other (id int)")
    source, history = database.ready("item")
    for number in range(20):
        database.execute(f"INSERT INTO other VALUES ({number})")
    # A marker lies behind them, and so does what has been captured.
    read_point = read(source, "item").read_point
    assert history.seen(read_point) == Seen(0)
    assert history.transactions == []


def test_one_transaction_over_several_tables_is_one(database: Database) -> None:
    item(database)
    database.execute('CREATE TABLE "Strange ""name" (id int, "a b" text, "Größe" int)')
    _, history = database.ready()
    database.execute(
        "BEGIN",
        "INSERT INTO item VALUES (1, 1, 'a')",
        """INSERT INTO "Strange ""name" VALUES (7, 'b', 8)""",
        "COMMIT",
    )
    (only,) = history.capture()
    assert {name: bag(rows) for name, rows in only.rows.items()} == {
        "s.item": {(1, 1, "a"): 1},
        's.Strange "name': {(7, "b", 8): 1},
    }


def test_truncate_is_a_loss_of_that_table_and_all_else_continues(database: Database) -> None:
    item(database, "(1, 1, 'a')")
    database.execute("CREATE TABLE other (id int)")
    _, history = database.ready()
    database.execute("INSERT INTO item VALUES (2, 2, 'b')")
    database.execute(
        "BEGIN",
        "INSERT INTO item VALUES (3, 3, 'c')",
        "INSERT INTO other VALUES (1)",
        "TRUNCATE item",
        "INSERT INTO item VALUES (4, 4, 'd')",
        "COMMIT",
    )
    database.execute("TRUNCATE item", "INSERT INTO other VALUES (2)", "INSERT INTO item VALUES (5, 5, 'e')")
    before, both, alone, other, after = history.capture()
    assert history.lost == {} and before.lost == other.lost == after.lost == {}
    assert bag(before.rows["s.item"]) == {(2, 2, "b"): 1} and bag(after.rows["s.item"]) == {(5, 5, "e"): 1}
    for each in (both, alone):
        assert each.lost["s.item"].message == "table s.item was truncated" and "s.item" not in each.rows
        assert each.lost["s.item"].is_truncate and each.lost["s.item"].leaves_empty is (each is alone)
        assert "`rollview setup`" in each.lost["s.item"].hint
    assert bag(both.rows["s.other"]) == {(1,): 1} and bag(other.rows["s.other"]) == {(2,): 1}


def test_truncate_says_whether_the_table_is_empty_behind_its_transaction(database: Database) -> None:
    item(database, "(1, 1, 'a')")
    database.execute("CREATE TABLE other (id int)", "CREATE TABLE below (id int PRIMARY KEY)")
    database.execute("CREATE TABLE child (id int REFERENCES below)", "INSERT INTO below VALUES (1)")
    _, history = database.ready()
    new = "INSERT INTO item VALUES (2, 2, 'b')"
    database.execute("BEGIN", new, "TRUNCATE item", "COMMIT")
    database.execute("BEGIN", "TRUNCATE item", new, "UPDATE item SET size = 7", "TRUNCATE item", "COMMIT")
    database.execute("BEGIN", "TRUNCATE item", "SAVEPOINT a", new, "ROLLBACK TO a", "COMMIT")
    database.execute("BEGIN", "SAVEPOINT a", "TRUNCATE item", "ROLLBACK TO a", new, "COMMIT")
    database.execute("BEGIN", "TRUNCATE item", new, "DELETE FROM item", "COMMIT")
    database.execute("BEGIN", "TRUNCATE other, item", new, "COMMIT")
    database.execute("TRUNCATE below CASCADE")
    found = [{name: loss.leaves_empty for name, loss in each.lost.items()} for each in history.capture()]
    # In doubt it is not: what was inserted and deleted again is not added up.
    assert found == [
        {"s.item": True},
        {"s.item": True},
        {"s.item": True},
        {},
        {"s.item": False},
        {"s.other": True, "s.item": False},
        {"s.below": True, "s.child": True},
    ]


def test_a_truncate_that_was_rolled_back_does_no_harm(database: Database) -> None:
    item(database, "(1, 1, 'a')")
    _, history = database.ready()
    database.execute("BEGIN", "TRUNCATE item", "ROLLBACK", "DELETE FROM item")
    assert captured_rows(history) == [{(1, 1, "a"): -1}]


def test_a_new_column_does_no_harm(database: Database) -> None:
    item(database, "(1, 1, 'a')")
    source, history = database.ready()
    database.execute("ALTER TABLE item ADD COLUMN more int DEFAULT 7", "UPDATE item SET size = 2, more = 8")
    assert captured_rows(history) == [{(1, 1, "a"): -1, (1, 2, "a"): 1}]
    table = next(each for each in source.tables())
    assert table.columns == ("id", "size", "text", "more")
    rows = source.read({table: ("id", "size", "text")}, Path("unused")).rows[0]
    assert bag(rows) == {(1, 2, "a"): 1}


@what_if(
    "PostgreSQL",
    "a column is dropped, renamed, created again, or has another type",
    "noticed by the column's row in the catalog, or in the log. That holds for integers that become wider, "
    "too: the server rewrites the table, and the log does not say whether a `USING` clause gave it other "
    "values",
    under="the views that use the column stop; `rollview setup`, after their files are edited "
    "if need be, reloads them",
)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("ALTER TABLE item DROP COLUMN size", "column size of table s.item was dropped or renamed"),
        ("ALTER TABLE item ALTER size TYPE bigint", "column size of table s.item has another type"),
        ("ALTER TABLE item RENAME size TO width", "column size of table s.item was dropped or renamed"),
    ],
)
def test_a_column_that_is_not_what_it_was_is_lost_and_the_others_continue(
    database: Database, change: str, reason: str
) -> None:
    item(database, "(1, 1, 'a')")
    source, history = database.ready()
    database.execute("INSERT INTO item VALUES (2, 2, 'b')", change, "UPDATE item SET text = 'c' WHERE id = 1")
    first, second = history.capture()
    assert bag(first.rows["s.item"]) == {(2, 2, "b"): 1} and first.lost == {}
    assert bag(second.rows["s.item"]) == {(1, None, "a"): -1, (1, None, "c"): 1}
    for lost in (second.lost, history.lost):
        assert reason in lost["s.item"].message and lost["s.item"].columns == ("size",)
    table = table_named(source, "item")
    with pytest.raises(SourceChanged, match=reason) as caught:
        source.read({table: ("id", "size")}, Path("unused"))
    assert caught.value.subject == "s.item" and "`rollview setup`" in caught.value.hint
    whole = source.read({table: ("id", "text")}, Path("unused")).rows[0]
    assert bag(whole) == {(1, "c"): 1, (2, "b"): 1}


def test_a_look_up_by_a_column_that_is_not_what_it_was_is_refused(database: Database) -> None:
    item(database, "(1, 1, 'a')")
    source, _ = database.ready()
    table = table_named(source, "item")
    database.execute("ALTER TABLE item ALTER size TYPE bigint USING size + 1")
    keys = pa.table({"size": pa.array([1], pa.int32())})
    by_key = Lookup(table, ("id",), keys=keys)
    by_condition = Lookup(table, ("id",), conditions=(Comparison("size", "=", (1,)),))
    by_parent = Lookup(table, ("id",), parent=0, on=(("id", "size"),))
    for plan in ([by_key], [by_condition], [Lookup(table, ("id",)), by_parent]):
        with pytest.raises(SourceChanged, match="another type"):
            source.lookup(plan)
    assert bag(source.lookup([Lookup(table, ("id", "text"))]).rows[0]) == {(1, "a"): 1}


def test_old_rows_that_are_not_in_the_log_are_a_loss_of_that_table(database: Database) -> None:
    item(database, "(1, 1, 'a')")
    database.execute("CREATE TABLE other (id int)")
    source, history = database.ready()
    database.execute("INSERT INTO item VALUES (2, 2, 'b')", "ALTER TABLE item REPLICA IDENTITY DEFAULT")
    database.execute("BEGIN", "UPDATE item SET text = 'c'", "INSERT INTO other VALUES (1)", "COMMIT")
    first, second = history.capture()
    assert bag(first.rows["s.item"]) == {(2, 2, "b"): 1} and first.lost == {}
    assert set(second.rows) == {"s.other"}
    for lost in (second.lost, history.lost):
        assert "REPLICA IDENTITY FULL" in lost["s.item"].message and lost["s.item"].columns == ()
    with pytest.raises(SourceChanged, match="REPLICA IDENTITY FULL"):
        read(source, "item")
    assert bag(read(source, "other").rows[0]) == {(1,): 1}


def test_a_recreated_column_is_noticed_although_the_log_says_nothing(database: Database) -> None:
    item(database, "(1, 1, 'a')")
    source, _ = database.ready()
    database.execute("ALTER TABLE item DROP COLUMN size", "ALTER TABLE item ADD COLUMN size int DEFAULT 5")
    with pytest.raises(SourceChanged, match="size"):
        read(source, "item")


def test_a_recreated_table_is_noticed(database: Database) -> None:
    item(database, "(1, 1, 'a')")
    source, _ = database.ready()
    database.execute("DROP TABLE item")
    item(database)
    with pytest.raises(SourceChanged, match="was dropped"):
        read(source, "item")


@what_if(
    "PostgreSQL",
    "a value that Spark cannot represent, such as the date `infinity`",
    "noticed at its transaction. Once the value is changed, the views continue automatically",
    under="the views of that table stop; `rollview setup` reloads them",
)
def test_a_large_transaction_with_a_value_without_an_equal_is_lost_alone(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollview.sources.changed_rows.SPILL_ROWS", 10)
    database.execute("CREATE TABLE day (id int, day date)", "CREATE TABLE other (id int)")
    _, history = database.ready()
    fill = "INSERT INTO day SELECT i, CASE i WHEN {} THEN date 'infinity' ELSE '2024-01-01' END"
    database.execute("BEGIN", "INSERT INTO other SELECT generate_series(1, 30)")
    database.execute(f"{fill.format(55)} FROM generate_series(1, 100) i", "COMMIT")
    database.execute(f"{fill.format(0)} FROM generate_series(1, 30) i")
    bad, good = history.capture()
    assert "infinity" in bad.lost["s.day"].message and set(bad.rows) == {"s.other"} and good.lost == {}
    assert sum(bag(bad.rows["s.other"]).values()) == sum(bag(good.rows["s.day"]).values()) == 30
    left = [Path(file.path) for each in (bad.rows["s.other"], good.rows["s.day"]) for file in each.files]
    assert sorted(left[0].parent.iterdir()) == sorted(left)


def test_a_large_transaction_is_in_files_until_it_is_forgotten(database: Database) -> None:
    item(database)
    source, history = database.ready()
    count = SPILL_ROWS + 1000
    database.execute(f"INSERT INTO item SELECT i, i % 7, 'text ' || i FROM generate_series(1, {count}) AS i")
    database.execute("INSERT INTO item VALUES (0, 0, 'small')")
    large, small = history.capture(limit=1)
    files = [Path(file.path) for file in large.rows["s.item"].files]
    assert len(files) == 2 and all(file.exists() for file in files)
    assert sum(bag(large.rows["s.item"]).values()) == count
    again = source.replay("s", history.log_position_before(large), [large.source_txid], large.log_position)
    assert bag(again.transactions[0].rows["s.item"]) == bag(large.rows["s.item"])
    source.acknowledge("s", large.log_position)
    assert not any(file.exists() for file in files)
    assert bag(small.rows["s.item"]) == {(0, 0, "small"): 1}

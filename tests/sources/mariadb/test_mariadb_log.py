"""What the binary log shows, and what it hides: boundaries, files, statements, forms of rows."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing

import pytest
from mariadb_database import Database, History, counted

from pages.what_if import what_if
from rollview.errors import LogLost, NotSetUp, RollviewError
from servers.mariadb import MariaDBServer

pytestmark = pytest.mark.slow


@pytest.fixture
def table(database: Database) -> Database:
    """A database with one captured table and another one."""
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), n INT, UNIQUE KEY u (n))",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "CREATE TABLE plain (id INT) ENGINE = MyISAM",
        "INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2)",
    )
    database.setup("t")
    return database


def test_updates_of_keys_and_unchanged_values_come_with_both_images(table: Database) -> None:
    history = History(table.source)
    table.execute("UPDATE t SET id = id + 10", "UPDATE t SET v = v", "REPLACE INTO t VALUES (11, 'x', 2)")
    table.execute("INSERT INTO t VALUES (11, 'y', 9) ON DUPLICATE KEY UPDATE v = 'z'", "DELETE FROM t")
    history.capture()
    first, second, third, fourth = history.changes("t")
    assert first == Counter({(1, "one", 1): -1, (2, "two", 2): -1, (11, "one", 1): 1, (12, "two", 2): 1})
    assert second == Counter({(11, "one", 1): -1, (12, "two", 2): -1, (11, "x", 2): 1})
    assert third == Counter({(11, "x", 2): -1, (11, "z", 2): 1})
    assert fourth == Counter({(11, "z", 2): -1})


def test_rolled_back_work_and_other_tables_leave_no_transaction_but_move_the_log_position(
    table: Database,
) -> None:
    history = History(table.source)
    with closing(table.connect(autocommit=False)) as writer:
        for statement in ("INSERT INTO t VALUES (5, 'a', 5)", "INSERT INTO plain VALUES (1)"):
            writer.query(statement)
        writer.rollback()
        writer.query("INSERT INTO other VALUES (1)")
        writer.commit()
    before = history.log_position
    assert history.capture() == []
    assert history.log_position != before
    assert table.source.capture("s", history.log_position, 10).log_position == history.log_position


@pytest.mark.parametrize("xid", ["", "'x'"])
def test_savepoints_also_where_tables_without_transactions_take_part(table: Database, xid: str) -> None:
    history = History(table.source)
    with closing(table.connect(autocommit=False)) as writer:
        writer.query(f"XA START {xid}" if xid else "BEGIN")
        for statement in (
            "INSERT INTO t VALUES (5, 'kept', 5)",
            "SAVEPOINT `a b`",
            "UPDATE t SET v = 'undone' WHERE id = 5",
            "SAVEPOINT inner_one",
            "INSERT INTO t VALUES (6, 'undone', 6)",
            "INSERT INTO plain VALUES (1)",
            "ROLLBACK TO SAVEPOINT inner_one",
            "INSERT INTO t VALUES (8, 'undone', 8)",
            "ROLLBACK TO SAVEPOINT `a b`",
            "INSERT INTO t VALUES (7, 'kept', 7)",
        ):
            writer.query(statement)
        if xid:
            for verb in ("END", "PREPARE", "COMMIT"):
                writer.query(f"XA {verb} {xid}")
        writer.commit()
    (transaction,) = history.capture()
    assert counted(transaction.rows["s.t"]) == Counter([(5, "kept", 5), (7, "kept", 7)])


@pytest.mark.parametrize(
    ("savepoint", "back"), [("a", "a"), ("`a b`", "`A B`"), ("`é`", "E"), ("`x``y`", "`x``y`")]
)
@pytest.mark.parametrize("xid", ["", "'x'"])
def test_savepoints_behind_a_temporary_table(table: Database, savepoint: str, back: str, xid: str) -> None:
    """The log keeps what was taken back, and calls the group transactional all the same."""
    history = History(table.source)
    with closing(table.connect(autocommit=False)) as writer:
        writer.query(f"XA START {xid}" if xid else "BEGIN")
        for statement in (
            "INSERT INTO t VALUES (5, 'kept', 5)",
            "SAVEPOINT other",
            "UPDATE t SET v = 'also' WHERE id = 5",
            f"SAVEPOINT {savepoint}",
            "INSERT INTO t VALUES (6, 'undone', 6)",
            *([] if xid else ["CREATE TEMPORARY TABLE copied (id INT)"]),
            f"ROLLBACK TO SAVEPOINT {back}",
            "INSERT INTO t VALUES (7, 'kept', 7)",
        ):
            writer.query(statement)
        if xid:
            for verb in ("END", "PREPARE", "COMMIT"):
                writer.query(f"XA {verb} {xid}")
        writer.commit()
    (transaction,) = history.capture()
    assert not transaction.lost
    assert counted(transaction.rows["s.t"]) == Counter([(5, "also", 5), (7, "kept", 7)])


def test_more_rows_than_can_be_taken_back_lose_the_table(
    table: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollview.sources.mariadb.binlog.transactions._MOST_REMEMBERED", 10)
    history = History(table.source)
    with closing(table.connect(autocommit=False)) as writer:
        for statement in (
            "SAVEPOINT before_many",
            "INSERT INTO t SELECT seq, 'x', seq FROM seq_20_to_40",
            "SAVEPOINT a",
            "CREATE TEMPORARY TABLE copied (id INT)",
            "INSERT INTO t SELECT seq, 'x', seq FROM seq_50_to_70",
            "ROLLBACK TO a",
        ):
            writer.query(statement)
        writer.commit()
    (transaction,) = history.capture()
    assert "savepoint" in transaction.lost["s.t"].message and not transaction.rows


def test_files_change_in_mid_stream(table: Database) -> None:
    history = History(table.source)
    for number in range(10, 20):
        table.execute(f"INSERT INTO t VALUES ({number}, 'x', {number})", "FLUSH BINARY LOGS")
        if number % 3 == 0:
            history.capture()
    history.capture()
    assert [list(change) for change in history.changes("t")] == [[(n, "x", n)] for n in range(10, 20)]
    assert [each.source_txid for each in history.transactions] == sorted(
        {each.source_txid for each in history.transactions}
    )


@what_if(
    "MariaDB",
    "the log was purged before it was captured",
    "the source's views stop; `rollview setup --reload store`",
    "log",
    under="all views of the source stop",
)
def test_a_purged_log_is_an_error_with_the_way_out(table: Database) -> None:
    history = History(table.source)
    old = history.log_position.partition(":")[0]
    table.source.close()
    # A server does not delete what one of its threads reads; that a reader has gone it sees when it writes.
    while old in [file for file, *_ in table.execute("SHOW BINARY LOGS")]:
        table.execute("INSERT INTO other SELECT MAX(id) + 1 FROM t", "DELETE FROM other", "FLUSH BINARY LOGS")
        table.execute(f"PURGE BINARY LOGS TO '{table.execute('SHOW MASTER STATUS')[0][0]}'")
    with pytest.raises(LogLost, match="`rollview setup --reload s`"):
        history.capture()


@what_if(
    "MariaDB",
    "`RESET MASTER`",
    "the source's views stop; `rollview setup --reload store`",
    "log, read points",
    under="all views of the source stop",
)
def test_a_reset_log_is_not_taken_for_the_old_one() -> None:
    server = MariaDBServer().start()
    database = Database(server, "reset")
    try:
        database.execute("CREATE TABLE t (id INT)")
        database.setup()
        history = History(database.source)
        database.source.close()
        # Files are identified by the second in which they were begun.
        time.sleep(1.1)
        database.execute("RESET MASTER")
        # The file has its old name again, and soon reaches the old place.
        with closing(database.connect()) as writer:
            for _ in range(30):
                writer.query("INSERT INTO t VALUES (1)")
        with pytest.raises(LogLost, match="not the file that was captured"):
            history.capture()
    finally:
        database.close()
        server.close()


def test_truncate_is_a_loss_at_its_transaction(table: Database) -> None:
    table.setup("t", "other")
    history = History(table.source)
    before = history.log_position
    table.execute("INSERT INTO t VALUES (5, 'x', 5)", "TRUNCATE TABLE t", "INSERT INTO other VALUES (1)")
    first, second, third = history.capture()
    assert not first.lost and list(first.rows) == ["s.t"]
    loss = second.lost["s.t"]
    assert "s.t: it was emptied without logging its rows: TRUNCATE TABLE t" in loss.message
    assert "`rollview setup`" in loss.hint and not second.rows
    assert loss.is_truncate and loss.leaves_empty
    assert list(third.rows) == ["s.other"] and not third.lost
    again = table.source.replay(
        "s", before, [each.source_txid for each in history.transactions], history.log_position
    )
    assert [each.lost for each in again.transactions] == [first.lost, second.lost, third.lost]
    assert history.capture() == [] and not history.noticed
    # A new beginning lies behind it.
    assert History(table.source).capture() == []


@what_if(
    "MariaDB",
    "the database is dropped",
    "the source's views stop; `rollview setup`",
    "look",
    under="all views of the source stop",
)
def test_dropping_the_database_stops_capture(table: Database) -> None:
    history = History(table.source)
    table.server.create_database(table.name)
    with pytest.raises(NotSetUp):
        history.capture()


def test_what_leaves_the_rows_alone_does_not_stop_capture(table: Database) -> None:
    history = History(table.source)
    for statement in (
        "ALTER TABLE t ADD INDEX by_v (v), COMMENT = 'a, b', ALGORITHM = INPLACE",
        "ALTER TABLE t DROP INDEX by_v",
        "CREATE INDEX again ON t (v)",
        "DROP INDEX again ON t",
        "ALTER TABLE t FORCE",
        "OPTIMIZE TABLE t",
        "ANALYZE TABLE t",
        "CREATE TABLE child (id INT, FOREIGN KEY (id) REFERENCES t (id))",
        "ALTER TABLE other ADD COLUMN t INT",
        "DROP TABLE child, other",
        "CREATE VIEW w AS SELECT * FROM t",
        "CREATE TRIGGER g AFTER INSERT ON t FOR EACH ROW SET @last = NEW.id",
        "CREATE TEMPORARY TABLE t2 (id INT)",
        "CREATE TABLE copy AS SELECT * FROM t",
        "DROP TABLE copy",
    ):
        table.execute(statement)
    table.execute("INSERT INTO t VALUES (5, 'x', 5)")
    (transaction,) = history.capture()
    assert counted(transaction.rows["s.t"]) == Counter([(5, "x", 5)])


@what_if(
    "MariaDB",
    "`log_bin_compress`",
    "nothing",
    under="nothing stops",
)
def test_a_compressed_log_is_read_as_any_other(table: Database) -> None:
    history = History(table.source)
    table.execute("SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10")
    try:
        values = ", ".join(f"({number}, REPEAT('x', 19), {number})" for number in range(10, 200))
        table.execute(f"INSERT INTO t VALUES {values}", "UPDATE t SET v = 'z' WHERE id > 2", "DELETE FROM t")
    finally:
        table.execute("SET GLOBAL log_bin_compress = OFF")
    inserted, updated, deleted = (counted(each.rows["s.t"]) for each in history.capture())
    rows = Counter((number, "x" * 19, number) for number in range(10, 200))
    after = Counter((number, "z", number) for number in range(10, 200))
    assert inserted == rows
    assert updated == Counter({**dict.fromkeys(rows, -1), **dict.fromkeys(after, 1)})
    assert deleted == Counter({**dict.fromkeys(after, -1), (1, "one", 1): -1, (2, "two", 2): -1})


@what_if(
    "MariaDB",
    "another project's `setup` takes a table out of capture",
    "lost",
    "log",
    under="the table is lost",
)
def test_a_table_that_is_added_later_is_captured_from_then_on_by_a_process_that_continues(
    table: Database,
) -> None:
    history = History(table.source)
    with closing(table.open()) as administrator:
        table.execute("INSERT INTO t VALUES (5, 'x', 5)", "INSERT INTO other VALUES (1)")
        both = [each for each in administrator.tables() if each.name in ("t", "other")]
        assert administrator.setup(both).done == ("table other is captured from the binary log",)
        table.execute("INSERT INTO other VALUES (2)", "INSERT INTO t VALUES (6, 'x', 6)")
        history.capture()
        assert [list(each.rows) for each in history.transactions] == [["s.t"], ["s.other"], ["s.t"]]
        administrator.setup(both[:1])
        table.execute("INSERT INTO other VALUES (3)", "INSERT INTO t VALUES (7, 'x', 7)")
        released, inserted = history.capture()
        # To a project that did not let it go this is a loss.
        assert "taken out of capture" in released.lost["s.t"].message
        assert list(inserted.rows) == ["s.other"]


def test_a_large_transaction_goes_to_files_and_they_go_with_it(table: Database) -> None:
    history = History(table.source)
    table.execute(
        "INSERT INTO t SELECT seq + 100, CONCAT('v', seq), seq + 100 FROM seq_1_to_450000",
        "INSERT INTO t VALUES (50, 'x', 50)",
    )
    large, small = history.capture()
    rows = large.rows["s.t"]
    assert len(rows.files) == 3  # type: ignore[union-attr]
    counts = counted(rows)
    assert len(counts) == 450_000 and counts[450_100, "v450000", 450_100] == 1
    assert counted(small.rows["s.t"]) == Counter([(50, "x", 50)])
    table.source.acknowledge("s", history.log_position)
    with pytest.raises(FileNotFoundError):
        counted(rows)


def test_without_setup_nothing_is_captured(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT)")
    log_position = database.source.current_position("s")
    with pytest.raises(NotSetUp, match="rollview setup"):
        database.source.capture("s", log_position, 10)
    with pytest.raises(NotSetUp, match="rollview setup"):
        database.read("t")


def test_a_log_position_of_something_else_is_refused(table: Database) -> None:
    with pytest.raises(RollviewError, match="not a valid binary log position"):
        table.source.capture("s", "17", 10)
    with pytest.raises(RollviewError, match="no site"):
        table.source.capture("t", "17", 10)

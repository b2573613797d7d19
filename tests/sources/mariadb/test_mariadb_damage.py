"""Acts that damage one table are noticed, said, and stop that table alone; readings of it are refused."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from mariadb_acts import CREATE_T, do, prepare, summed
from mariadb_database import Database, History

from pages.what_if import what_if
from rollview.errors import SourceChanged
from rollview.sources.source import Lookup

pytestmark = pytest.mark.slow

LOGGED = {
    "column dropped": (["ALTER TABLE t DROP COLUMN v"], "column v was dropped"),
    "column dropped and added": (
        ["ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD v VARCHAR(20) AFTER id"],
        "column v was dropped",
    ),
    "column changed": (["ALTER TABLE t CHANGE v w VARCHAR(20)"], "column v was renamed to w"),
    "column renamed": (["ALTER TABLE t RENAME COLUMN v TO w"], "column v was renamed"),
    "column narrowed": (["ALTER TABLE t MODIFY n SMALLINT"], "column n was changed from int"),
    "column retyped": (["ALTER TABLE t MODIFY n VARCHAR(20)"], "column n was changed"),
    "values changed by a session that is not strict": (
        ["SET sql_mode = ''", "ALTER TABLE t MODIFY v VARCHAR(20) NOT NULL"],
        "not strict",
    ),
    "column behind a backslash that escapes nothing": (
        [
            "SET sql_mode = 'NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES'",
            "ALTER TABLE t COMMENT 'a\\', DROP COLUMN v, ADD v VARCHAR(20) DEFAULT 'x'",
        ],
        "column v was dropped",
    ),
    "column behind a version that is not ours": (
        ["ALTER TABLE t /*!999999 COMMENT 'a */ DROP COLUMN v, ADD v VARCHAR(20) /*!999999 '*/"],
        "column v was dropped",
    ),
    "character set": (["ALTER TABLE t CONVERT TO CHARACTER SET latin1"], "character set latin1"),
    "dropped": (["DROP TABLE t"], "it was dropped"),
    "dropped and created": (["DROP TABLE t", CREATE_T], "it was dropped"),
    "replaced": ([CREATE_T.replace("CREATE", "CREATE OR REPLACE")], "replaced by another table"),
    "swapped": (
        ["CREATE TABLE t_new LIKE t", "RENAME TABLE t TO t_old, t_new TO t"],
        "another table got its name",
    ),
    "emptied": (["TRUNCATE TABLE t"], "emptied without logging"),
    "key dropped": (["ALTER TABLE t DROP PRIMARY KEY"], "key PRIMARY"),
    "rows deleted by IGNORE": (["ALTER IGNORE TABLE t ADD UNIQUE (v)"], "IGNORE"),
    "cascade": (
        ["ALTER TABLE t ADD FOREIGN KEY (n) REFERENCES parent (id) ON DELETE CASCADE"],
        "foreign key, which changes rows without logging",
    ),
    "engine": (["ALTER TABLE t ENGINE = MyISAM"], "engine was changed to myisam"),
    "engine and back": (["ALTER TABLE t ENGINE = Aria", "ALTER TABLE t ENGINE = InnoDB"], "changed to aria"),
    "partition dropped": (
        [
            "ALTER TABLE t PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (3),"
            " PARTITION b VALUES LESS THAN MAXVALUE)",
            "ALTER TABLE t DROP PARTITION a",
        ],
        "partition of it was dropped",
    ),
    "partition exchanged": (
        [
            "CREATE TABLE same LIKE t",
            "ALTER TABLE t PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (3),"
            " PARTITION b VALUES LESS THAN MAXVALUE)",
            "ALTER TABLE t EXCHANGE PARTITION a WITH TABLE same",
        ],
        "partition of it was exchanged",
    ),
    "partition emptied": (
        [
            "ALTER TABLE t PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (3),"
            " PARTITION b VALUES LESS THAN MAXVALUE)",
            "ALTER TABLE t TRUNCATE PARTITION a",
        ],
        "partition of it was emptied",
    ),
    "partition made a table": (
        [
            "ALTER TABLE t PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (3),"
            " PARTITION b VALUES LESS THAN MAXVALUE)",
            "ALTER TABLE t CONVERT PARTITION a TO TABLE apart",
        ],
        "partition of it was made a table",
    ),
    "parts of rows": (["SET binlog_row_image = 'MINIMAL'", "UPDATE t SET v = 'x'"], "not FULL"),
}
UNLOGGED = {
    "column dropped": (["ALTER TABLE t DROP COLUMN v"], "column v is gone"),
    "column narrowed": (["ALTER TABLE t MODIFY v CHAR(20)"], r"is char\(20\) and was varchar\(20\)"),
    "character set": (["ALTER TABLE t CONVERT TO CHARACTER SET latin1"], "character set latin1"),
    "dropped": (["DROP TABLE t"], "it is gone"),
    "a view in its place": (["RENAME TABLE t TO x", "CREATE VIEW t AS SELECT * FROM x"], "it is gone"),
    "key dropped": (["ALTER TABLE t DROP PRIMARY KEY"], "key PRIMARY"),
    "cascade": (
        ["ALTER TABLE t ADD FOREIGN KEY (n) REFERENCES parent (id) ON DELETE SET NULL"],
        "without a trace in the binary log",
    ),
    "engine": (["ALTER TABLE t ENGINE = MyISAM"], "MyISAM has no transactions"),
    "generated": (["ALTER TABLE t DROP v, ADD v VARCHAR(20) AS (CONCAT(n, '')) VIRTUAL"], "another way"),
}


def check_healthy(database: Database, history: History) -> None:
    """The other table's history is complete, and it can be read."""
    assert summed(history, "healthy", Counter([(1, "one")])) == database.read("healthy")
    assert not any("s.healthy" in each.lost for each in history.transactions)
    assert "s.healthy" not in history.noticed


def check_refused(database: Database, why: str, **tables: object) -> None:
    for action in (
        lambda: database.source.read({tables["t"]: ("id", "n")}, Path("/nonexistent")),  # type: ignore[dict-item]
        lambda: database.source.lookup(
            [Lookup(tables["t"], ("id", "v"), keys=pa.table({"id": pa.array([1], pa.int32())}))]  # type: ignore[arg-type]
        ),
    ):
        with pytest.raises(SourceChanged, match=rf"s\.t.*{why}"):
            action()


@what_if(
    "MariaDB",
    "a column dropped, renamed, narrowed or given another type, also if it comes back",
    "the column is lost: views that do not use it continue",
    "log",
    under="columns are lost",
)
@what_if(
    "MariaDB",
    "a column changed by a session that is not strict (`sql_mode`)",
    "the column is lost: values may have been cut silently",
    "log",
    under="columns are lost",
)
@what_if(
    "MariaDB",
    "conversion to a character set other than `utf8mb4`",
    "its texts are lost",
    "log",
    under="columns are lost",
)
@what_if(
    "MariaDB",
    "dropped, dropped and created again, `CREATE OR REPLACE`, renamed, swapped with another table "
    "(also by online schema change tools)",
    "lost",
    "log",
    under="the table is lost",
)
@what_if(
    "MariaDB",
    "a partition dropped, truncated, exchanged, or converted to or from a table",
    "lost: the rows are not in the log. `run` reloads the views automatically",
    "log",
    under="the table is lost",
)
@what_if(
    "MariaDB",
    "`ALTER IGNORE`, a tablespace imported",
    "lost: the rows are not in the log",
    "log",
    under="the table is lost",
)
@what_if(
    "MariaDB",
    "primary key, or the unique key that identifies rows, dropped",
    "lost",
    "log",
    under="the table is lost",
)
@what_if(
    "MariaDB",
    "a foreign key with `CASCADE`, `SET NULL` or `SET DEFAULT` added",
    "lost: what it does is not in the log",
    "log",
    under="the table is lost",
)
@what_if(
    "MariaDB",
    "engine changed to one without transactions, also if it is changed back",
    "lost",
    "log",
    under="the table is lost",
)
@what_if(
    "MariaDB",
    "a session that writes with `binlog_row_image` other than `FULL`",
    "lost where images are incomplete",
    "log",
    under="the table is lost",
)
@pytest.mark.parametrize(("statements", "why"), LOGGED.values(), ids=LOGGED)
def test_damage_in_the_log_is_a_loss_at_its_transaction(
    database: Database, statements: list[str], why: str
) -> None:
    prepare(database)
    history = do(database, statements)
    loss = history.logged()["s.t"]
    assert why in loss.message and loss.message.startswith("table s.t: ")
    assert loss.hint == "run `rollview setup`, which reloads the views that read s.t"
    # Where only rows came or went, views are reloaded without being asked.
    assert loss.is_truncate is ("TRUNCATE" in statements[-1] or " PARTITION a" in statements[-1])
    assert loss.leaves_empty is (statements[-1] == "TRUNCATE TABLE t")
    # Everything before it is there: it begins after transactions that had rows of the table.
    first = next(place for place, each in enumerate(history.transactions) if each.lost)
    assert any("s.t" in each.rows for each in history.transactions[:first])
    # With a loss of columns the rows continue without them; with one of the table there are none.
    for each in history.transactions:
        if "s.t" in each.rows and "s.t" in each.lost:
            assert each.lost["s.t"].columns
            assert not set(each.lost["s.t"].columns) & set(each.rows["s.t"].column_names)  # type: ignore[union-attr]
    check_healthy(database, history)


@what_if(
    "MariaDB",
    "any of these by a session with `sql_log_bin = 0`",
    "lost, if the table is declared otherwise afterwards",
    "look, or `setup` if it comes first",
    under="the table is lost",
)
@pytest.mark.parametrize(("statements", "why"), UNLOGGED.values(), ids=UNLOGGED)
def test_what_the_log_does_not_tell_is_found_by_looking(
    database: Database, statements: list[str], why: str
) -> None:
    tables = prepare(database)
    history = do(database, ["SET sql_log_bin = 0", *statements])
    check_refused(database, why, **tables)
    assert history.noticed.keys() == {"s.t"}
    check_healthy(database, history)
    # It is reported each time, also where nothing is new.
    batch = database.source.capture("s", history.log_position, 10)
    assert batch.transactions == () and batch.lost.keys() == {"s.t"}


@pytest.mark.parametrize(
    "case",
    ["column dropped", "dropped and created", "engine and back", "emptied", "partition exchanged"],
)
def test_after_setup_the_table_as_it_is_now_counts(database: Database, case: str) -> None:
    prepare(database)
    history = do(database, LOGGED[case][0])
    assert "s.t" in history.logged()
    database.setup("t", "healthy")
    later = History(database.source)
    start = database.read("t")
    database.execute("INSERT INTO t (id, n) VALUES (77, 7)", "UPDATE t SET n = 8 WHERE id = 77")
    later.capture()
    assert not later.logged() and not later.noticed
    assert summed(later, "t", start) == database.read("t")


def test_changes_before_a_table_was_set_up_again_are_lost_not_left_out(database: Database) -> None:
    """Capture was behind when setup took the table as it is now."""
    prepare(database)
    history = History(database.source)
    database.execute("INSERT INTO t VALUES (7, 'x', 7)", "SET sql_log_bin = 0", "ALTER TABLE t DROP COLUMN v")
    database.execute("INSERT INTO t VALUES (8, 8)")
    with closing(database.open()) as administrator:
        tables = [table for table in administrator.tables() if table.name in ("t", "healthy")]
        assert administrator.setup(tables).done == ("table t is captured with the columns that it has now",)
    database.execute("INSERT INTO t VALUES (9, 9)")
    history.capture()
    # The other columns continue, and a process that begins later finds the loss where setup was.
    assert history.logged()["s.t"].columns == ("v",)
    assert [list(change) for change in history.changes("t") if change][1:] == [[(8, 8)], [(9, 9)]]
    assert not history.noticed


@pytest.mark.parametrize("statement", ["ALTER TABLE t DROP PRIMARY KEY", "ALTER TABLE t MODIFY n SMALLINT"])
def test_what_only_setup_has_seen_is_a_loss_nevertheless(database: Database, statement: str) -> None:
    """Nobody captured between an act that is not in the log and the setup that took the table as it is."""
    prepare(database)
    history = History(database.source)
    database.execute("SET sql_log_bin = 0", statement)
    database.setup("t", "healthy")
    database.execute("INSERT INTO t VALUES (9, 'x', 9)")
    history.capture()
    assert "s.t" in history.logged() and "s.healthy" not in history.logged()
    assert Counter([(9, "x", 9)]) in history.changes("t")


@what_if(
    "MariaDB",
    "a session that writes with `binlog_format = STATEMENT` in this database, or names it",
    "all tables of the database are lost, because triggers may have written any of them",
    "log",
    under="all tables of the database are lost",
)
def test_a_statement_may_have_changed_every_table(database: Database) -> None:
    prepare(database)
    history = History(database.source)
    database.execute("SET binlog_format = 'STATEMENT'", "UPDATE t SET v = 'x'")
    (transaction,) = history.capture()
    assert "written with binlog_format=STATEMENT: UPDATE t" in transaction.lost["s.t"].message
    assert "triggers may have" in transaction.lost["s.healthy"].message
    history = History(database.source)
    file = database.server.folder / "rows.txt"
    file.write_text("7\tseven\t7\n")
    database.execute("SET binlog_format = 'STATEMENT'", f"LOAD DATA INFILE '{file}' INTO TABLE t")
    assert "LOAD DATA" in history.capture()[0].lost["s.t"].message
    database.execute(
        "CREATE FUNCTION f() RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN DELETE FROM t; RETURN 1; END"
    )
    history = History(database.source)
    database.execute("SET binlog_format = 'STATEMENT'", "SELECT f()")
    assert "s.t" in history.capture()[0].lost


def test_a_statement_of_a_prepared_transaction_is_lost_with_its_commit(database: Database) -> None:
    prepare(database)
    history = History(database.source)
    database.execute("SET binlog_format = 'STATEMENT'", "XA START 'x'", "UPDATE t SET v = 'x'")
    assert history.capture() == []
    with closing(database.connect()) as connection:
        for statement in (
            "SET binlog_format = 'STATEMENT'",
            "XA START 'y'",
            "UPDATE t SET v = 'x'",
            "XA END 'y'",
            "XA PREPARE 'y'",
        ):
            connection.query(statement)
        assert history.capture() == []
        connection.query("XA COMMIT 'y'")
    (transaction,) = history.capture()
    assert "UPDATE t" in transaction.lost["s.t"].message


@what_if(
    "MariaDB",
    "rows written while `binlog_row_metadata` is not `FULL`",
    "lost",
    "log",
    under="the table is lost",
)
@what_if(
    "MariaDB",
    "these settings changed for the whole server and changed back",
    "sessions that began in between are noticed by what they write, as above; `status` shows "
    "settings that are unfit now",
    "log",
    under="the table is lost",
)
@pytest.mark.parametrize(
    ("setting", "value", "statement", "why"),
    [
        ("binlog_format", "STATEMENT", "UPDATE t SET v = 'x'", "binlog_format=STATEMENT"),
        ("binlog_row_image", "MINIMAL", "UPDATE t SET v = 'x'", "binlog_row_image is not FULL"),
        ("binlog_row_image", "NOBLOB", "UPDATE t SET v = 'x'", ""),
        ("log_bin_compress", "ON", "UPDATE t SET v = 'x'", ""),
        ("binlog_row_metadata", "NO_LOG", "", "without a description"),
    ],
)
def test_a_setting_of_the_server_that_was_changed_and_changed_back(
    database: Database, setting: str, value: str, statement: str, why: str
) -> None:
    prepare(database)
    history = History(database.source)
    ((before,),) = database.execute(f"SELECT @@global.{setting}")
    database.execute(f"SET GLOBAL {setting} = {value}")
    try:
        # A session that began in between keeps what it began with, except for settings of the server alone.
        with closing(database.connect()) as session:
            if not statement:
                session.query("UPDATE t SET v = 'y'")
            database.execute(f"SET GLOBAL {setting} = {before}")
            if statement:
                session.query(statement)
    finally:
        database.execute(f"SET GLOBAL {setting} = {before}")
    (transaction,) = history.capture()
    if why:
        assert why in transaction.lost["s.t"].message and not transaction.rows
    else:
        assert summed(
            history, "t", Counter([(1, "one", 1), (2, "two", 2), (3, "three", 3)])
        ) == database.read("t")


@pytest.mark.parametrize(
    "alteration",
    [
        "DROP v, ADD v VARCHAR(9)",
        "DROP v, ADD v VARCHAR(9) DEFAULT 'abc' FIRST",
        "DROP w, ADD w TIME",
        "CONVERT TO CHARACTER SET utf8mb4",
        "MODIFY v VARCHAR(9) CHARACTER SET utf8mb4",
    ],
)
def test_what_is_computed_from_an_altered_column_is_damaged_too(database: Database, alteration: str) -> None:
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9), w TIME, g INT AS (LENGTH(v)) VIRTUAL,"
        " h INT AS (g + HOUR(w)) VIRTUAL, k INT AS (id + 1) VIRTUAL) CHARACTER SET latin1"
    )
    database.execute("INSERT INTO t (id, v, w) VALUES (1, 'é', '12:00:00')")
    database.setup()
    history = History(database.source)
    database.execute(f"ALTER TABLE t {alteration}")
    history.capture()
    lost = history.logged()["s.t"].columns
    assert "h" in lost and ("g" in lost or "w" in alteration) and "id" not in lost


@pytest.mark.parametrize(("client", "name"), [("latin1", "größe"), ("gbk", "名称"), ("utf8mb4", "größe")])
@pytest.mark.parametrize("statement", ["TRUNCATE `{0}`", "ALTER TABLE t DROP `{0}`, ADD `{0}` INT DEFAULT 3"])
def test_names_in_the_character_set_of_a_client(
    database: Database, client: str, name: str, statement: str
) -> None:
    """The log has a statement as the client sent it."""
    database.execute(
        f"CREATE TABLE `{name}` (id INT PRIMARY KEY)", f"CREATE TABLE t (id INT PRIMARY KEY, `{name}` INT)"
    )
    database.execute("INSERT INTO t VALUES (1, 5)", f"INSERT INTO `{name}` VALUES (7)")
    database.setup()
    history = History(database.source)
    with closing(database.connect(charset=client)) as session:
        session.query(statement.format(name))
        # What the server puts together itself is in UTF-8.
        session.query(f"DROP TABLE `{name}`")
    history.capture()
    first, *_ = history.transactions
    assert first.lost.keys() == {f"s.{name}" if "TRUNCATE" in statement else "s.t"}
    assert any(f"s.{name}" in each.lost for each in history.transactions[-1:])

"""Changes of a captured table that leave its captured rows alone stop nothing; nor does a later setup."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from mariadb_acts import do, prepare, summed
from mariadb_database import Database, History, counted

from pages.what_if import what_if
from rollview.sources.source import Lookup

pytestmark = pytest.mark.slow

_START = Counter([(1, "one", 1), (2, "two", 2), (3, "three", 3)])
HARMLESS = {
    "column added at the end": ["ALTER TABLE t ADD COLUMN more INT DEFAULT 5"],
    "column added first": ["ALTER TABLE t ADD COLUMN more DATETIME DEFAULT CURRENT_TIMESTAMP FIRST"],
    "column added in between": ["ALTER TABLE t ADD COLUMN more VARCHAR(300) AFTER id, ALGORITHM = COPY"],
    "column of an unknown type added": ["ALTER TABLE t ADD COLUMN more POINT AFTER id"],
    "other column dropped": ["ALTER TABLE t ADD COLUMN more INT AFTER id", "ALTER TABLE t DROP COLUMN more"],
    "other column renamed": ["ALTER TABLE t ADD more INT AFTER id", "ALTER TABLE t CHANGE more w BIGINT"],
    "generated column added": ["ALTER TABLE t ADD more INT AS (n + 1) VIRTUAL AFTER id"],
    "order of columns": ["ALTER TABLE t MODIFY v VARCHAR(20) FIRST"],
    "text widened": ["ALTER TABLE t MODIFY v VARCHAR(300)", "ALTER TABLE t MODIFY v MEDIUMTEXT"],
    "number widened": ["ALTER TABLE t MODIFY n BIGINT"],
    "character set widened": ["ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"],
    "default": ["ALTER TABLE t ALTER v SET DEFAULT 'x'", "ALTER TABLE t MODIFY n INT DEFAULT 7 COMMENT 'c'"],
    "never NULL": ["UPDATE t SET v = 'x' WHERE v IS NULL", "ALTER TABLE t MODIFY n INT NOT NULL"],
    "indexes": [
        "ALTER TABLE t ADD INDEX by_v (v), COMMENT = 'a, b', ALGORITHM = INPLACE",
        "ALTER TABLE t DROP INDEX by_n",
        "CREATE UNIQUE INDEX again ON t (id, n)",
        "DROP INDEX again ON t",
    ],
    "rebuilt": [
        "ALTER TABLE t FORCE",
        "OPTIMIZE TABLE t",
        "ANALYZE TABLE t",
        "ALTER TABLE t ENGINE = InnoDB",
    ],
    "counter": ["ALTER TABLE t AUTO_INCREMENT = 1000 ROW_FORMAT = DYNAMIC"],
    "grants": ["GRANT SELECT ON t TO tester@localhost", "FLUSH PRIVILEGES"],
    "foreign key that only refuses": [
        "ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (n) REFERENCES parent (id)",
        "ALTER TABLE t DROP FOREIGN KEY f",
    ],
    "check": ["ALTER TABLE t ADD CONSTRAINT c CHECK (id > 0)", "ALTER TABLE t DROP CONSTRAINT c"],
    "trigger": ["CREATE TRIGGER g AFTER INSERT ON t FOR EACH ROW SET @last = NEW.id"],
    "partitions": [
        "ALTER TABLE t PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (3),"
        " PARTITION b VALUES LESS THAN MAXVALUE)",
        "ALTER TABLE t REORGANIZE PARTITION a INTO (PARTITION c VALUES LESS THAN (2),"
        " PARTITION d VALUES LESS THAN (3))",
        "ALTER TABLE t REBUILD PARTITION d",
        "ALTER TABLE t REMOVE PARTITIONING",
    ],
    "partitions of hashes": [
        "ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 2",
        "ALTER TABLE t ADD PARTITION PARTITIONS 1",
        "ALTER TABLE t COALESCE PARTITION 2",
    ],
    "other tables": [
        "CREATE TABLE child (id INT, FOREIGN KEY (id) REFERENCES t (id) ON DELETE CASCADE)",
        "ALTER TABLE parent ADD COLUMN t INT",
        "DROP TABLE child",
        "CREATE VIEW w AS SELECT * FROM t",
        "CREATE TEMPORARY TABLE t (id INT)",
        "DROP TEMPORARY TABLE t",
        "CREATE TABLE copy AS SELECT * FROM t",
        "TRUNCATE copy",
        "DROP TABLE copy",
    ],
}


@what_if(
    "MariaDB",
    "a column added (at the end, `FIRST`, `AFTER`), a new order of columns",
    "nothing: columns are found by name",
    under="nothing stops",
)
@what_if(
    "MariaDB",
    "a text, number or decimal widened, labels added to an `ENUM`, conversion to `utf8mb4`",
    "nothing; a value that does not fit the type of `setup` is lost when it comes",
    under="nothing stops",
)
@what_if(
    "MariaDB",
    "index, comment, default, `AUTO_INCREMENT`, row format, grants, `OPTIMIZE`, `ANALYZE`, "
    "`CHECK`, triggers, views",
    "nothing",
    under="nothing stops",
)
@what_if(
    "MariaDB",
    "partitions made, reorganized, rebuilt, removed",
    "nothing: the rows stay",
    under="nothing stops",
)
@what_if(
    "MariaDB",
    "a foreign key that only refuses (`RESTRICT`) added, a foreign key dropped, `foreign_key_checks = 0`",
    "nothing: no view relies on it",
    under="nothing stops",
)
@pytest.mark.parametrize("statements", HARMLESS.values(), ids=HARMLESS)
def test_what_leaves_the_rows_alone_stops_nothing(database: Database, statements: list[str]) -> None:
    tables = prepare(database)
    captured = [tables["t"], tables["healthy"]]
    history = do(database, statements)
    read = database.source.read({tables["t"]: tables["t"].columns}, Path("/nonexistent"))
    now = counted(read.rows[0], tables["t"].columns)
    assert summed(history, "t", _START) == now
    assert not history.logged() and not history.noticed
    (found,) = database.source.lookup(
        [Lookup(tables["t"], ("id", "v", "n"), keys=pa.table({"v": pa.array(["one", "x"], pa.string())}))]
    ).rows
    assert counted(found) >= Counter([(1, "one", 1)])
    # The same columns are captured further on, by a process that continues and by one that begins.
    assert database.source.setup(captured).done == ()
    database.execute("INSERT INTO t (id, v, n) VALUES (77, 'x', 7)")
    history.capture()
    later = History(database.open(), history.log_position)
    database.execute("UPDATE t SET v = 'y' WHERE id = 77")
    later.capture()
    later.source.close()
    assert history.changes("t")[-1] == Counter([(77, "x", 7)])
    assert later.changes("t") == [Counter({(77, "x", 7): -1, (77, "y", 7): 1})]
    assert not {**history.logged(), **history.noticed, **later.logged(), **later.noticed}


@what_if(
    "MariaDB",
    "a value without an equal in Spark (`0000-00-00`, a number beyond the type of `setup`)",
    "lost, with column, value and transaction. Once the value is repaired, the views continue automatically",
    "log",
    under="the table is lost",
)
def test_a_value_that_only_the_wider_column_holds_is_a_loss(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, a SMALLINT, d DECIMAL(5,2), m TINYINT)")
    database.setup()
    tables = database.tables()
    history = History(database.source)
    database.execute(
        "ALTER TABLE t MODIFY a BIGINT, MODIFY d DECIMAL(30,2), MODIFY m MEDIUMINT",
        "INSERT INTO t VALUES (1, 32767, 999.99, 127)",
        "INSERT INTO t VALUES (2, 32768, 0, 0)",
        "INSERT INTO t VALUES (3, 0, 1000, 0)",
        "INSERT INTO t VALUES (4, 0, 0, 128)",
    )
    first, *others = history.capture()
    assert not first.lost and len(counted(first.rows["s.t"])) == 1
    for each, column in zip(others, "adm", strict=True):
        assert f"s.t.{column} is read as" in each.lost["s.t"].message and not each.rows
    assert not history.noticed
    with pytest.raises(Exception, match=r"s\.t\.a is read as smallint"):
        database.source.read({tables["t"]: ("a",)}, Path("/nonexistent"))


def test_partitioned_tables_and_generated_columns(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, virtual_one INT AS (n + 1) VIRTUAL,"
        " stored_one VARCHAR(20) AS (CONCAT('n', n)) STORED) PARTITION BY RANGE (id)"
        " (PARTITION a VALUES LESS THAN (10), PARTITION b VALUES LESS THAN MAXVALUE)"
    )
    database.setup()
    history = History(database.source)
    database.execute(
        "INSERT INTO t (id, n) VALUES (1, 1), (20, NULL)",
        "UPDATE t SET id = 30 WHERE id = 1",
        "UPDATE t SET n = 5 WHERE id = 20",
        "DELETE FROM t PARTITION (b) WHERE id = 30",
    )
    history.capture()
    assert history.changes("t")[1] == Counter({(1, 1, 2, "n1"): -1, (30, 1, 2, "n1"): 1})
    assert summed(history, "t", Counter()) == database.read("t") == Counter([(20, 5, 6, "n5")])
    database.execute("ALTER TABLE t MODIFY virtual_one INT AS (n + 2) VIRTUAL")
    (transaction,) = history.capture()
    assert "generated columns" in transaction.lost["s.t"].message
    assert "computed in another way" in history.noticed["s.t"].message
    database.setup()
    assert database.read("t") == Counter([(20, 5, 7, "n5")])
    later = History(database.source)
    database.execute("UPDATE t SET n = 6")
    later.capture()
    assert later.changes("t") == [Counter({(20, 5, 7, "n5"): -1, (20, 6, 8, "n6"): 1})] and not later.noticed


def test_what_is_computed_from_a_counter_is_logged_with_wrong_values_and_not_used(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, n INT, g INT AS (id % 7) VIRTUAL,"
        " h INT AS (g + n) VIRTUAL, k INT AS (n + 1) VIRTUAL)"
    )
    prepared = database.setup()
    assert [each for each in prepared.warnings if "t.g " in each and "AUTO_INCREMENT" in each]
    assert database.tables()["t"].columns == ("id", "n", "k")
    history = History(database.source)
    database.execute(
        "INSERT INTO t (n) VALUES (1)", "INSERT INTO t (id, n) VALUES (0, 2), (0, 3)", "DELETE FROM t"
    )
    history.capture()
    assert summed(history, "t", Counter()) == Counter() and not history.noticed

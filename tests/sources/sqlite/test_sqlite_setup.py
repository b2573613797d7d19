"""Setting up and removing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlite_history import bag, contents, database, drain, ready, schema

from rollview.algebra.relation import ForeignKey, Table
from rollview.errors import (
    CaptureRefused,
    InputError,
    NotSetUp,
    OptionError,
    SourceChanged,
    SourceUnavailable,
)
from rollview.sources.sqlite import SQLiteSource

KEYED = "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT)"


def test_setup_and_remove_leave_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    tables = (
        KEYED,
        'CREATE TABLE "odd ""name"" é"("a b" TEXT PRIMARY KEY, "select" INTEGER UNIQUE) WITHOUT ROWID',
        "CREATE TABLE version(version INTEGER, log TEXT)",
        "CREATE VIEW v AS SELECT * FROM t",
    )
    with closing(database(path, *tables)) as connection:
        before = schema(connection)
        source = SQLiteSource("s", path)
        done = source.setup(source.tables())
        assert len(done.done) == 4
        assert done.warnings == ()
        middle = schema(connection)
        assert source.setup(source.tables()).done == ()
        assert schema(connection) == middle
        connection.execute('INSERT INTO "odd ""name"" é" VALUES (1, 2)')
        connection.execute("INSERT INTO version VALUES (1, 2)")
        found, _ = drain(source, str(_counter(connection) - 2))
        assert {name for each in found for name in each.rows} == {'s.odd "name" é', "s.version"}
        source.remove()
        assert schema(connection) == before
        assert source.remove().done == ()
        with pytest.raises(NotSetUp):
            source.capture("s", "0", 1)


def _counter(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT version FROM _rollview_version").fetchone()[0])


def test_tables_are_described_as_declared(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    tables = (
        "CREATE TABLE region(id INTEGER PRIMARY KEY, name VARCHAR(20))",
        "CREATE TABLE city(region INT REFERENCES region, code CHAR(3), price DECIMAL(9,2), rough NUMERIC,"
        " big UNSIGNED BIG INT, ratio DOUBLE PRECISION, data BLOB, free, open BOOLEAN, since DATE,"
        " seen DATETIME, tag UUID, raw VARBINARY(3), PRIMARY KEY (code, region))",
        "CREATE TABLE stop(a INT, b TEXT, FOREIGN KEY (a, b) REFERENCES city(region, code))",
        "CREATE VIRTUAL TABLE words USING fts5(text)",
        "CREATE VIEW v AS SELECT 1",
    )
    with closing(database(path, *tables)):
        found = {table.name: table for table in SQLiteSource("s", path).tables()}
    assert set(found) == {"region", "city", "stop", "words"}
    assert found["region"] == Table("s", "region", ("id", "name"), ("id",), (), ("bigint", "string"))
    assert found["city"].key == ("code", "region")
    assert found["city"].foreign_keys == (ForeignKey(("region",), "s.region"),)
    # The columns stand in the order of the parent's key.
    assert found["stop"].foreign_keys == (ForeignKey(("b", "a"), "s.city"),)
    assert found["city"].types == (
        "bigint", "string", "decimal(9,2)", "decimal(38,18)", "bigint", "double", "binary", "binary",
        "boolean", "date", "timestamp_ntz", "string", "binary",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (["CREATE VIRTUAL TABLE t USING fts5(text)"], "virtual table"),
        (["CREATE TABLE t(a, _count INTEGER)"], "_count"),
        (["CREATE TABLE t(a, _Rollview_x)"], "_Rollview_x"),
        ([KEYED, "CREATE UNIQUE INDEX i ON t(lower(a))"], "expression"),
        (
            ["CREATE TABLE t(id INTEGER PRIMARY KEY, h INT AS (g + 1), g INT AS (id % 3), UNIQUE (h))"],
            "computed from id",
        ),
        (["CREATE TABLE t(rowid TEXT, oid TEXT, _rowid_ TEXT)"], "identity"),
        ([KEYED, "CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT RAISE(IGNORE); END"], "IGNORE"),
        ([KEYED, "CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT RAISE(FAIL, 'no'); END"], "FAIL"),
        ([KEYED, 'CREATE TRIGGER x BEFORE UPDATE ON t BEGIN UPDATE OR FAIL "T" SET a = 1; END'], "itself"),
        ([KEYED, "CREATE TRIGGER x INSERT ON t BEGIN INSERT INTO t VALUES (7, 7); END"], "itself"),
    ],
)
def test_what_cannot_be_captured_exactly_is_refused(
    tmp_path: Path, statements: list[str], reason: str
) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, *statements)) as connection:
        before = schema(connection)
        source = SQLiteSource("s", path)
        with pytest.raises(CaptureRefused, match=reason):
            source.setup(source.tables())
        assert schema(connection) == before


def test_harmless_triggers_of_the_owner_are_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    checks = (
        "CREATE TRIGGER x BEFORE INSERT ON t WHEN EXISTS (SELECT 1 FROM t WHERE a = NEW.a) BEGIN"
        " SELECT RAISE(IGNORE); -- INSERT INTO t\n END",
        "CREATE TRIGGER y AFTER UPDATE ON t BEGIN INSERT INTO t(a) VALUES ('INTO t'); END",
    )
    with closing(database(path, KEYED, *checks)) as connection:
        source, log_position = ready(path)
        connection.execute("INSERT OR REPLACE INTO t VALUES (1, 'a')")
        connection.execute("INSERT OR REPLACE INTO t VALUES (1, 'a')")
        connection.execute("UPDATE t SET a = 'b'")
        found, _ = drain(source, log_position)
        assert (
            sum((bag(each.rows["s.t"]) for each in found), start=type(bag(found[0].rows["s.t"]))())
            == (contents(connection, ["t"])["t"])
        )
        source.close()


def test_tables_come_and_go(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, KEYED, "CREATE TABLE u(a INTEGER)")) as connection:
        source, log_position = ready(path, "u")
        connection.execute("INSERT INTO t VALUES (1, 'a')")
        source.setup(source.tables())
        connection.execute("INSERT INTO u VALUES (1)")
        found, log_position = drain(source, log_position)
        assert [set(each.rows) for each in found] == [{"s.t"}, {"s.u"}]
        connection.execute("INSERT INTO t VALUES (2, 'b')")
        source.setup([table for table in source.tables() if table.name == "u"])
        connection.execute("INSERT INTO t VALUES (3, 'c')")
        connection.execute("INSERT INTO u VALUES (2)")
        found, log_position = drain(source, log_position)
        assert {name for each in found for name in each.rows} == {"s.u"}
        with pytest.raises(NotSetUp, match=r"s\.t is not captured"):
            source.read({Table("s", "t", ("id", "a")): ["a"]}, tmp_path)
        source.close()


def test_forgotten_changes_are_gone_and_not_silently(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, KEYED)) as connection:
        source, log_position = ready(path)
        connection.executemany("INSERT INTO t(a) VALUES (?)", [("x",)] * 7)
        connection.execute("INSERT OR IGNORE INTO t VALUES (1, 'noted')")
        batch = source.capture("s", log_position, 4)
        assert len(batch.transactions) == 4
        counter = _counter(connection)
        source.acknowledge("s", batch.log_position)
        source.acknowledge("s", log_position)
        assert _counter(connection) == counter
        assert connection.execute("SELECT count(*) FROM _rollview_log_t").fetchone() == (3,)
        assert connection.execute("SELECT count(*) FROM _rollview_old_t").fetchone() == (0,)
        with pytest.raises(SourceChanged, match="already discarded"):
            source.capture("s", log_position, 4)
        assert len(drain(source, batch.log_position)[0]) == 3
        source.close()


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no SQLite database at .*missing"):
        SQLiteSource("s", tmp_path / "missing.db").tables()
    assert not (tmp_path / "missing.db").exists()
    text = tmp_path / "text.db"
    text.write_text("this is no database, but it is long enough to be looked at as one" * 20)
    with pytest.raises(InputError, match="not a SQLite database"):
        SQLiteSource("s", text).tables()
    with pytest.raises(OptionError, match="colour"):
        SQLiteSource("s", text, {"colour": "red"})
    with pytest.raises(OptionError, match="soon"):
        SQLiteSource("s", text, {"timeout": "soon"})
    path = tmp_path / "a.db"
    with closing(database(path, KEYED)):
        source, log_position = ready(path)
        with pytest.raises(InputError, match="no site"):
            source.capture("other", log_position, 10)
        with pytest.raises(CaptureRefused, match="no table"):
            source.setup([Table("s", "nothing", ("a",))])
        assert source.describe()["tables"] == "t"
        source.close()


def test_a_locked_database_is_waited_for_and_then_named(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, KEYED, wal=False)) as connection:
        ready(path)
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SourceUnavailable, match="stayed locked"):
            SQLiteSource("s", path, {"timeout": "0.1"}).capture("s", "0", 10)
        connection.execute("ROLLBACK")


def test_without_wal_setup_warns(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, KEYED, wal=False)):
        source = SQLiteSource("s", path)
        assert "WAL" in source.setup(source.tables()).warnings[0]
        assert source.describe()["capture"] == "one composite transaction per poll"

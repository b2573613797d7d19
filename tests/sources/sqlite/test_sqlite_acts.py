"""What owners and administrators do to a database under a capture: each act is noticed, or does no harm.

A damaged table is lost alone: the other tables of the file continue, and `setup` repairs it.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlite_history import FakeMarks, bag, contents, database, drain, ready, replay, writer

from pages.what_if import what_if
from rollview.algebra.relation import Table
from rollview.errors import LogLost, NotSetUp, SourceChanged
from rollview.sources.sqlite import SQLiteSource

TABLES = (
    "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, extra TEXT)",
    "CREATE TABLE other(a INTEGER)",
)
WIDE = Table("s", "t", ("id", "a", "extra"), ("id",), types=("bigint", "string", "string"))
T = Table("s", "t", ("id", "a"), ("id",), types=("bigint", "string"))
OTHER = Table("s", "other", ("a",), types=("bigint",))
Act = Callable[[sqlite3.Connection], None]


def begun(path: Path) -> tuple[SQLiteSource, str]:
    """A source that captures two of the three columns of t, and the table other."""
    source = SQLiteSource("s", path)
    source.setup([T, OTHER])
    return source, source.current_position("s")


def run(*statements: str) -> Act:
    def act(connection: sqlite3.Connection) -> None:
        for statement in statements:
            connection.execute(statement)

    return act


def triggers(connection: sqlite3.Connection, where: str) -> list[tuple[str, str]]:
    query = f"SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND {where} ORDER BY rowid"
    return connection.execute(query).fetchall()


def drop_triggers(where: str) -> Act:
    def act(connection: sqlite3.Connection) -> None:
        for name, _ in triggers(connection, where):
            connection.execute(f'DROP TRIGGER "{name}"')

    return act


def import_without(where: str, *finally_: str) -> Act:
    """Drops triggers, writes, and creates them again from their own texts."""

    def act(connection: sqlite3.Connection) -> None:
        saved = triggers(connection, where)
        drop_triggers(where)(connection)
        connection.execute("INSERT INTO t VALUES (70, 'missed', '')")
        run(*(sql for _, sql in saved), *finally_)(connection)

    return act


def rebuild(connection: sqlite3.Connection) -> None:
    """SQLite's own recipe for changes that ALTER TABLE cannot make: it saves and restores the triggers."""
    saved = triggers(connection, "tbl_name = 't'")
    connection.execute("BEGIN")
    connection.execute("CREATE TABLE t_new(id INTEGER PRIMARY KEY, a TEXT, extra TEXT NOT NULL DEFAULT '')")
    connection.execute("INSERT INTO t_new SELECT id, upper(a), extra FROM t")
    connection.execute("DROP TABLE t")
    connection.execute("ALTER TABLE t_new RENAME TO t")
    for _, sql in saved:
        connection.execute(sql)
    connection.execute("COMMIT")


def edit_schema(old: str, new: str, where: str) -> Act:
    """An edit of the schema table itself, which does not move SQLite's schema version."""

    def act(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(f"UPDATE sqlite_schema SET sql = replace(sql, ?, ?) WHERE {where}", (old, new))
        connection.execute("PRAGMA writable_schema = OFF")

    return act


AGAIN = "which captures table t, was dropped and created again"
DAMAGE: dict[str, tuple[Act, str]] = {
    "drop table": (run("DROP TABLE t"), "table t was dropped"),
    "drop and create": (run("DROP TABLE t", TABLES[0]), "table t was dropped and created again"),
    "rename table": (run("ALTER TABLE t RENAME TO u"), "table t was renamed to u"),
    "rename swap": (
        run("ALTER TABLE t RENAME TO u", TABLES[0]),
        "table t was renamed to u, and another table has its name now",
    ),
    "rebuild": (rebuild, f"_rollview_insert_t, {AGAIN}"),
    "rename captured column": (
        run("ALTER TABLE t RENAME COLUMN a TO b"),
        "column a of table t was renamed or dropped",
    ),
    "another type": (
        edit_schema("a TEXT", "a INTEGER", "name = 't'"),
        "column a of table t has type bigint now, it was string",
    ),
    "drop one trigger": (
        run("DROP TRIGGER _rollview_delete_t"),
        "_rollview_delete_t, which captures table t, was dropped",
    ),
    "drop all triggers of the table": (drop_triggers("tbl_name = 't'"), "its triggers were dropped"),
    "one trigger dropped for an import": (
        import_without("name = '_rollview_insert_t'"),
        f"_rollview_insert_t, {AGAIN}",
    ),
    "triggers of the table dropped for an import": (import_without("tbl_name = 't'"), AGAIN),
    "last trigger dropped for an import, and VACUUM": (
        import_without("name = '_rollview_gone_t'", "VACUUM"),
        f"_rollview_gone_t, {AGAIN}",
    ),
    "trigger edited": (
        edit_schema("AFTER DELETE ON", "AFTER DELETE  ON", "name = '_rollview_delete_t'"),
        "_rollview_delete_t, which captures table t, was altered",
    ),
    "unique index": (run("CREATE UNIQUE INDEX i ON t(extra)"), 'has got a unique key ("extra")'),
    "trigger that writes its table": (
        run("CREATE TRIGGER x AFTER INSERT ON t BEGIN INSERT INTO t VALUES (7, '7', ''); END"),
        "table t can no longer be captured",
    ),
    "foreign key that writes its table": (
        run(
            "CREATE TABLE child(t INTEGER REFERENCES t(id) ON DELETE CASCADE)",
            "CREATE TRIGGER x AFTER DELETE ON child BEGIN UPDATE t SET a = 'x'; END",
        ),
        "table t has got a foreign key or a trigger that can write it while REPLACE deletes",
    ),
    "trigger that raises FAIL": (
        run("CREATE TRIGGER x AFTER INSERT ON t WHEN NEW.a = '?' BEGIN SELECT RAISE(FAIL, 'no'); END"),
        "table t can no longer be captured",
    ),
    "drop the log": (
        run("DROP TABLE _rollview_log_t"),
        "_rollview_log_t, which captures table t, was dropped",
    ),
    "drop the notes": (
        run("DROP TABLE _rollview_old_t"),
        "_rollview_old_t, which captures table t, was dropped",
    ),
}
UNMENDABLE = ("drop table", "rename table", "rename captured column", "another type")


@what_if(
    "SQLite",
    "captured column renamed, or its type or the primary key changed",
    "the table is lost",
    "columns, types and key differ from those at `setup`",
    under="the table is lost",
)
@what_if(
    "SQLite",
    "table dropped, renamed, dropped and created again, or rebuilt with its triggers restored "
    "(SQLite's own recipe for what `ALTER TABLE` cannot do)",
    "the table is lost",
    "triggers are missing, belong to another table, or were created after the seal",
    under="the table is lost",
)
@what_if(
    "SQLite",
    "rename swap",
    "the table is lost",
    "the triggers moved away with the old table",
    under="the table is lost",
)
@what_if(
    "SQLite",
    "a trigger of rollview dropped, edited, or dropped for an import and created again",
    "the table is lost",
    "text, and order of creation: recreated triggers come after the seal, also after a `VACUUM`",
    under="the table is lost",
)
@what_if(
    "SQLite",
    "unique key added",
    "the table is lost: `REPLACE` could delete rows by a key that no trigger knows",
    "keys differ from those that the triggers were made for",
    under="the table is lost",
)
@what_if(
    "SQLite",
    "a trigger of the owner that writes its own table, or raises `IGNORE` or `FAIL` after a change",
    "the table is lost; `setup` refuses it until the trigger is gone",
    "text of the triggers",
    under="the table is lost",
)
@what_if(
    "SQLite",
    "foreign key or trigger added by which a table can be written while one of its rows is",
    "the table is lost; `setup` makes triggers that keep pace with that",
    "tables that foreign keys and triggers lead to, by their texts",
    under="the table is lost",
)
@what_if(
    "SQLite",
    "log table dropped",
    "the table is lost",
    under="the table is lost",
)
@what_if(
    "SQLite",
    "schema edited by hand (`PRAGMA writable_schema`)",
    "as if the same had been done by a statement",
    "the schema is compared as a whole, not by SQLite's version of it",
    under="the table is lost",
)
@pytest.mark.parametrize("act", DAMAGE)
def test_damage_to_a_table_is_the_loss_of_that_table(tmp_path: Path, act: str) -> None:
    path = tmp_path / "a.db"
    do, reason = DAMAGE[act]
    with closing(database(path, *TABLES)) as connection:
        connection.execute("INSERT INTO t VALUES (1, 'a', 'x')")
        source, log_position = begun(path)
        connection.execute("INSERT INTO other VALUES (1)")
        before = source.capture("s", log_position, 10)
        assert not before.lost
        source.close()
        do(connection)
        connection.execute("INSERT INTO other VALUES (2)")
        for each in (source, source, SQLiteSource("s", path)):
            batch = each.capture("s", before.log_position, 10)
            assert set(batch.lost) == {"s.t"}
            assert reason in batch.lost["s.t"].message
            assert "rollview setup" in batch.lost["s.t"].hint
            assert bag(batch.transactions[-1].rows["s.other"]) == {(2,): 1}
            # Also when nothing is new.
            assert set(each.capture("s", batch.log_position, 10).lost) == {"s.t"}
            with pytest.raises(SourceChanged, match="source s: "):
                each.read({T: ["a"]}, tmp_path)
            assert bag(each.read({OTHER: ["a"]}, tmp_path).rows[0]) == {(1,): 1, (2,): 1}
            each.close()
        # What was captured before can still be had again.
        source_txids = [each.source_txid for each in before.transactions]
        (again,) = source.replay("s", log_position, source_txids, before.log_position).transactions
        assert again.rows.keys() == {"s.other"}
        source.acknowledge("s", batch.log_position)
        mended, is_gone = act not in UNMENDABLE, act.startswith("trigger that")
        if is_gone:
            connection.execute("DROP TRIGGER x")
        source.setup([T, OTHER] if mended else [OTHER])
        connection.execute("INSERT INTO other VALUES (3)")
        batch = source.capture("s", batch.log_position, 10)
        # The other table's history continues. This one's is not claimed to be complete.
        assert bag(batch.transactions[-1].rows["s.other"]) == {(3,): 1}
        assert set(batch.lost) == ({"s.t"} if mended and not is_gone else set())
        if mended:
            check_mended(source, connection, batch.log_position, tmp_path)
        source.remove()
        source.close()


@pytest.mark.parametrize("do", [rebuild, import_without("tbl_name = 't'"), run("DROP TABLE t", TABLES[0])])
def test_a_setup_does_not_hide_what_nobody_has_noticed(tmp_path: Path, do: Act) -> None:
    """Changes that were missed do not move the counter; a capture from before must still get the loss."""
    path = tmp_path / "a.db"
    with closing(database(path, *TABLES)) as connection:
        connection.execute("INSERT INTO t VALUES (1, 'a', 'x')")
        source, log_position = begun(path)
        connection.execute("INSERT INTO other VALUES (1)")
        _, log_position = drain(source, log_position)
        source.acknowledge("s", log_position)
        source.close()
        do(connection)
        other = SQLiteSource("s", path)
        assert other.setup([T, OTHER]).done == ("table t now writes a change log",)
        for each in (source, other):
            batch = each.capture("s", log_position, 10)
            assert set(batch.lost) == {"s.t"}
            assert "set up again" in batch.lost["s.t"].message
            each.close()
        check_mended(source, connection, batch.log_position, tmp_path)
        source.close()


def check_mended(source: SQLiteSource, connection: sqlite3.Connection, after: str, scratch: Path) -> None:
    """After setup all changes are captured again."""
    state = {"t": narrow(connection)}
    connection.execute("INSERT OR REPLACE INTO t VALUES (1, 'new', 'y')")
    connection.execute("REPLACE INTO t VALUES (2, 'newer', 'y')")
    connection.execute("UPDATE t SET a = 'newest' WHERE id = 2")
    batch = source.capture("s", after, 10)
    assert not batch.lost
    assert replay(state, batch.transactions)[-1]["t"] == narrow(connection)
    assert bag(source.read({T: ["id", "a"]}, scratch).rows[0]) == narrow(connection)


def narrow(connection: sqlite3.Connection) -> Counter[tuple[object, ...]]:
    """The captured columns of t as they are now."""
    return Counter(connection.execute("SELECT id, a FROM t").fetchall())


HARMLESS: dict[str, Act] = {
    "add column": run("ALTER TABLE t ADD COLUMN b TEXT DEFAULT 'x'"),
    "drop column": run("ALTER TABLE t DROP COLUMN extra"),
    "rename column": run("ALTER TABLE t RENAME COLUMN extra TO renamed"),
    "index and ANALYZE": run("CREATE INDEX i ON t(a)", "ANALYZE"),
    "new table and view": run("CREATE TABLE more(a)", "CREATE VIEW v AS SELECT * FROM t"),
    "harmless trigger": run("CREATE TRIGGER x AFTER INSERT ON t BEGIN INSERT INTO other VALUES (9); END"),
    "rename there and back": run(
        "ALTER TABLE t RENAME TO u", "INSERT INTO u(id, a) VALUES (50, 'away')", "ALTER TABLE u RENAME TO t"
    ),
    "VACUUM": run("VACUUM"),
    "REINDEX": run("REINDEX"),
    "wider text by hand": edit_schema("extra TEXT", "extra VARCHAR(9)", "name = 't'"),
    "journal mode away and back": run(
        "PRAGMA journal_mode = DELETE",
        "INSERT INTO t(id, a) VALUES (51, 'meanwhile')",
        "PRAGMA journal_mode = WAL",
    ),
}


@what_if(
    "SQLite",
    "column added; a column that is not captured is dropped or renamed; index, `ANALYZE`, "
    "`REINDEX`; new tables and views; triggers that do not write their own table",
    "nothing",
    under="nothing stops",
)
@what_if(
    "SQLite",
    "`VACUUM`",
    "nothing; transactions between the last poll and the `VACUUM` may be merged",
    under="nothing stops",
)
@what_if(
    "SQLite",
    "renamed and renamed back",
    "nothing: the triggers went along",
    under="nothing stops",
)
@what_if(
    "SQLite",
    "journal mode changed from WAL and back",
    "nothing; transactions may be merged meanwhile. While `run` is at work SQLite refuses the change",
    under="nothing stops",
)
@pytest.mark.parametrize("act", HARMLESS)
def test_what_concerns_no_captured_column_stops_nothing(tmp_path: Path, act: str) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, *TABLES)) as connection:
        connection.execute("INSERT INTO t VALUES (1, 'a', 'x')")
        source, log_position = begun(path)
        state = {"t": narrow(connection), "other": contents(connection, ["other"])["other"]}
        connection.execute("INSERT INTO t(id, a) VALUES (2, 'b')")
        source.close()
        HARMLESS[act](connection)
        connection.execute("INSERT OR REPLACE INTO t(id, a) VALUES (1, 'c')")
        connection.execute("DELETE FROM t WHERE id = 2")
        for each in (source, SQLiteSource("s", path)):
            batch = each.capture("s", log_position, 100)
            assert not batch.lost
            last = replay(state, batch.transactions)[-1]
            assert last["t"] == narrow(connection)
            assert last["other"] == contents(connection, ["other"])["other"]
            assert bag(each.read({T: ["id", "a"]}, tmp_path).rows[0]) == last["t"]
            each.close()
        # Nobody needs to run setup, and if somebody does, nothing changes.
        assert source.setup([T, OTHER]).done == ()
        assert not source.capture("s", batch.log_position, 10).lost
        source.close()


@what_if(
    "SQLite",
    "`DROP COLUMN` of a captured column",
    "SQLite refuses it, because a trigger uses the column. `rollview setup` lets go of a table "
    "once no view reads it, `rollview setup --remove` of all",
    under="nothing stops",
)
def test_a_captured_column_cannot_be_dropped_while_it_is_captured(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, *TABLES)) as connection:
        source, log_position = begun(path)
        with pytest.raises(sqlite3.OperationalError, match="_rollview_insert_t after drop column"):
            connection.execute("ALTER TABLE t DROP COLUMN a")
        assert not source.capture("s", log_position, 10).lost
        source.remove()
        connection.execute("ALTER TABLE t DROP COLUMN a")
        source.close()


def test_more_columns_are_captured_after_setup_and_none_are_invented(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, *TABLES)) as connection:
        source, log_position = begun(path)
        with pytest.raises(NotSetUp, match=r"column extra of table s\.t is not captured"):
            source.read({WIDE: ["extra"]}, tmp_path)
        connection.execute("INSERT INTO t VALUES (1, 'a', 'before')")
        assert source.setup([WIDE, OTHER]).done == ("table t now writes a change log",)
        connection.execute("INSERT INTO t VALUES (2, 'b', 'after')")
        batch = source.capture("s", log_position, 10)
        source.acknowledge("s", batch.log_position)
        # What was logged before has no values for the new columns, and is otherwise complete.
        assert not batch.lost
        assert not any(each.lost for each in batch.transactions)
        assert bag(batch.transactions[0].rows["s.t"]) == {(1, "a", None): 1}
        assert bag(batch.transactions[-1].rows["s.t"]) == {(2, "b", "after"): 1}
        # A table that is let go and taken again was not captured meanwhile.
        source.setup([OTHER])
        connection.execute("INSERT INTO t VALUES (3, 'c', 'meanwhile')")
        connection.execute("INSERT INTO other VALUES (1)")
        source.setup([WIDE, OTHER])
        assert set(source.capture("s", batch.log_position, 10).lost) == {"s.t"}
        source.close()


@what_if(
    "SQLite",
    "unique key dropped",
    "nothing: the triggers check for collisions that no longer happen",
    under="nothing stops",
)
def test_a_unique_index_that_goes_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, *TABLES, "CREATE UNIQUE INDEX i ON t(extra)")) as connection:
        source, log_position = begun(path)
        state = {"t": narrow(connection)}
        connection.execute("INSERT INTO t VALUES (1, 'a', 'x')")
        connection.execute("DROP INDEX i")
        connection.execute("INSERT OR REPLACE INTO t VALUES (2, 'b', 'x')")
        batch = source.capture("s", log_position, 10)
        assert not batch.lost
        assert replay(state, batch.transactions)[-1]["t"] == narrow(connection)
        # The same key, made again under another name, is followed as before.
        connection.execute("DELETE FROM t WHERE id = 1")
        connection.execute("CREATE UNIQUE INDEX j ON t(extra)")
        check_mended(source, connection, source.capture("s", batch.log_position, 10).log_position, tmp_path)
        source.close()


def test_a_unique_column_that_is_not_captured_may_be_renamed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, *TABLES, "CREATE UNIQUE INDEX i ON t(extra) WHERE extra > ''")) as connection:
        source, log_position = begun(path)
        connection.execute("ALTER TABLE t RENAME COLUMN extra TO more")
        check_mended(source, connection, log_position, tmp_path)
        source.close()


@what_if(
    "SQLite",
    "all views dropped, the seal with them",
    "every table is lost, because it is unknown whether triggers were created again",
    under="the table is lost",
)
def test_a_seal_that_goes_leaves_no_table_certain(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, *TABLES)) as connection:
        source, log_position = begun(path)
        connection.execute("DROP VIEW _rollview_seal")
        batch = source.capture("s", log_position, 10)
        assert set(batch.lost) == {"s.t", "s.other"}
        assert "_rollview_seal was dropped" in batch.lost["s.other"].message
        source.setup([T, OTHER])
        assert not source.capture("s", source.current_position("s"), 10).lost
        source.close()


@what_if(
    "SQLite",
    "counter, list of tables or other tables of `_rollview_` dropped, altered or created again",
    "the source stops",
    "text, and order of creation",
    under="the source stops",
)
@pytest.mark.parametrize(
    "statements",
    [
        ["DROP TABLE _rollview_cuts"],
        ["DROP TABLE _rollview_tables"],
        ["ALTER TABLE _rollview_forgotten ADD COLUMN x"],
        [
            "CREATE TABLE saved AS SELECT * FROM _rollview_forgotten",
            "DROP TABLE _rollview_forgotten",
            "CREATE TABLE _rollview_forgotten(id INTEGER PRIMARY KEY, version, gaps)",
            "INSERT INTO _rollview_forgotten SELECT * FROM saved",
        ],
    ],
    ids=["cuts", "tables", "altered", "created again"],
)
def test_damage_to_what_all_tables_share_stops_the_source(tmp_path: Path, statements: list[str]) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, *TABLES)) as connection:
        source, log_position = begun(path)
        run(*statements)(connection)
        for each in (source, SQLiteSource("s", path)):
            with pytest.raises(SourceChanged, match="which capture needs, was"):
                each.capture("s", log_position, 10)
            with pytest.raises(SourceChanged, match="which capture needs, was"):
                each.read({OTHER: ["a"]}, tmp_path)
        source.setup([T, OTHER])
        with pytest.raises(SourceChanged, match="set up again"):
            source.capture("s", log_position, 10)
        fresh = source.current_position("s")
        connection.execute("INSERT INTO other VALUES (1)")
        assert len(drain(source, fresh)[0]) == 1
        source.close()


@what_if(
    "SQLite",
    "records deleted from a log",
    "the source stops",
    "every number of the counter is one record, so a gap shows",
    under="the source stops",
)
@pytest.mark.parametrize("log", ["_rollview_log_t", "_rollview_log_other"])
def test_deleted_records_leave_a_gap(tmp_path: Path, log: str) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, *TABLES)) as connection:
        source, log_position = begun(path)
        connection.execute("INSERT INTO t VALUES (1, 'a', '')")
        connection.execute("INSERT INTO other VALUES (1)")
        connection.execute("INSERT INTO t VALUES (2, 'b', '')")
        connection.execute("INSERT INTO other VALUES (2)")
        batch = source.capture("s", log_position, 10)
        connection.execute(f"DELETE FROM {log} WHERE version = (SELECT min(version) FROM {log})")
        with pytest.raises(LogLost, match=r"records after .* are missing"):
            source.capture("s", log_position, 10)
        source_txids = [each.source_txid for each in batch.transactions]
        with pytest.raises(LogLost, match=r"records after .* are missing"):
            source.replay("s", log_position, source_txids, batch.log_position)
        source.close()


def swapped(path: Path, other: Path) -> None:
    """Another file takes the place of a database that nobody has open."""
    for name in ("-wal", "-shm"):
        Path(f"{path}{name}").unlink(missing_ok=True)
    other.replace(path)


def overwritten(path: Path, other: Path) -> None:
    """Another file's content takes the place of a database that nobody has open: cp, tar, rsync --inplace."""
    for name in ("-wal", "-shm"):
        Path(f"{path}{name}").unlink(missing_ok=True)
    path.write_bytes(other.read_bytes())


@what_if(
    "SQLite",
    "file replaced or overwritten by an older copy, written since or not",
    "the source stops",
    "a log position has the time of its last record; the copy has another one there, or none",
    under="the source stops",
)
@pytest.mark.parametrize("put", [swapped, overwritten])
@pytest.mark.parametrize("writes", [0, 1, 2, 3])
@pytest.mark.parametrize("acknowledged", [True, False], ids=["acknowledged", "not acknowledged"])
def test_an_older_copy_is_noticed_however_far_it_was_written_since(
    tmp_path: Path, put: Callable[[Path, Path], None], writes: int, acknowledged: bool
) -> None:
    path, backup = tmp_path / "a.db", tmp_path / "backup.db"
    with closing(database(path, *TABLES)) as connection:
        source, log_position = begun(path)
        connection.execute("INSERT INTO t VALUES (1, 'a', '')")
        connection.execute("VACUUM INTO ?", (str(backup),))
        connection.execute("INSERT INTO t VALUES (2, 'b', '')")
        connection.execute("INSERT INTO t VALUES (3, 'c', '')")
        found, log_position = drain(source, log_position)
        read_point = source.read({T: ["id"]}, tmp_path).read_point
        if acknowledged:
            source.acknowledge("s", log_position)
        source.close()
    put(path, backup)
    with closing(writer(path)) as connection:
        for number in range(writes):
            connection.execute("INSERT INTO t VALUES (?, 'other', '')", (number + 10,))
    fresh = SQLiteSource("s", path)
    marks = FakeMarks([each.source_txid for each in found], log_position)
    for each in (source, fresh):
        with pytest.raises(SourceChanged, match=r"replaced|earlier state"):
            each.capture("s", log_position, 10)
        with pytest.raises(SourceChanged, match=r"replaced|earlier state"):
            each.seen("s", read_point, marks)
    if put is swapped:
        with pytest.raises(SourceChanged, match="replaced by another one"):
            source.read({T: ["id"]}, tmp_path)
    # After a setup the file that is there now is the one.
    source.setup([T, OTHER])
    assert not source.capture("s", source.current_position("s"), 10).transactions
    source.close()


@what_if(
    "SQLite",
    "file replaced by a copy that has everything that was captured (`VACUUM INTO` and swap)",
    "a running process stops, because reads may be under way; it continues after a restart or `setup`",
    under="the source stops",
)
def test_a_copy_of_the_same_history_is_gone_on_with(tmp_path: Path) -> None:
    """VACUUM INTO and a swap, with nothing captured between: a new process finds all that was captured."""
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    with closing(database(path, *TABLES)) as connection:
        source, log_position = begun(path)
        connection.execute("INSERT INTO t VALUES (1, 'a', '')")
        _, log_position = drain(source, log_position)
        source.acknowledge("s", log_position)
        connection.execute("INSERT INTO t VALUES (2, 'b', '')")
        connection.execute("VACUUM INTO ?", (str(copy),))
        source.close()
    swapped(path, copy)
    with pytest.raises(SourceChanged, match="replaced by another one"):
        source.capture("s", log_position, 10)
    found, _ = drain(SQLiteSource("s", path), log_position)
    assert [bag(each.rows["s.t"]) for each in found] == [{(2, "b"): 1}]


@what_if(
    "SQLite",
    "file replaced by another one",
    "the source stops",
    "another file under the same name; a generation that capture does not know",
    under="the source stops",
)
def test_another_database_with_a_capture_of_its_own(tmp_path: Path) -> None:
    path, other = tmp_path / "a.db", tmp_path / "other.db"
    with closing(database(path, *TABLES)):
        source, log_position = begun(path)
        source.close()
    with closing(database(other, *TABLES)) as connection:
        begun(other)[0].close()
        connection.execute("INSERT INTO t VALUES (1, 'a', '')")
    shutil.copy(other, path)
    with pytest.raises(SourceChanged, match="set up again"):
        SQLiteSource("s", path).capture("s", log_position, 10)


@what_if(
    "SQLite",
    "`PRAGMA recursive_triggers` in a writer",
    "nothing: triggers are made for both",
    under="nothing stops",
)
def test_writers_with_recursive_triggers_are_captured_alike(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, *TABLES)) as connection:
        source, log_position = ready(path)
        connection.execute("PRAGMA recursive_triggers = ON")
        connection.execute("INSERT INTO t VALUES (1, 'a', '')")
        connection.execute("REPLACE INTO t VALUES (1, 'b', '')")
        found, _ = drain(source, log_position)
        assert [bag(each.rows["s.t"]) for each in found] == [
            {(1, "a", ""): 1},
            {(1, "a", ""): -1, (1, "b", ""): 1},
        ]
        source.close()


OF_BEFORE = 'NEW."b" IS NOT OLD."b" COLLATE BINARY'
"""By this, triggers of the first release looked for collisions by a key, also by that of a partial index."""


@what_if(
    "SQLite",
    "rollview is upgraded, and a table has triggers of a release that missed rows which `REPLACE` deletes",
    "the table is lost until `setup` renews them; all other tables continue",
    "the release that made them is stored with them",
    under="the table is lost",
)
@pytest.mark.parametrize("partial", [True, False], ids=["partial index", "whole index"])
def test_triggers_of_an_earlier_release_stay_unless_they_miss_something(
    tmp_path: Path, partial: bool
) -> None:
    """A table with a partial index is lost until setup renews its triggers; others notice nothing."""
    path = tmp_path / "a.db"
    index = f"CREATE UNIQUE INDEX u ON t(b){' WHERE c > 2' if partial else ''}"
    tables = ("CREATE TABLE t(id INTEGER PRIMARY KEY, b INTEGER, c INTEGER)", index)
    with closing(database(path, *tables)) as connection:
        source, log_position = ready(path)
        ((structure,),) = connection.execute("SELECT structure FROM _rollview_tables")
        kept = json.loads(structure)
        del kept["trigger_version"], kept["is_reentrant"]
        for key in kept["unique"]:
            del key["is_computed"], key["when_null"]
        connection.execute("UPDATE _rollview_tables SET structure = ?", (json.dumps(kept),))
        if partial:
            edit_schema("EXISTS (", f"({OF_BEFORE}) AND EXISTS (", "name = '_rollview_note_update_t'")(
                connection
            )
        source.close()
        source = SQLiteSource("s", path)
        lost = source.capture("s", log_position, 10).lost
        assert [loss.message for loss in lost.values()] == (
            [
                "source s: the triggers of table t were made by an earlier release and miss rows that REPLACE"
                " deletes by a partial index, by a generated column, or while a foreign key acts"
            ]
            if partial
            else []
        )
        assert bool(source.setup(source.tables()).done) == partial
        connection.execute("INSERT INTO t VALUES (1, 1, 5), (2, 3, 1)")
        log_position = source.current_position("s")
        start = contents(connection, ["t"])
        connection.execute("UPDATE OR REPLACE t SET b = 1, c = 9 WHERE id = 2")
        found, _ = drain(source, log_position)
        assert replay(start, found)[-1] == contents(connection, ["t"])
        source.close()

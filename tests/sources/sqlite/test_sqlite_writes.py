"""Every kind of write by a plain connection: the replayed log equals the tables, commit by commit."""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlite_history import Contents, contents, database, drain, ready, replay

from pages.what_if import what_if
from rollview.sources.sqlite.structure import UniqueKey
from rollview.sources.sqlite.triggers import _NoteWriter

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import fuzz_sqlite

SCHEMA = (
    "CREATE TABLE plain(a TEXT, b INTEGER)",
    "CREATE TABLE keyed(id INTEGER PRIMARY KEY, a TEXT UNIQUE, b INTEGER NOT NULL DEFAULT 1 UNIQUE, c TEXT)",
    "CREATE TABLE folded(k TEXT PRIMARY KEY COLLATE NOCASE, a INTEGER, UNIQUE (a)) WITHOUT ROWID",
    "CREATE TABLE pair(x INTEGER NOT NULL, y TEXT NOT NULL, z TEXT, PRIMARY KEY (x, y))",
    "CREATE UNIQUE INDEX pair_z ON pair(z COLLATE NOCASE) WHERE x > 0 -- only some",
    "CREATE TABLE made(id INTEGER PRIMARY KEY, a INTEGER,"
    " twice INTEGER AS (a * 2) STORED, odd INTEGER AS (a % 2))",
    "CREATE UNIQUE INDEX made_twice ON made(twice)",
    "CREATE TABLE tree(id INTEGER PRIMARY KEY, code TEXT UNIQUE,"
    " parent INTEGER REFERENCES tree(id) ON DELETE SET NULL ON UPDATE CASCADE)",
    "CREATE TABLE wood(id INTEGER PRIMARY KEY, code TEXT UNIQUE ON CONFLICT REPLACE, parent INTEGER DEFAULT 1"
    " REFERENCES wood(id) ON DELETE CASCADE ON UPDATE SET DEFAULT)",
    "CREATE TABLE leaf(id INTEGER PRIMARY KEY, tree INTEGER UNIQUE REFERENCES tree(id) ON DELETE SET NULL,"
    " folded TEXT REFERENCES folded(k) ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE audited(id INTEGER PRIMARY KEY, a TEXT UNIQUE, depth INTEGER)",
    "CREATE TRIGGER audit AFTER INSERT ON audited WHEN NEW.depth > 0 BEGIN"
    " INSERT OR REPLACE INTO audited VALUES (NEW.id + 1, NEW.a || 'x', NEW.depth - 1);"
    " UPDATE plain SET b = NEW.id WHERE a = NEW.a; END",
    "CREATE TABLE outside(a INTEGER)",
)
COLUMNS = {
    "plain": ("rowid", "a", "b"),
    "keyed": ("id", "a", "b", "c"),
    "folded": ("k", "a"),
    "pair": ("x", "y", "z"),
    "made": ("id", "a"),
    "tree": ("id", "code", "parent"),
    "wood": ("id", "code", "parent"),
    "leaf": ("id", "tree", "folded"),
    "audited": ("id", "a", "depth"),
    "outside": ("a",),
}
TEXTS = {
    "plain.a",
    "keyed.a",
    "keyed.c",
    "folded.k",
    "pair.y",
    "pair.z",
    "tree.code",
    "wood.code",
    "leaf.folded",
    "audited.a",
}
NOT_NULL = {"folded.k", "pair.x", "pair.y"}
CAPTURED = [name for name in COLUMNS if name != "outside"]


@st.composite
def values(draw: st.DrawFn, table: str, column: str) -> str:
    """A value as SQL text, from so few that rows collide."""
    name = f"{table}.{column}"
    choices = ["'a'", "'A'", "'b'", "'ax'"] if name in TEXTS else ["1", "2", "3", "0"]
    return draw(st.sampled_from(choices if name in NOT_NULL else [*choices, "NULL"]))


@st.composite
def statements(draw: st.DrawFn) -> str:
    """Some statement that changes, or tries to change, some table."""
    table = draw(st.sampled_from(sorted(COLUMNS)))
    columns = draw(st.lists(st.sampled_from(COLUMNS[table]), min_size=1, unique=True))
    policy = draw(
        st.sampled_from(["", "", " OR REPLACE", " OR REPLACE", " OR IGNORE", " OR FAIL", " OR ROLLBACK"])
    )
    condition = ""
    if draw(st.booleans()):
        column = draw(st.sampled_from(COLUMNS[table]))
        condition = f" WHERE {column} IS {draw(values(table, column))}"
    kind = draw(st.sampled_from(["insert", "insert", "insert", "update", "update", "delete", "upsert"]))
    if kind == "delete":
        return f"DELETE FROM {table}{condition}"
    if kind == "update":
        changes = [
            f"{column} = {draw(st.sampled_from([f'{column} + 1', draw(values(table, column))]))}"
            for column in columns
        ]
        return f"UPDATE{policy} {table} SET {', '.join(changes)}{condition}"
    rows = draw(st.integers(1, 3))
    lines = ", ".join(
        "(" + ", ".join(draw(values(table, column)) for column in columns) + ")" for _ in range(rows)
    )
    if kind == "upsert" and table in ("keyed", "tree", "folded"):
        changed = {"keyed": "b = keyed.b + 1", "tree": "code = 'ax'", "folded": "a = 3"}[table]
        return f"INSERT INTO {table}({', '.join(columns)}) VALUES {lines} ON CONFLICT DO UPDATE SET {changed}"
    return f"INSERT{policy} INTO {table}({', '.join(columns)}) VALUES {lines}"


transactions = st.lists(
    st.tuples(
        st.lists(
            st.one_of(
                statements(),
                st.sampled_from(["SAVEPOINT p", "ROLLBACK TO p", "RELEASE p"]),
            ),
            min_size=1,
            max_size=6,
        ),
        st.sampled_from(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


def run(connection: sqlite3.Connection, body: list[str], end: str) -> None:
    """A transaction of which single statements may fail."""
    connection.execute("BEGIN")
    for statement in body:
        if not connection.in_transaction:
            connection.execute("BEGIN")
        with suppress(sqlite3.IntegrityError, sqlite3.OperationalError):
            connection.execute(statement)
    if connection.in_transaction:
        try:
            connection.execute(end)
        except sqlite3.IntegrityError:
            connection.execute("ROLLBACK")


@pytest.mark.slow
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    history=transactions,
    recursive=st.booleans(),
    foreign_keys=st.booleans(),
    limit=st.sampled_from([1, 5, 100]),
)
def test_oracle_replay_equals_the_tables_after_every_commit(
    history: list[tuple[list[str], str, bool]], recursive: bool, foreign_keys: bool, limit: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        with closing(database(path, *SCHEMA)) as connection:
            connection.execute(f"PRAGMA recursive_triggers = {recursive}")
            connection.execute(f"PRAGMA foreign_keys = {foreign_keys}")
            for table, columns in COLUMNS.items():
                for i in (1, 2):
                    row = ", ".join(
                        f"'{'ab'[i - 1]}'" if f"{table}.{c}" in TEXTS else str(i) for c in columns
                    )
                    connection.execute(f"REPLACE INTO {table}({', '.join(columns)}) VALUES ({row})")
            source, log_position = ready(path, "outside")
            start = contents(connection, CAPTURED)
            expected: list[Contents] = []
            captured = []
            for body, end, poll in history:
                before = _counter(connection)
                # OR ROLLBACK may end a transaction early, so the counter says what was committed.
                run(connection, body, end)
                if _counter(connection) != before:
                    expected.append(contents(connection, CAPTURED))
                if poll:
                    found, log_position = drain(source, log_position, limit)
                    captured += found
            found, log_position = drain(source, log_position, limit)
            captured += found
            assert replay(start, captured) == expected
            assert ([start, *expected])[-1] == contents(connection, CAPTURED)
            source.close()


def _counter(connection: sqlite3.Connection) -> int:
    (value,) = connection.execute("SELECT version FROM _rollview_version").fetchone()
    return int(value)


CASES = {
    "insert": ["INSERT INTO keyed VALUES (9, 'q', 9, 'r')"],
    "update": ["UPDATE keyed SET c = 'new'"],
    "update of the key": ["UPDATE keyed SET id = id + 10"],
    "delete": ["DELETE FROM keyed WHERE id = 1"],
    "delete without condition": ["DELETE FROM keyed"],
    "replace over three keys": ["REPLACE INTO keyed VALUES (1, 'b', 3, 'three rows at once')"],
    "replace by an identical row": ["REPLACE INTO keyed VALUES (1, 'a', 1, 'x')"],
    "replace by a default": ["REPLACE INTO keyed VALUES (7, 'z', NULL, 'takes 1')"],
    "update or replace": ["UPDATE OR REPLACE keyed SET a = 'b' WHERE id = 1"],
    "update or replace of the rowid": ["UPDATE OR REPLACE plain SET rowid = 2 WHERE rowid = 1"],
    "insert or ignore, then delete": [
        "INSERT OR IGNORE INTO keyed VALUES (1, 'b', 3, 'no')", "DELETE FROM keyed",
    ],
    "upsert": ["INSERT INTO keyed VALUES (1, 'new', 77, 'y') ON CONFLICT (id) DO UPDATE SET c = excluded.c"],
    "cascade of set null": ["PRAGMA foreign_keys = ON", "DELETE FROM tree WHERE id = 1"],
    "cascade of an update": ["PRAGMA foreign_keys = ON", "UPDATE folded SET k = 'q' WHERE k = 'A'"],
    "replace that cascades": ["PRAGMA foreign_keys = ON", "REPLACE INTO tree VALUES (1, 'b', NULL)"],
    "rollback to a savepoint": [
        "BEGIN", "DELETE FROM pair", "SAVEPOINT p", "DELETE FROM keyed", "ROLLBACK TO p", "COMMIT",
    ],
    "rolled back": ["BEGIN", "DELETE FROM keyed", "ROLLBACK"],
    "tables outside": ["INSERT INTO outside VALUES (1)"],
    "nested replace in the owner's trigger": [
        "INSERT INTO audited VALUES (1, 'a', 0), (2, 'ax', 0)", "REPLACE INTO audited VALUES (1, 'a', 3)",
    ],
}  # fmt: skip


@pytest.mark.parametrize("recursive", [False, True], ids=["plain", "recursive_triggers"])
@pytest.mark.parametrize("wal", [True, False], ids=["wal", "rollback"])
@pytest.mark.parametrize("case", CASES)
def test_one_kind_of_write(tmp_path: Path, case: str, wal: bool, recursive: bool) -> None:
    path = tmp_path / "a.db"
    with closing(database(path, *SCHEMA, wal=wal)) as connection:
        connection.execute(f"PRAGMA recursive_triggers = {recursive}")
        connection.execute("INSERT INTO keyed VALUES (1, 'a', 1, 'x'), (2, 'b', 2, 'x'), (3, 'c', 3, 'x')")
        connection.execute("INSERT INTO plain VALUES ('a', 1), ('b', 2)")
        connection.execute("INSERT INTO folded VALUES ('A', 1), ('B', 2)")
        connection.execute("INSERT INTO pair VALUES (1, 'a', 'z')")
        connection.execute("INSERT INTO tree VALUES (1, 'a', NULL), (2, 'b', 1), (3, 'c', 2)")
        connection.execute("INSERT INTO leaf VALUES (1, 1, 'a'), (2, 2, 'B')")
        source, log_position = ready(path, "outside")
        start = contents(connection, CAPTURED)
        for statement in CASES[case]:
            connection.execute(statement)
        found, _ = drain(source, log_position)
        after = contents(connection, CAPTURED)
        assert [start, *replay(start, found)][-1] == after
        assert (after == start) == (case in ("rolled back", "tables outside", "replace by an identical row"))
        assert bool(found) == (case not in ("rolled back", "tables outside"))
        source.close()


PARTIAL = (
    "CREATE TABLE t(id INTEGER PRIMARY KEY, b INTEGER, c INTEGER)",
    "CREATE UNIQUE INDEX u ON t(b) WHERE c > 2",
    "INSERT INTO t VALUES (1, 1, 5), (2, 1, 1)",
)
COMPUTED = (
    "CREATE TABLE t(id INTEGER PRIMARY KEY, a INTEGER NOT NULL DEFAULT 3, b INTEGER,"
    " g INTEGER AS (a * 2 + b) UNIQUE)",
    "INSERT INTO t(id, a, b) VALUES (1, 5, 1), (2, 5, 2), (3, 3, 4)",
)
DRAWN = (
    "CREATE TABLE t(id INTEGER PRIMARY KEY, a INTEGER NOT NULL DEFAULT (abs(random() % 3)) UNIQUE)",
    "INSERT INTO t VALUES (1, 0), (2, 1), (3, 2)",
)
TREE = (
    "CREATE TABLE t(id INTEGER PRIMARY KEY, code TEXT UNIQUE,"
    " parent INTEGER REFERENCES t(id) ON UPDATE CASCADE)",
    "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', NULL)",
    "PRAGMA foreign_keys = ON",
)
ROUND = (
    "CREATE TABLE t(id INTEGER PRIMARY KEY, a INTEGER UNIQUE, b INTEGER UNIQUE, c INTEGER UNIQUE)",
    "CREATE TABLE v(id INTEGER PRIMARY KEY, t INTEGER REFERENCES t(id) ON DELETE CASCADE)",
    "CREATE TRIGGER w AFTER DELETE ON v BEGIN INSERT OR IGNORE INTO t VALUES (2, 9, 9, 9);"
    " UPDATE t SET id = 5 WHERE id = 2; END",
    "INSERT INTO t VALUES (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)",
    "INSERT INTO v VALUES (1, 3)",
    "PRAGMA foreign_keys = ON",
)
SILENT: dict[str, tuple[tuple[str, ...], str]] = {
    "a row comes under the condition of an index": (PARTIAL, "UPDATE OR REPLACE t SET c = 9 WHERE id = 2"),
    "an insert under the condition of an index": (PARTIAL, "INSERT OR REPLACE INTO t VALUES (3, 1, 7)"),
    "a key that is computed from a column that stays": (
        COMPUTED,
        "UPDATE OR REPLACE t SET b = 2 WHERE id = 1",
    ),
    "a key that is computed from a default": (COMPUTED, "REPLACE INTO t(id, a, b) VALUES (7, NULL, 4)"),
    "a default that differs each time": (DRAWN, "REPLACE INTO t VALUES (4, NULL), (5, NULL), (6, NULL)"),
    "the row that replaces is changed by a foreign key": (
        TREE,
        "UPDATE OR REPLACE t SET id = 2 WHERE id = 1",
    ),
    "a trigger writes the table while rows are replaced": (ROUND, "REPLACE INTO t VALUES (4, 1, 2, 3)"),
}


@pytest.mark.parametrize("recursive", [False, True], ids=["plain", "recursive_triggers"])
@pytest.mark.parametrize("wal", [True, False], ids=["wal", "rollback"])
@pytest.mark.parametrize("case", SILENT)
def test_no_row_goes_silently(tmp_path: Path, case: str, wal: bool, recursive: bool) -> None:
    """REPLACE deletes rows by keys that BEFORE triggers do not see as they will be."""
    schema, statement = SILENT[case]
    path = tmp_path / "a.db"
    with closing(database(path, *schema, wal=wal)) as connection:
        connection.execute(f"PRAGMA recursive_triggers = {recursive}")
        source, log_position = ready(path)
        names = [table.name for table in source.tables()]
        start = contents(connection, names)
        connection.execute(statement)
        found, _ = drain(source, log_position)
        assert [start, *replay(start, found)][-1] == contents(connection, names) != start
        source.close()


@what_if(
    "SQLite",
    "a statement that fails below a foreign key's action and keeps what it has done: `OR FAIL`,"
    " `RAISE(FAIL)`, `ON CONFLICT FAIL`",
    "the table is lost",
    "a copy that is made of the rows before does not equal the table",
    under="the table is lost",
)
def test_what_a_failed_statement_keeps_without_our_triggers_is_a_loss(tmp_path: Path) -> None:
    """FAIL below a foreign key's action keeps what is deleted already, and ends the statement."""
    schema = (
        "CREATE TABLE t(id INTEGER PRIMARY KEY)",
        "CREATE TABLE v(id INTEGER PRIMARY KEY, t INTEGER REFERENCES t(id) ON DELETE CASCADE)",
        "CREATE TRIGGER w AFTER DELETE ON v BEGIN INSERT INTO other VALUES (1); END",
        "CREATE TABLE other(a INTEGER UNIQUE ON CONFLICT FAIL)",
        "INSERT INTO other VALUES (1)",
        "INSERT INTO t VALUES (1), (2)",
        "INSERT INTO v VALUES (1, 1)",
        "PRAGMA foreign_keys = ON",
    )
    path = tmp_path / "a.db"
    with closing(database(path, *schema)) as connection:
        source, log_position = ready(path, "v", "other")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("DELETE FROM t")
        assert connection.execute("SELECT id FROM t").fetchall() == [(2,)]
        for _ in range(2):
            # What shows that something is missing stays, whatever is acknowledged.
            (loss,) = source.capture("s", log_position, 10).lost.values()
            assert "failed after it had changed rows of table t" in loss.message
            source.acknowledge("s", log_position)
        source.setup([table for table in source.tables() if table.name == "t"])
        after = source.current_position("s")
        assert source.capture("s", after, 10).lost == {}
        source.close()


@pytest.mark.slow
def test_random_histories_are_captured_exactly() -> None:
    """The first of those that `benchmarks/fuzz_sqlite.py` plays; `make soak` plays them for an hour."""
    tally = fuzz_sqlite.Tally()
    assert [wrong for seed in range(1, 101) if (wrong := fuzz_sqlite.play(seed, tally))] == []
    assert tally.states > 1_000


def _as_of_before(writer: _NoteWriter, key: UniqueKey) -> str:
    changed = " OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column, _ in key.columns)
    return f"(({changed or 0}) AND EXISTS (SELECT 1 FROM {writer.table} WHERE {writer._same_key(key)}))"


MISTAKES: dict[str, tuple[str, object]] = {
    "keys change only with their columns": ("_NoteWriter._collides_with_new_row", _as_of_before),
    "generated columns are what BEFORE triggers see": ("_Writer._mentioned", lambda _: "1"),
    "rows that may be replaced are not in the mirror": (
        "_MirrorWriter._note_victims",
        lambda _: "SELECT 1;",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_planted_mistakes_are_found(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    name, wrong = MISTAKES[mistake]
    monkeypatch.setattr(f"rollview.sources.sqlite.triggers.{name}", wrong)
    found = (fuzz_sqlite.play(seed, fuzz_sqlite.Tally()) for seed in range(1, 201))
    assert next(filter(None, found), None) is not None

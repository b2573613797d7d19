"""Every kind of write by a plain connection: the replayed log equals the tables, commit by commit."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlite_history import Contents, contents, database, drain, ready, replay

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

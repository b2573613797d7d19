"""Hostile names of tables and columns: they stay names, at every kind of source and in the lake."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from rollview.errors import LakeDamaged
from rollview.project.project import Project
from servers.mariadb import MariaDBServer
from servers.postgres import PostgresServer

pytestmark = pytest.mark.slow

TABLES = ("../../../../outside", 'x"; DROP TABLE keep; --', "a`b'c", "per%s cent {0}", "ünï", "..")
COLUMNS = (
    "id",
    'we"ird',
    "b`k",
    "%s %(x)s",
    "'; DROP TABLE keep; --",
    "{0}",
    "sp ace",
    "select",
    "_Ü",
)

Execute = Callable[..., None]


def _quoted(name: str, mark: str) -> str:
    return mark + name.replace(mark, mark * 2) + mark


def _columns(mark: str, kind: str, key: str) -> str:
    return ", ".join(f"{_quoted(name, mark)} {kind if i else key}" for i, name in enumerate(COLUMNS))


def _view(table: str) -> str:
    columns = ", ".join(f"{_quoted(name, '`')} AS c{i}" for i, name in enumerate(COLUMNS))
    return f"SELECT {columns} FROM s.{_quoted(table, '`')}"


def _attack(
    folder: Path, spark: SparkSession, source: str, tables: tuple[str, ...], execute: Execute
) -> None:
    """Views over all tables, changes, and a second set-up that drops some: all of it stays in its place."""
    outside = folder.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "precious").write_text("mine")
    folder.mkdir()
    (folder / "rollview.yml").write_text(f"name: x\nlake: ./a/b/c/lake\nsources:\n  s: {source}\n")
    (folder / "views").mkdir()
    for number, table in enumerate(tables):
        (folder / "views" / f"v{number}.sql").write_text(_view(table))
    total = f"SELECT count(*) AS n FROM s.{_quoted(tables[0], '`')}"
    (folder / "views" / "total.sql").write_text(total)
    with Project.open(folder, spark) as project:
        project.setup()
        for number, table in enumerate(tables):
            execute(table, number + 1)
        project.run(once=True)
        for number in range(len(tables)):
            assert [tuple(row) for row in project.read(f"v{number}").collect()] == [
                (number + 1, *(f"value {i}" for i in range(1, len(COLUMNS))))
            ]
        assert [verdict.view for verdict in project.verify() if not verdict.is_right] == []
        for number in range(1, len(tables)):
            (folder / "views" / f"v{number}.sql").unlink()
        project.setup()
        project.setup([])
        assert set(project.views) == {"v0", "total"}
        project.remove()
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()].count("outside") == 1
    assert (outside / "precious").read_text() == "mine"
    assert {path.name for path in (folder / "a").iterdir()} == {"b"}
    assert {path.name for path in (folder / "a/b").iterdir()} == {"c"}
    assert {path.name for path in (folder / "a/b/c").iterdir()} == {"lake"}


def _values(number: int) -> list[object]:
    return [number, *(f"value {i}" for i in range(1, len(COLUMNS)))]


def test_sqlite(tmp_path: Path, spark: SparkSession) -> None:
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE keep (id INTEGER)")
        columns = _columns('"', "TEXT", "INTEGER PRIMARY KEY")
        for table in TABLES:
            connection.execute(f"CREATE TABLE {_quoted(table, chr(34))} ({columns})")

        def execute(table: str, number: int) -> None:
            marks = ", ".join("?" * len(COLUMNS))
            connection.execute(f"INSERT INTO {_quoted(table, chr(34))} VALUES ({marks})", _values(number))

        _attack(tmp_path / "p", spark, "{type: sqlite, path: ../s.db}", TABLES, execute)
        assert connection.execute("SELECT count(*) FROM keep").fetchone() == (0,)


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.remove()


def test_postgresql(
    tmp_path: Path, spark: SparkSession, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = postgres.create_database("hostile")
    monkeypatch.setenv("DSN", dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE keep (id INT)")
        columns = _columns('"', "TEXT", "BIGINT PRIMARY KEY")
        for table in TABLES:
            connection.execute(f"CREATE TABLE {_quoted(table, chr(34))} ({columns})".encode())

        def execute(table: str, number: int) -> None:
            values = ", ".join(f"'{value}'" for value in _values(number))
            connection.execute(f"INSERT INTO {_quoted(table, chr(34))} VALUES ({values})".encode())

        _attack(tmp_path / "p", spark, '{type: postgres, dsn: "${DSN}"}', TABLES, execute)
        assert connection.execute("SELECT count(*) FROM keep").fetchone() == (0,)


@pytest.fixture
def mariadb() -> Iterator[MariaDBServer]:
    server = MariaDBServer().start()
    yield server
    server.close()


def test_mariadb(
    tmp_path: Path, spark: SparkSession, mariadb: MariaDBServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = mariadb.create_database("hostile")
    monkeypatch.setenv("DSN", dsn)
    with closing(mariadb.connect("hostile", autocommit=True)) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE keep (id INT)")
        columns = _columns("`", "VARCHAR(40)", "BIGINT PRIMARY KEY")
        for table in TABLES:
            cursor.execute(f"CREATE TABLE {_quoted(table, '`')} ({columns})")

        def execute(table: str, number: int) -> None:
            values = ", ".join(f"'{value}'" for value in _values(number))
            cursor.execute(f"INSERT INTO {_quoted(table, '`')} VALUES ({values})")

        _attack(tmp_path / "p", spark, '{type: mariadb, dsn: "${DSN}"}', TABLES, execute)
        cursor.execute("SELECT count(*) FROM keep")
        assert cursor.fetchone() == (0,)


def test_a_folder_that_is_not_the_lakes_is_not_removed(tmp_path: Path, spark: SparkSession) -> None:
    """Somebody has put a link, or something else, where a table was."""
    write_deltalake(str(tmp_path / "d" / "t"), pa.table({"id": [1]}))
    (tmp_path / "rollview.yml").write_text("name: x\nsources:\n  d: {type: delta, path: ./d}\n")
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "v.sql").write_text("SELECT id FROM d.t")
    with Project.open(tmp_path, spark) as project:
        project.setup()
        tables = project._warehouse.tables
        table = tables.of_view("v", 1).rows
        table.folder.rename(tmp_path / "moved")
        table.folder.symlink_to(tmp_path / "moved")
        with pytest.raises(LakeDamaged, match="not a table of this lake"):
            tables.drop(table)
        table.folder.unlink()
        table.folder.mkdir()
        (table.folder / "precious").write_text("mine")
        with pytest.raises(LakeDamaged, match="not a table of this lake"):
            tables.drop(table)
        assert (table.folder / "precious").exists() and (tmp_path / "moved" / "_delta_log").exists()
    assert oct((tmp_path / "lake").stat().st_mode & 0o777) == "0o700"
    assert oct((tmp_path / "lake" / "catalog.db").stat().st_mode & 0o777) == "0o600"

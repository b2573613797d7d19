"""A row that Spark cannot represent stops the views of its table, which continue once the row fits again."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from pages.what_if import what_if
from rollview.errors import PointError, SourceChanged
from rollview.project.project import Project
from servers import mariadb, postgres

pytestmark = pytest.mark.slow

Commit = Callable[[str], Any]
_BAD = {"sqlite": "'soon'", "postgres": "'infinity'", "mariadb": "'0000-00-00'"}


@contextmanager
def _database(kind: str, folder: Path) -> Iterator[tuple[str, Commit]]:
    """The source's entry in the project file, and what commits a statement there."""
    if kind == "sqlite":
        with closing(sqlite3.connect(folder / "s.db", isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = wal")
            yield "{type: sqlite, path: s.db}", connection.execute
    elif kind == "postgres":
        address = postgres.shared_server().create_database("misfits")
        try:
            with closing(psycopg.connect(address, autocommit=True)) as session:
                yield f'{{type: postgres, dsn: "{address}"}}', session.execute
        finally:
            postgres.shared_server().drop_database("misfits")
    else:
        server = mariadb.shared_server()
        dsn = server.create_database("misfits")
        with closing(server.connect("misfits")) as writer, writer.cursor() as cursor:
            cursor.execute("SET sql_mode = ''")
            yield f'{{type: mariadb, dsn: "{dsn}"}}', cursor.execute


def _rows(project: Project, name: str, point: int | None = None) -> list[int]:
    frame = project.read(name) if point is None else project.read(name, point)
    return sorted(row["id"] for row in frame.collect())


@what_if(
    "all sources",
    "a value that Spark cannot represent",
    "the views of that table are rolled to the csn before and stop, with the column, the value and the "
    "csn. Once the row is corrected or deleted at its source they continue automatically: they are "
    "reloaded at a later csn. The csn in between are not available",
)
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_views_stop_before_a_row_that_does_not_fit_and_continue_once_it_does(
    kind: str, tmp_path: Path, spark: SparkSession
) -> None:
    with _database(kind, tmp_path) as (entry, commit):
        commit("CREATE TABLE t (id INT PRIMARY KEY, d DATE)")
        commit("CREATE TABLE other (id INT PRIMARY KEY)")
        commit("INSERT INTO t VALUES (1, '2026-01-01')")
        (tmp_path / "views").mkdir()
        (tmp_path / "views" / "v.sql").write_text("CREATE MATERIALIZED VIEW v AS SELECT id, d FROM s.t;")
        (tmp_path / "views" / "w.sql").write_text("CREATE MATERIALIZED VIEW w AS SELECT id FROM s.other;")
        (tmp_path / "rollview.yml").write_text(
            f'name: misfits\nlake: ./lake\nsources:\n  s: {entry}\nviews: ["views/*.sql"]\n'
        )
        with Project.open(tmp_path, spark) as project:
            project.setup()
            _continues(project, commit, _BAD[kind])


def _continues(project: Project, commit: Commit, bad: str) -> None:
    commit("INSERT INTO t VALUES (2, '2026-01-02')")
    project.run(once=True)
    before = project.status().last_csn
    commit(f"INSERT INTO t VALUES (3, {bad})")
    commit("INSERT INTO t VALUES (4, '2026-01-04')")
    commit("INSERT INTO other VALUES (1)")
    for number in (5, 6):
        with pytest.raises(SourceChanged, match=r"s\.t\.d is read as date"):
            project.run(once=True)
        stopped, running = project.status().views
        assert (stopped.name, stopped.state, running.state) == ("v", "stopped", "running")
        assert stopped.halted is not None and stopped.halted.kind == "UnrepresentableValue"
        assert "continue automatically" in stopped.halted.hint and stopped.materialized == before
        assert (_rows(project, "v"), _rows(project, "w")) == ([1, 2], [1])
        # What does not correct the row does not help.
        commit(f"INSERT INTO t VALUES ({number}, '2026-01-05')")
    commit("UPDATE t SET d = '2026-01-03' WHERE id = 3")
    project.run(once=True)
    assert [view.state for view in project.status().views] == ["running", "running"]
    assert _rows(project, "v") == [1, 2, 3, 4, 5, 6]
    assert _rows(project, "v", before) == [1, 2]
    with pytest.raises(PointError):
        project.read("v", before + 1)
    # One that comes and goes before anybody looks.
    commit("INSERT INTO t VALUES (7, '2026-01-07')")
    commit(f"INSERT INTO t VALUES (8, {bad})")
    good = project.status().last_csn + 1
    commit("DELETE FROM t WHERE id IN (1, 8)")
    project.run(once=True)
    assert _rows(project, "v") == [2, 3, 4, 5, 6, 7]
    assert _rows(project, "v", good) == [1, 2, 3, 4, 5, 6, 7]
    commit("INSERT INTO t VALUES (9, '2026-01-09')")
    project.run(once=True)
    assert _rows(project, "v") == [2, 3, 4, 5, 6, 7, 9]
    assert all(verdict.is_right for verdict in project.verify())


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_every_row_has_to_fit_and_a_restart_forgets_nothing(
    kind: str, tmp_path: Path, spark: SparkSession
) -> None:
    """Several rows in two tables of one view, corrected one by one: by UPDATE, DELETE and emptying."""
    with _database(kind, tmp_path) as (entry, commit):
        commit("CREATE TABLE t (id INT PRIMARY KEY, d DATE)")
        commit("CREATE TABLE u (id INT PRIMARY KEY, d DATE)")
        commit("INSERT INTO t VALUES (1, '2026-01-01')")
        commit("INSERT INTO u VALUES (1, '2026-01-01')")
        (tmp_path / "views").mkdir()
        (tmp_path / "views" / "v.sql").write_text(
            "CREATE MATERIALIZED VIEW v AS SELECT t.id, t.d, u.d AS e FROM s.t JOIN s.u ON t.id = u.id;"
        )
        (tmp_path / "rollview.yml").write_text(
            f'name: misfits\nlake: ./lake\nsources:\n  s: {entry}\nviews: ["views/*.sql"]\n'
        )

        def run() -> list[int]:
            with Project.open(tmp_path, spark) as project:
                project.run(once=True)
                (view,) = project.status().views
                assert view.state == "running" and all(verdict.is_right for verdict in project.verify())
                return _rows(project, "v")

        def still_stops() -> None:
            for _ in range(2):
                with pytest.raises(SourceChanged, match="is read as date"):
                    run()

        with Project.open(tmp_path, spark) as project:
            project.setup()
        bad = _BAD[kind]
        for statement in (
            f"INSERT INTO t VALUES (2, {bad})",
            f"INSERT INTO t VALUES (3, {bad})",
            f"INSERT INTO u VALUES (2, {bad})",
            "INSERT INTO u VALUES (3, '2026-01-03')",
        ):
            commit(statement)
        still_stops()
        commit("UPDATE t SET d = '2026-01-02' WHERE id = 2")
        still_stops()
        commit("DELETE FROM t WHERE id = 3")
        still_stops()
        commit("UPDATE u SET d = '2026-01-02' WHERE id = 2")
        assert run() == [1, 2]
        commit(f"UPDATE t SET d = {bad}")
        still_stops()
        commit("DELETE FROM t" if kind == "sqlite" else "TRUNCATE TABLE t")
        assert run() == []
        commit("INSERT INTO t VALUES (3, '2026-01-03')")
        assert run() == [3]

"""Opening: a new catalog is made, an old one is migrated, a newer or foreign one is refused untouched."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from catalog_world import ORIGINS, TABLES, Both, Plan, by_hand, capture
from sqlalchemy import Connection, inspect, text

from rollview.catalog import Catalog, LoadStep, migrations
from rollview.catalog.database import Database
from rollview.catalog.schema import metadata
from rollview.errors import CatalogError, CatalogUnavailable, CatalogUrlError, InputError

WORKER = Path(__file__).with_name("catalog_worker.py")


def _file(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def _content(url: str) -> object:
    """All that is there: the file as it is, or the tables with their columns and rows."""
    if url.startswith("sqlite"):
        return _file(url).read_bytes()
    database = Database(url)
    with database.reading() as connection:
        found = inspect(connection)
        content = {
            name: (
                [(column["name"], str(column["type"])) for column in found.get_columns(name)],
                sorted(found.get_indexes(name), key=repr),
                connection.execute(text(f"SELECT * FROM {name}")).all(),
            )
            for name in found.get_table_names()
        }
    database.close()
    return content


def _open_old(url: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a catalog as an older rollview has left it."""
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:version])
        database = Database(url)
        database.migrate(1.0)
        database.close()


def test_the_migrations_make_what_the_schema_says(catalog: Catalog, url: str) -> None:
    engine = Database(url).engine
    found = inspect(engine)
    tables = {
        name: {(column["name"], str(column["type"])) for column in found.get_columns(name)}
        for name in found.get_table_names()
    }
    engine.dispose()
    kinds = {"DOUBLE": "REAL" if url.startswith("sqlite") else "DOUBLE PRECISION"}
    assert tables == {
        table.name: {(column.name, kinds.get(str(column.type), str(column.type))) for column in table.columns}
        for table in metadata.tables.values()
    }


def test_a_look_changes_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At an empty database, at a catalog of an older rollview, and at one that is up to date."""
    states = []
    empty = _file(url).touch if url.startswith("sqlite") else lambda: None
    for make in (empty, lambda: _open_old(url, 3, monkeypatch), lambda: Catalog.open(url).close()):
        make()
        before = _content(url)
        state = Catalog.inspect(url)
        states.append((state.exists, state.is_current))
        assert _content(url) == before
    assert states == [(False, False), (True, False), (True, True)]


def test_migrations_are_numbered_without_gaps() -> None:
    assert [number for number, _ in migrations.MIGRATIONS] == list(range(1, migrations.NEWEST + 1))


def test_a_catalog_lasts_and_every_commit_is_synced(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new/folders/catalog.db"
    first = Catalog.open(url)
    first.captured.register(TABLES, ORIGINS)
    identity = first.identity
    first.close()
    second = Catalog.open(url)
    assert second.identity == identity and len(second.captured.tables()) == len(TABLES)
    with second._database.writing() as connection:
        settings = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "busy_timeout")
        ]
    second.close()
    assert settings == ["wal", 2, 30000]
    assert identity != _identity_of_another(tmp_path)


def _identity_of_another(folder: Path) -> str:
    other = Catalog.open(f"sqlite:///{folder}/other.db")
    other.close()
    return other.identity


@pytest.mark.parametrize("falls", [False, True])
def test_an_old_catalog_is_migrated_with_what_it_holds(
    url: str, falls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _open_old(url, 1, monkeypatch)
    source_txids = (4, 9, 6) if falls else (4, 6, 9)
    parts = [
        f"('x', {version + 1}, {version + 1}, {source_txid}, '', '')"
        for version, source_txid in enumerate(source_txids)
    ]
    by_hand(
        url,
        "INSERT INTO site VALUES ('x', 'x', 3, 'b', 1.0), ('y.t', 'y', 0, 'y0', NULL)",
        f"INSERT INTO part VALUES {', '.join(parts)}",
        "INSERT INTO unit_of_work VALUES (1, 1.0), (2, 2.0), (3, 3.0)",
        "UPDATE catalog SET last_step = 41",
    )
    identity = by_hand(url, "SELECT identity FROM catalog")[0]["identity"]
    catalog = Catalog.open(url)
    assert by_hand(url, "SELECT version FROM schema_version ORDER BY version") == [
        {"version": number} for number, _ in migrations.MIGRATIONS
    ]
    assert catalog.identity == identity and catalog.history.last_csn() == 3
    assert [catalog.history.source_txids("x").latest(source_txid) for source_txid in range(3, 10)] == (
        [0, 1, 1, 3, 3, 3, 3] if falls else [0, 1, 1, 2, 2, 2, 3]
    )
    grown = {"x": 0 if falls else 1, "y.t": 1}
    sites = by_hand(url, "SELECT name, source_txids_grow FROM site")
    assert {each["name"]: each["source_txids_grow"] for each in sites} == grown
    with catalog.lease("work") as lease:
        assert catalog.steps.begin(lease, "x", LoadStep()).id == 42
    catalog.close()


def test_a_migration_that_fails_changes_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _open_old(url, 1, monkeypatch)
    before = _content(url)

    def half(connection: Connection) -> None:
        connection.exec_driver_sql("ALTER TABLE site ADD COLUMN half BIGINT")
        connection.exec_driver_sql("CREATE TABLE site (name TEXT)")

    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, (migrations.NEWEST + 1, half)))
        with pytest.raises(CatalogUnavailable, match=r'site"? already exists'):
            Catalog.open(url)
    assert _content(url) == before
    Catalog.open(url).close()


def test_a_newer_catalog_is_refused_untouched(url: str) -> None:
    Catalog.open(url).close()
    by_hand(url, f"INSERT INTO schema_version VALUES ({migrations.NEWEST + 1}, 1.0)")
    before = _content(url)
    with pytest.raises(CatalogError, match=f"has schema version {migrations.NEWEST + 1}") as caught:
        Catalog.open(url)
    assert "newer rollview" in caught.value.hint
    assert _content(url) == before


def test_another_programs_database_is_refused_untouched(url: str) -> None:
    by_hand(url, "CREATE TABLE customer (id INTEGER)")
    before = _content(url)
    with pytest.raises(CatalogError, match=r"is not a catalog: it holds other tables \(customer"):
        Catalog.open(url)
    assert _content(url) == before


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("lake/catalog.db", "Could not parse"),
        ("nosuchdb://host/x", "nosuchdb"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
    ],
)
def test_an_address_that_cannot_be_is_bad_input(address: str, words: str) -> None:
    with pytest.raises(CatalogUrlError, match=words) as caught:
        Catalog.open(address)
    assert isinstance(caught.value, InputError) and caught.value.hint


def test_a_file_that_is_no_database(sqlite_url: str) -> None:
    _file(sqlite_url).write_bytes(b"not a database, but long enough to be looked at " * 50)
    with pytest.raises(CatalogUnavailable, match="file is not a database"):
        Catalog.open(sqlite_url)


def test_a_password_is_never_shown() -> None:
    with pytest.raises(CatalogUrlError) as caught:
        Catalog.open("nosuchdb://me:secret@host/x")
    assert "secret" not in str(caught.value) and "secret" not in caught.value.subject


def test_a_lock_that_stays_is_an_error_and_then_work_continues(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollview.catalog.database._BUSY_SECONDS", 0.1)
    catalog = Catalog.open(sqlite_url)
    catalog.captured.register(TABLES, ORIGINS)
    both = Both()
    both.add(Plan({"x": 1}, {"x.r": 1}))
    with closing(sqlite3.connect(_file(sqlite_url), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CatalogUnavailable, match="database is locked"):
            capture(catalog, both.units)
        assert catalog.history.last_csn() == 0  # Reading is possible all the while.
        other.execute("ROLLBACK")
    capture(catalog, both.units)
    assert catalog.history.last_csn() == 1
    catalog.close()


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(2))
def test_many_processes_open_a_new_catalog_at_once(url: str, attempt: int) -> None:
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    command = [sys.executable, str(WORKER), "open", url]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(4)
    ]
    for worker in workers:
        assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    answers = {worker.communicate()[0] for worker in workers}
    assert len(answers) == 1 and len(answers.pop()) == 33, "all see the same identity"
    assert [worker.returncode for worker in workers] == [0] * 4


def test_a_new_catalog_waits_for_whoever_writes_to_its_file(tmp_path: Path) -> None:
    """While another process writes, SQLite refuses to set the write-ahead log without any waiting."""
    file = tmp_path / "catalog.db"
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.5, writer.execute, ["ROLLBACK"])
        release.start()
        Catalog.open(f"sqlite:///{file}").close()
        release.join()


@pytest.mark.parametrize("password", ["p@ss", "se/cret", "se?cret", "se#cret", "p@ss/w:rd%#1", "se cret"])
def test_a_password_that_ends_too_early_is_refused_and_not_shown(password: str) -> None:
    """Its rest would be taken for a host or a database, and shown as such."""
    with pytest.raises(CatalogUrlError, match="its password has characters that end it") as caught:
        Database(f"postgresql://u:{password}@127.0.0.1:1/db")
    shown = f"{caught.value} {caught.value.subject}"
    assert caught.value.subject == "127.0.0.1:1/db"
    assert "cret" not in shown and "p@" not in shown and "rd" not in shown.replace("password", "")
    assert Database(f"postgresql://u:{quote(password, safe='')}@127.0.0.1:1/db").place.startswith(
        "postgresql"
    )


def test_a_catalog_in_a_folder_with_an_at_sign_is_no_password(tmp_path: Path) -> None:
    assert Database(f"sqlite:///{tmp_path}/a@b/catalog.db").place.endswith("b/catalog.db")

"""What administrators do to roles, slots and servers: nothing is missed, and what is refused is said."""

from __future__ import annotations

import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from postgres_history import Database, History, bag, read, table_named

from pages.what_if import what_if
from rollview.errors import LogLost, ReadPointLost, SourceChanged, SourceFailed, SourceUnavailable
from rollview.sources.postgres import PostgresSource
from rollview.sources.postgres.embedded.server import binaries
from rollview.sources.postgres.log import damage
from rollview.sources.postgres.log.watch import Watch
from rollview.sources.postgres.read.reading import reading
from servers.ordinary_user import give
from servers.postgres import PostgresServer

pytestmark = pytest.mark.slow


def item(database: Database) -> tuple[PostgresSource, History]:
    database.execute("CREATE TABLE item (id int PRIMARY KEY)", "INSERT INTO item VALUES (1)")
    return database.ready()


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    """Our role, which is not the owner of the tables."""
    name = f"reader_{uuid.uuid4().hex[:8]}"
    database.execute(
        f"CREATE ROLE {name} LOGIN REPLICATION",
        "CREATE TABLE item (id int PRIMARY KEY)",
        "CREATE TABLE other (id int)",
        "INSERT INTO item VALUES (1), (2)",
        f"GRANT SELECT ON item, other TO {name}",
    )
    yield name
    database.execute(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


@pytest.fixture
def reader(database: Database, role: str) -> Iterator[PostgresSource]:
    """A source that logs in as our role, set up with the help of the administrator."""
    source = PostgresSource("s", database.server.dsn(database.name, role), {})
    tables = list(source.tables())
    database.execute(*source.setup(tables).needed)
    assert source.setup(tables).needed == ()
    yield source
    source.close()


@what_if(
    "PostgreSQL",
    "row security hides rows from our role",
    "an error that names the table, never a part of the rows: all sessions run with `row_security = off`."
    " When it is off, or the role has `BYPASSRLS`, `run` continues",
    under="look-ups are refused, capture continues",
)
def test_row_security_is_an_error_of_readings_and_costs_capture_nothing(
    database: Database, role: str, reader: PostgresSource
) -> None:
    """The log has all rows, whoever may see them; a reading that would lack some is refused."""
    history = History(reader)
    database.execute(
        "CREATE POLICY odd ON item USING (id % 2 = 1)", "ALTER TABLE item ENABLE ROW LEVEL SECURITY"
    )
    database.execute("INSERT INTO item VALUES (3), (4)")
    with pytest.raises(SourceFailed, match=r"row security hides rows of table s\.item") as caught:
        read(reader, "item")
    assert caught.value.subject == "s.item" and "BYPASSRLS" in caught.value.hint
    assert bag(read(reader, "other").rows[0]) == {}
    (captured,) = history.capture()
    assert bag(captured.rows["s.item"]) == {(3,): 1, (4,): 1} and history.lost == {}
    database.execute("ALTER TABLE item FORCE ROW LEVEL SECURITY", f"ALTER ROLE {role} BYPASSRLS")
    assert bag(read(reader, "item").rows[0]) == {(n,): 1 for n in (1, 2, 3, 4)}
    database.execute(f"ALTER ROLE {role} NOBYPASSRLS", "ALTER TABLE item DISABLE ROW LEVEL SECURITY")
    assert bag(read(reader, "item").rows[0]) == {(n,): 1 for n in (1, 2, 3, 4)}


def test_a_policy_that_hides_rows_is_an_error_even_if_nobody_looked(
    database: Database, reader: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("ALTER TABLE item ENABLE ROW LEVEL SECURITY")
    blind = damage._LOOK.replace("row_security_active(c.oid)", "false")
    monkeypatch.setattr(damage, "_LOOK", blind)
    with pytest.raises(SourceFailed, match="row-level security"):
        read(reader, "item")


@what_if(
    "PostgreSQL",
    "`SELECT` or `USAGE` is revoked",
    "an error that names the table; `setup` says what to grant",
    under="look-ups are refused, capture continues",
)
def test_rights_that_were_taken_away_are_an_error_of_readings(
    database: Database, role: str, reader: PostgresSource
) -> None:
    history = History(reader)
    database.execute(f"REVOKE SELECT ON item FROM {role}", "INSERT INTO item VALUES (3)")
    with pytest.raises(SourceFailed, match="item") as caught:
        read(reader, "item")
    assert "grant" in caught.value.hint
    assert [bag(each.rows["s.item"]) for each in history.capture()] == [{(3,): 1}] and history.lost == {}
    assert any("GRANT SELECT" in each for each in reader.setup(list(reader.tables())).needed)
    database.execute(f"GRANT SELECT ON item TO {role}")
    assert bag(read(reader, "item").rows[0]) == {(n,): 1 for n in (1, 2, 3)}


def test_without_privileges_a_repair_lists_what_an_administrator_must_run(
    database: Database, reader: PostgresSource
) -> None:
    history, tables = History(reader), list(reader.tables())
    ((name,),) = database.rows("SELECT pubname::text FROM pg_publication")
    for acts in (
        [f"ALTER PUBLICATION {name} SET TABLE item WHERE (id > 5), other"],
        [f"ALTER PUBLICATION {name} SET (publish = 'insert')"],
        [f"DROP PUBLICATION {name}"],
    ):
        database.execute(*acts, "INSERT INTO item SELECT max(id) + 1 FROM item")
        needed = reader.setup(tables).needed
        assert needed[0] == "BEGIN;" and needed[-1] == "COMMIT;"
        database.execute(*needed)
        assert reader.setup(tables).needed == () and reader.setup(tables).done == ()
    with pytest.raises(LogLost):
        history.capture()
    second = History(reader)
    database.execute("INSERT INTO item VALUES (100)", "DELETE FROM item WHERE id = 100")
    assert [bag(each.rows["s.item"]) for each in second.capture()] == [{(100,): 1}, {(100,): -1}]
    assert second.lost == {}


def _slot(database: Database) -> str:
    ((name,),) = database.rows(
        "SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database()"
    )
    return str(name)


@what_if(
    "PostgreSQL",
    "the slot is dropped, replaced by another one of the same name, or moved forward; its log is "
    "gone (`max_slot_wal_keep_size`)",
    "noticed when the log is opened, by the slot's position",
    under="all views of the source stop; `rollview setup --reload crm` reloads them",
)
def test_a_slot_of_the_same_name_is_another_one(database: Database) -> None:
    source, history = item(database)
    database.execute("INSERT INTO item VALUES (2)")
    history.capture(acknowledge=True)
    name = _slot(database)
    database.execute("INSERT INTO item VALUES (3)")
    database.server.free_slots(database.name)
    database.execute(f"SELECT pg_drop_replication_slot('{name}')")
    database.execute(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput', false, true)")
    database.execute("INSERT INTO item VALUES (4)")
    for opened in (source, database.source()):
        with pytest.raises(LogLost, match="past changes") as caught:
            opened.capture("s", history.log_position, 10)
        assert "--reload s" in caught.value.hint


def test_a_slot_that_was_moved_forward_is_noticed(database: Database) -> None:
    source, history = item(database)
    database.execute("INSERT INTO item VALUES (2)")
    history.capture(acknowledge=True)
    source.close()
    database.server.free_slots(database.name)
    database.execute("SET synchronous_commit = on", "INSERT INTO item VALUES (3)")
    database.execute(f"SELECT pg_replication_slot_advance('{_slot(database)}', pg_current_wal_flush_lsn())")
    database.execute("INSERT INTO item VALUES (4)")
    with pytest.raises(LogLost, match="past changes"):
        source.capture("s", history.log_position, 10)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One of its own, to be restarted."""
    opened = PostgresServer()
    opened.start()
    yield opened
    opened.remove()


@what_if(
    "PostgreSQL",
    "a standby is promoted, a backup is restored with recovery, `dsn` leads to another server",
    "noticed by the system identifier and the timeline, which every log position and every answer has",
    under="all views of the source stop; `rollview setup --reload crm` reloads them",
)
def test_a_promotion_or_a_recovery_begins_another_timeline(server: PostgresServer) -> None:
    database = Database(server, "promoted")
    source, history = item(database)
    database.execute("INSERT INTO item VALUES (2)")
    history.capture(acknowledge=True)
    read_point = read(source, "item").read_point
    database.close()
    server.stop()
    signal = server.folder / "data" / "standby.signal"
    signal.touch()
    give(signal, "nobody")
    server.start()
    server.execute("SELECT pg_promote()")
    database = _again(server, "promoted")
    database.execute("INSERT INTO item VALUES (3)")
    source = database.source()
    with pytest.raises(LogLost, match="timeline 2 in place of 1") as caught:
        source.capture("s", history.log_position, 10)
    assert "--reload s" in caught.value.hint
    # Setup alone does not make positions of another history right.
    source.setup(source.tables())
    with pytest.raises(LogLost, match="timeline 2 in place of 1"):
        source.capture("s", history.log_position, 10)
    second = History(source)
    with pytest.raises(ReadPointLost):
        source.seen("s", read_point, second)
    database.execute("INSERT INTO item VALUES (4)")
    assert [bag(each.rows["s.item"]) for each in second.capture()] == [{(4,): 1}]
    database.close()


def _again(server: PostgresServer, name: str) -> Database:
    """A database that is there."""
    opened = Database.__new__(Database)
    opened.server, opened.name, opened.dsn, opened._opened = server, name, server.dsn(name), []
    opened.writer = opened.connect()
    return opened


@what_if(
    "PostgreSQL",
    "the files of a backup are put back without recovery",
    "noticed as long as the server's log ends before the captured position",
    under="all views of the source stop; `rollview setup --reload crm` reloads them",
)
def test_files_that_were_put_back_are_a_server_at_an_earlier_state(
    server: PostgresServer, tmp_path: Path
) -> None:
    database = Database(server, "restored")
    source, history = item(database)
    database.close()
    server.stop()
    shutil.copytree(server.folder / "data", tmp_path / "copy", copy_function=shutil.copy)
    server.start()
    database = _again(server, "restored")
    source = database.source()
    database.execute("INSERT INTO item SELECT generate_series(10, 10000)")
    history.source = source
    history.capture(acknowledge=True)
    database.close()
    server.stop()
    shutil.rmtree(server.folder / "data")
    shutil.copytree(tmp_path / "copy", server.folder / "data", copy_function=shutil.copy)
    give(server.folder / "data", "nobody")
    server.start()
    database = _again(server, "restored")
    database.execute("INSERT INTO item VALUES (3)")
    with pytest.raises(LogLost, match="restored to an earlier state"):
        database.source().capture("s", history.log_position, 10)
    database.close()


@what_if(
    "PostgreSQL",
    "`pg_resetwal`, removed log files",
    "noticed when the log is opened; the slot has to be dropped, as the error says",
    under="all views of the source stop; `rollview setup --reload crm` reloads them",
)
def test_a_stream_that_cannot_be_begun_holds_up_no_server(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is shut down waits for its readers: also for one that nobody has in hand any more."""
    _, history = item(database)

    def ended(*_: object) -> None:
        raise psycopg.errors.AdminShutdown("terminating connection due to administrator command")

    with monkeypatch.context() as patch, pytest.raises(SourceUnavailable) as caught:
        patch.setattr(Watch, "observe", ended)
        history.capture()
    active = "SELECT active FROM pg_replication_slots WHERE database = current_database()"
    deadline = time.monotonic() + 60
    while database.rows(active) == [(True,)] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert database.rows(active) == [(False,)], caught.value
    database.execute("INSERT INTO item VALUES (2)")
    assert len(history.capture()) == 1


def test_log_that_was_thrown_away_is_lost(server: PostgresServer) -> None:
    """By pg_resetwal, or by whoever removes files."""
    database = Database(server, "reset")
    _, history = item(database)
    database.execute("INSERT INTO item VALUES (2)")
    database.close()
    server.stop()
    resetwal = [str(server._bin / "pg_resetwal"), "-f", "-D", str(server.folder / "data")]
    subprocess.run(resetwal, check=True, capture_output=True, user=server._user, cwd=server.folder)
    server.start()
    database = _again(server, "reset")
    database.execute("INSERT INTO item VALUES (3)")
    source = database.source()
    with pytest.raises(LogLost, match="has already been removed") as caught:
        source.capture("s", history.log_position, 10)
    assert "--reload s" in caught.value.hint
    # The slot does not know, so an administrator follows the hint.
    database.server.free_slots(database.name)
    database.execute(caught.value.hint.split("`")[1])
    source.setup(source.tables())
    second = History(source)
    database.execute("INSERT INTO item VALUES (4)")
    assert [bag(each.rows["s.item"]) for each in second.capture()] == [{(4,): 1}]
    database.close()


@pytest.fixture(scope="module")
def newest() -> Iterator[PostgresServer]:
    """The newest version that is there, which is another one than that of most tests."""
    opened = PostgresServer(bin_folder=binaries())
    opened.start()
    yield opened
    opened.remove()


def test_another_server_behind_the_same_address_is_noticed(
    database: Database, newest: PostgresServer
) -> None:
    source, history = item(database)
    # Servers of one version are copies of one folder here, and so have one identity.
    other = Database(newest, "elsewhere")
    elsewhere, _ = item(other)
    with pytest.raises(LogLost, match="the server is another one"):
        elsewhere.capture("s", history.log_position, 10)
    with pytest.raises(ReadPointLost):
        elsewhere.seen("s", read(source, "item").read_point, History(elsewhere))
    other.close()


def test_a_generated_column_with_another_expression_is_a_loss(newest: PostgresServer) -> None:
    """The server recomputes it for all rows, and logs nothing."""
    database = Database(newest, "generated")
    database.execute(
        "CREATE TABLE item (id int PRIMARY KEY, size int, twice int GENERATED ALWAYS AS (size * 2) STORED)",
        "INSERT INTO item VALUES (1, 10)",
    )
    source, history = database.ready()
    assert table_named(source, "item").columns == ("id", "size", "twice")
    database.execute("VACUUM FULL item", "INSERT INTO item VALUES (2, 20)")
    assert [bag(each.rows["s.item"]) for each in history.capture()] == [{(2, 20, 40): 1}]
    assert history.lost == {}
    database.execute("ALTER TABLE item ALTER twice SET EXPRESSION AS (size * 3)")
    history.capture()
    assert "table s.item was rewritten, and its column twice altered" in history.lost["s.item"].message
    database.close()


def test_a_look_up_waits_for_nobody_and_holds_up_no_writer(database: Database) -> None:
    """Tables are locked as any query locks them: writers continue, and so does a look-up while they write."""
    source, _ = item(database)
    other = database.connect()
    other.execute("BEGIN")
    other.execute("INSERT INTO item VALUES (2)")
    began = time.monotonic()
    assert bag(read(source, "item").rows[0]) == {(1,): 1}
    assert time.monotonic() - began < 5
    other.execute("COMMIT")


def test_a_table_that_is_renamed_during_a_reading_waits_until_it_is_over(database: Database) -> None:
    """The name that was looked at is the one that is read."""
    source, _ = item(database)
    table = table_named(source, "item")
    rename = database.connect()
    rename.execute("SET lock_timeout = '200ms'")
    with (
        reading(source._connections, source._workers, source._watch, {"item": ("id",)}),
        pytest.raises(psycopg.errors.LockNotAvailable),
    ):
        rename.execute("ALTER TABLE item RENAME TO gone")
    rename.execute("ALTER TABLE item RENAME TO gone")
    with pytest.raises(SourceChanged, match=r"table s\.item was renamed to public\.gone"):
        source.read({table: ("id",)}, Path("unused"))

"""Acts that concern the whole server: another log, another server, a log that lacks changes."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from mariadb_acts import prepare, writing
from mariadb_database import Database, History, counted

from pages.what_if import what_if
from rollview.errors import LogLost, RollviewError, SourceChanged, SourceFailed
from rollview.sources.mariadb import MariaDBSource
from rollview.sources.mariadb.binlog.server_log import server_state
from servers.mariadb import ADMIN, PASSWORD, MariaDBServer
from servers.ordinary_user import give

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[MariaDBServer]:
    """A server that a test may do anything to."""
    made = MariaDBServer().start()
    yield made
    made.close()


@pytest.fixture
def captured(server: MariaDBServer) -> Iterator[Database]:
    """A database with two tables that are captured."""
    database = Database(server, "shop")
    prepare(database)
    yield database
    database.source.close()


def read_point(database: Database) -> str:
    tables = database.tables()
    return database.source.read({tables["t"]: ("id",)}, Path("/nonexistent")).read_point


@pytest.mark.parametrize("grows", [False, True])
def test_a_log_that_is_reset_while_it_is_read(captured: Database, grows: bool) -> None:
    history = History(captured.source)
    with writing(captured) as barrier:
        barrier.wait()
        barrier.wait()
    history.capture()
    assert history.seen(read_point(captured)) is not None
    # Files are identified by the second in which they were begun.
    time.sleep(1.1)
    captured.execute("RESET MASTER")
    captured.execute("INSERT INTO t VALUES (5000, 'x', 1)")
    after = read_point(captured)
    # What is read now is not taken for something that was captured, although its place is a smaller one.
    assert history.seen(after) is None
    if grows:
        with closing(captured.connect()) as writer:
            for number in range(6000, 6300):
                writer.query(f"INSERT INTO t VALUES ({number}, 'x', 1)")
    with pytest.raises(LogLost, match="not the file that was captured" if grows else "the log was reset"):
        history.capture()
    assert history.seen(after) is None
    if not grows:
        # The tables are registered with places of the old log, before which nothing would be captured.
        stale = History(captured.source)
        stale.capture()
        assert "another binary log" in stale.noticed["s.t"].message
    captured.setup("t", "healthy")
    fresh = History(captured.source)
    captured.execute("INSERT INTO t VALUES (7000, 'x', 1)")
    assert len(fresh.capture()) == 1 and fresh.seen(read_point(captured)) is not None


@what_if(
    "MariaDB",
    "another server at the same address, a promoted replica, a server restored from a backup",
    "the source's views stop; `rollview setup --reload store`",
    "log, read points",
    under="all views of the source stop",
)
def test_another_server_at_the_same_address(server: MariaDBServer, captured: Database) -> None:
    history = History(captured.source)
    captured.execute("INSERT INTO t VALUES (5, 'x', 5)")
    history.capture()
    time.sleep(1.1)
    server.stop()
    other = MariaDBServer()
    other.port = server.port
    try:
        database = Database(other.start(), "shop")
        prepare(database)
        # It has the same tables, registered as well, and its log has files of the same names.
        with pytest.raises(LogLost):
            history.capture()
        assert history.seen(read_point(database)) is None
        with closing(other.connect("shop")) as writer:
            for number in range(1000, 1100):
                writer.query(f"INSERT INTO t VALUES ({number}, 'x', 1)")
        with pytest.raises(LogLost, match="not the file that was captured"):
            history.capture()
        database.source.close()
    finally:
        other.close()


@pytest.mark.parametrize("rows", [1, 300])
def test_a_server_restored_from_a_backup(
    server: MariaDBServer, captured: Database, tmp_path: Path, rows: int
) -> None:
    server.stop()
    shutil.copytree(server.folder / "data", tmp_path / "backup")
    server.start()
    history = History(captured.source)
    with closing(captured.connect()) as writer:
        for number in range(1000, 1050):
            writer.query(f"INSERT INTO t VALUES ({number}, 'lost', 1)")
    history.capture()
    captured.source.close()
    time.sleep(1.1)
    server.stop()
    shutil.rmtree(server.folder / "data")
    shutil.copytree(tmp_path / "backup", server.folder / "data")
    if server._user:
        give(server.folder, server._user)
    server.start()
    with closing(captured.connect()) as writer:
        for number in range(2000, 2000 + rows):
            writer.query(f"INSERT INTO t VALUES ({number}, 'new', 1)")
    assert history.seen(read_point(captured)) is None
    with pytest.raises(LogLost):
        history.capture()


def test_a_restarted_server_is_the_same_one(server: MariaDBServer, captured: Database) -> None:
    history = History(captured.source)
    captured.execute("INSERT INTO t VALUES (5, 'x', 5)")
    history.capture()
    # Another number in a replication, another name: nothing of that changes the log.
    server.restart(server_id="77")
    before = history.log_position
    assert history.capture() == [] and history.log_position != before
    captured.execute("INSERT INTO t VALUES (6, 'x', 6)")
    point = read_point(captured)
    assert history.seen(point) is None
    assert len(history.capture()) == 1
    seen = history.seen(point)
    assert seen is not None and seen.upto == 2


@what_if(
    "MariaDB",
    "`binlog_ignore_db`, `binlog_do_db`, or a server that is started without its log",
    "all tables of the database are lost",
    "look",
    under="all tables of the database are lost",
)
@pytest.mark.parametrize(
    ("setting", "value", "why"),
    [
        ("binlog-ignore-db", "shop", "binlog_ignore_db"),
        ("binlog-do-db", "other", "binlog_do_db"),
        ("skip-log-bin", "", "writes no binary log"),
    ],
)
def test_a_server_that_stops_logging_the_database(
    server: MariaDBServer, captured: Database, setting: str, value: str, why: str
) -> None:
    tables = captured.tables()
    history = History(captured.source)
    captured.execute("INSERT INTO t VALUES (5, 'x', 5)")
    history.capture()
    options = dict(server.options)
    server.stop()
    server.options[setting] = value
    if setting == "skip-log-bin":
        server.options.pop("log-bin")
    server.start()
    captured.execute("INSERT INTO t VALUES (6, 'unseen', 6)")
    batch = captured.source.capture("s", history.log_position, 10)
    assert batch.transactions == () and batch.lost.keys() == {"s.t", "s.healthy"}
    assert why in batch.lost["s.t"].message
    with pytest.raises(RollviewError, match=why):
        captured.source.read({tables["t"]: ("id",)}, Path("/nonexistent"))
    assert captured.source.check([tables["t"]]).needed
    # Afterwards nothing shows any more; the capture before has reported it.
    server.stop()
    server.options = options
    server.start()
    assert history.capture() == [] and not history.noticed


@what_if(
    "MariaDB",
    "the server becomes a replica without `log_slave_updates`",
    "all tables of the database are lost",
    "look",
    under="all tables of the database are lost",
)
@what_if(
    "MariaDB",
    "`replicate_*` filters of a replica",
    "nothing: what it does not apply is not in its tables",
    under="nothing stops",
)
def test_a_replica_that_does_not_log_what_it_replicates(captured: Database) -> None:
    """Captured as a server of its own; then somebody makes it a replica."""
    origin = MariaDBServer({"server-id": "2"}).start()
    try:
        origin.execute("CREATE DATABASE feed", "CREATE DATABASE shop")
        history = History(captured.source)
        captured.execute(
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {origin.port},"
            f" MASTER_USER = '{ADMIN}', MASTER_PASSWORD = '{PASSWORD}', MASTER_USE_GTID = no",
            "SET GLOBAL replicate_do_db = 'nothing'",
            "START SLAVE",
        )
        deadline = time.monotonic() + 30
        while captured.execute("SHOW GLOBAL STATUS LIKE 'Slaves_running'") == (("Slaves_running", "0"),):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        history.capture()
        assert "log_slave_updates" in history.noticed["s.t"].message
        tables = captured.tables()
        with pytest.raises(SourceChanged, match="log_slave_updates"):
            captured.source.read({tables["t"]: ("id",)}, Path("/nonexistent"))
        assert any("log_slave_updates" in line for line in captured.source.check([tables["t"]]).needed)
        captured.execute("STOP SLAVE")
    finally:
        origin.close()


def test_a_server_that_shuts_down_is_no_replica(captured: Database, server: MariaDBServer) -> None:
    """On its way out MariaDB counts itself among the replicas that run."""
    found: list[str] = []

    def ask() -> None:
        with suppress(Exception), closing(captured.connect()) as connection, connection.cursor() as cursor:
            while True:
                found.append(server_state(cursor, "shop").lacks)

    asking = [threading.Thread(target=ask) for _ in range(8)]
    for round_ in range(4):
        for thread in asking:
            thread.start()
        time.sleep(0.5)
        server.stop()
        for thread in asking:
            thread.join()
        if round_ < 3:
            server.start()
            asking = [threading.Thread(target=ask) for _ in range(8)]
    assert len(found) > 50 and set(found) == {""}
    server.start()


@what_if(
    "MariaDB",
    "`SELECT` is revoked",
    "an error that names the table; `setup` says what to grant",
    under="look-ups are refused, capture continues",
)
def test_rights_that_were_taken_away_are_an_error_of_readings(captured: Database) -> None:
    user = "reader@'127.0.0.1'"
    captured.execute(f"CREATE USER {user} IDENTIFIED BY 'pw'", f"GRANT SELECT ON t TO {user}")
    tables = captured.tables()
    mine = [tables["t"], tables["healthy"]]
    reader = MariaDBSource("s", captured.server.dsn("shop", "reader", "pw"), {"registry": "reader"})
    with closing(reader):
        while needed := reader.setup(mine).needed:
            captured.execute(*needed)
        history = History(reader)
        captured.execute(
            f"REVOKE SELECT ON t FROM {user}",
            "INSERT INTO t VALUES (5000, 'x', 1)",
            "INSERT INTO healthy VALUES (5000, 'x')",
        )
        with pytest.raises(SourceFailed, match="`t`") as caught:
            reader.read({tables["t"]: ("id",)}, Path("/nonexistent"))
        assert "grant" in caught.value.hint
        assert len(history.capture()) == 2 and history.noticed == {}
        assert {table.name for table in reader.tables()} >= {"t", "healthy"}
        needed = reader.setup(list(reader.tables())).needed
        assert [line for line in needed if "GRANT SELECT" in line and "`t`" in line]
        captured.execute(*needed)
        assert reader.setup(mine).needed == ()
        assert counted(reader.read({tables["t"]: ("id",)}, Path("/nonexistent")).rows[0])[5000,] == 1
        assert history.capture() == [] and history.noticed == {}

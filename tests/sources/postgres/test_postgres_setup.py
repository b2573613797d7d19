"""setup and remove: what is left at the server, what an administrator is asked for, what is refused."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from functools import partial
from threading import Thread
from typing import Any
from urllib.parse import quote

import pytest
from postgres_history import Database, History, bag, read

from rollview.algebra.relation import ForeignKey
from rollview.errors import (
    AccessDenied,
    CaptureRefused,
    InputError,
    LogLost,
    NotSetUp,
    OptionError,
    SourceUnavailable,
)
from rollview.sources.postgres import PostgresSource
from servers.postgres import PostgresServer

pytestmark = pytest.mark.slow

PASSWORD = "s3cr3t/öw&rd"


def items(database: Database) -> None:
    database.execute(
        "CREATE TABLE item (id int PRIMARY KEY, size int)",
        "CREATE TABLE part (id int PRIMARY KEY, item int REFERENCES item)",
        "CREATE UNIQUE INDEX part_item ON part (item, id)",
        "ALTER TABLE part ALTER item SET NOT NULL",
        "ALTER TABLE part REPLICA IDENTITY USING INDEX part_item",
        "INSERT INTO item VALUES (1, 1)",
    )


def traces(database: Database) -> list[Any]:
    return [
        database.rows(
            "SELECT relname::text, relreplident::text FROM pg_class WHERE relkind = 'r' ORDER BY 1, 2"
        ),
        database.rows("SELECT pubname::text, obj_description(oid) FROM pg_publication"),
        database.rows("SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database()"),
        database.rows("SELECT indexrelid::regclass::text FROM pg_index WHERE indisreplident ORDER BY 1"),
        database.rows(
            "SELECT oid::int8, obj_description(oid, 'pg_largeobject') FROM pg_largeobject_metadata"
        ),
    ]


def test_setup_says_what_it_did_and_remove_leaves_nothing(database: Database) -> None:
    items(database)
    before = traces(database)
    source = database.source()
    prepared = source.setup(source.tables())
    assert prepared.needed == () and prepared.warnings == ()
    assert any("slot" in line for line in prepared.done) and any("item" in line for line in prepared.done)
    during = traces(database)
    assert source.setup(source.tables()).done == () and traces(database) == during != before
    assert dict(during[0])["part"] == "f"
    History(source).capture()
    removed = source.remove()
    assert len(removed.done) >= 3 and traces(database) == before
    assert source.remove().done == ()
    with pytest.raises(NotSetUp):
        source.current_position("s")


def test_tables_are_let_go_and_taken_in_while_capture_continues(database: Database) -> None:
    items(database)
    source, history = database.ready("item", "part")
    tables = {table.name: table for table in source.tables()}
    database.execute("INSERT INTO item VALUES (2, 2)")
    history.capture()
    assert any("part" in line for line in source.setup([tables["item"]]).done)
    assert database.rows("SELECT relreplident::text FROM pg_class WHERE relname = 'part'") == [("i",)]
    database.execute("INSERT INTO part VALUES (1, 1)", "INSERT INTO item VALUES (3, 3)")
    assert [set(each.rows) for each in history.capture()] == [{"s.item"}]
    # Another process takes the table in again; this one learns of it from the log.
    other = database.source()
    other.setup(list(tables.values()))
    database.execute("INSERT INTO part VALUES (2, 1)")
    assert [bag(each.rows["s.part"]) for each in history.capture()] == [{(2, 1): 1}]


def test_a_table_is_taken_in_only_when_nobody_has_half_written_it(database: Database) -> None:
    """A transaction that wrote the table before it was published would be captured by half."""
    items(database)
    database.execute("ALTER TABLE part REPLICA IDENTITY FULL")
    source, history = database.ready("item")
    tables = list(source.tables())
    other = database.connect()
    other.execute("BEGIN")
    other.execute("INSERT INTO part VALUES (1, 1)")
    thread = Thread(target=lambda: source.setup(tables))
    thread.start()
    thread.join(1.0)
    assert thread.is_alive(), "setup did not wait"
    other.execute("INSERT INTO part VALUES (2, 1)")
    other.execute("COMMIT")
    thread.join(120)
    found = read(source, "part")
    assert bag(found.rows[0]) == {(1, 1): 1, (2, 1): 1}
    assert history.changes("part", history.seen(found.read_point)) == {}
    database.execute("INSERT INTO part VALUES (3, 1)")
    assert [bag(each.rows["s.part"]) for each in history.capture()] == [{(3, 1): 1}]


def test_tables_tell_keys_and_enforced_foreign_keys(database: Database) -> None:
    items(database)
    database.execute(
        "CREATE TABLE loose (a int NOT NULL, b text NOT NULL, c int UNIQUE, UNIQUE (b, a))",
        "CREATE TABLE unchecked (item int)",
        "ALTER TABLE unchecked ADD FOREIGN KEY (item) REFERENCES item NOT VALID",
        "CREATE TABLE quiet (item int REFERENCES item)",
        "ALTER TABLE quiet DISABLE TRIGGER ALL",
        "CREATE TABLE partial (a int NOT NULL)",
        "CREATE UNIQUE INDEX ON partial (a) WHERE a > 0",
        "CREATE VIEW shown AS SELECT 1 AS one",
        "CREATE SCHEMA other CREATE TABLE hidden (id int)",
    )
    tables = {table.name: table for table in database.source().tables()}
    assert tables["item"].key == ("id",) and tables["part"].key == ("id",)
    assert tables["part"].foreign_keys == (ForeignKey(("item",), "s.item"),)
    assert tables["loose"].key == ("b", "a")
    assert tables["unchecked"].foreign_keys == tables["quiet"].foreign_keys == ()
    assert tables["partial"].key == ()
    assert "shown" not in tables and "hidden" not in tables
    assert "other.hidden" in tables
    assert [table.name for table in database.source(schemas="other").tables()] == ["hidden"]


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (["CREATE UNLOGGED TABLE t (id int)"], "unlogged"),
        (
            [
                "CREATE TABLE t (id int) PARTITION BY RANGE (id)",
                "CREATE UNLOGGED TABLE part PARTITION OF t DEFAULT",
            ],
            r"partition public\.part is unlogged",
        ),
        (["CREATE TABLE t (id int)", "CREATE TABLE child () INHERITS (t)"], "inherit"),
        (["CREATE TABLE t (id int, _count int)"], "_count"),
    ],
)
def test_what_cannot_be_captured_exactly_is_refused(
    database: Database, statements: list[str], reason: str
) -> None:
    database.execute(*statements)
    source, before = database.source(), traces(database)
    with pytest.raises(CaptureRefused, match=reason):
        source.setup([table for table in source.tables() if table.name == "t"])
    assert traces(database) == before


def test_a_dropped_slot_is_a_clear_error_and_setup_begins_again(database: Database) -> None:
    items(database)
    source, history = database.ready()
    database.execute("INSERT INTO item VALUES (2, 2)")
    history.capture(acknowledge=True)
    source.close()
    database.server.free_slots(database.name)
    slots = "pg_replication_slots WHERE database = current_database()"
    drop = f"SELECT pg_drop_replication_slot(slot_name) FROM {slots}"
    database.execute(drop, "INSERT INTO item VALUES (3, 3)")
    with pytest.raises(LogLost, match="dropped") as caught:
        source.capture("s", history.log_position, 10)
    assert "`rollview setup --reload s`" in caught.value.hint
    # A new slot does not bring back what is gone.
    assert source.setup(source.tables()).done
    with pytest.raises(LogLost, match="past changes"):
        source.capture("s", history.log_position, 10)
    second = History(source)
    database.execute("INSERT INTO item VALUES (4, 4)")
    assert [bag(each.rows["s.item"]) for each in second.capture()] == [{(4, 4): 1}]


def test_two_readers_take_turns(database: Database) -> None:
    """Who holds the lease captures; the slot goes from one process to the other."""
    items(database)
    one, history = database.ready()
    other = database.source()
    for number in range(2, 8):
        database.execute(f"INSERT INTO item VALUES ({number}, 0)")
        batch = (one if number % 2 else other).capture("s", history.log_position, 10)
        history.keep(batch.transactions, batch.log_position)
    assert [list(bag(each.rows["s.item"])) for each in history.transactions] == [
        [(n, 0)] for n in range(2, 8)
    ]


@pytest.fixture
def stranger(database: Database) -> Iterator[str]:
    """A role that may log in, and nothing else."""
    role = f"stranger_{uuid.uuid4().hex[:8]}"
    database.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
    yield role
    database.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_without_privileges_setup_lists_what_an_administrator_must_run(
    database: Database, stranger: str
) -> None:
    items(database)
    before = traces(database)
    source = PostgresSource("s", database.server.dsn(database.name, stranger), {})
    tables = list(source.tables())
    prepared = source.setup(tables)
    assert traces(database) == before and prepared.done == ()
    text = "\n".join(prepared.needed)
    for part in ("REPLICATION", "GRANT SELECT", "REPLICA IDENTITY FULL", "CREATE PUBLICATION", "ADD TABLE"):
        assert part in text
    # The very statements that are shown are enough.
    database.execute(*prepared.needed)
    again = source.setup(tables)
    assert again.needed == () and any("slot" in line for line in again.done)
    history = History(source)
    database.execute("INSERT INTO item VALUES (2, 2)")
    assert bag(read(source, "item").rows[0]) == {(1, 1): 1, (2, 2): 1}
    assert [bag(each.rows["s.item"]) for each in history.capture()] == [{(2, 2): 1}]
    removed = source.remove()
    assert removed.needed
    database.execute(*removed.needed)
    source.close()
    assert traces(database) == before


def test_row_security_that_hides_rows_is_refused(database: Database, stranger: str) -> None:
    database.execute(
        "CREATE TABLE t (id int)",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        f"GRANT SELECT ON t TO {stranger}",
    )
    source = PostgresSource("s", database.server.dsn(database.name, stranger), {})
    with pytest.raises(CaptureRefused, match="row security"):
        source.setup(source.tables())
    source.close()


def test_a_server_that_does_not_log_enough_is_reported() -> None:
    server = PostgresServer({"wal_level": "replica", "max_replication_slots": "0", "max_wal_senders": "0"})
    server.start()
    try:
        database = Database(server, "plain")
        items(database)
        source = database.source()
        needed = "\n".join(source.setup(source.tables()).needed)
        assert (
            "wal_level = 'logical'" in needed
            and "max_replication_slots = 4" in needed
            and "restart" in needed
        )
        database.close()
    finally:
        server.remove()


def test_secrets_are_in_no_error_and_no_description(database: Database, stranger: str) -> None:
    server = database.server
    address = f"{stranger}:{quote(PASSWORD, safe='')}@127.0.0.1"
    dead = f"postgresql://{address}:1/x?connect_timeout=2"
    for dsn in (dead, f"host=127.0.0.1 port=1 user={stranger} password='{PASSWORD}'"):
        source = PostgresSource("s", dsn, {"timeout": "2"})
        described = source.describe()
        assert "unavailable" in described["server"]
        for action in (source.tables, partial(source.setup, []), partial(source.capture, "s", "0/1", 1)):
            with pytest.raises(SourceUnavailable) as caught:
                action()
            chain = [caught.value, caught.value.__cause__]
            assert all("s3cr3t" not in repr(each) for each in chain)
        assert "s3cr3t" not in json.dumps(dict(described))
    live = PostgresSource("s", f"postgresql://{address}:{server.port}/{database.name}", {})
    assert "s3cr3t" not in json.dumps(dict(live.describe()))
    live.close()
    with pytest.raises(InputError) as refused:
        PostgresSource("s", f"postgresql://u:{quote(PASSWORD)}@host/db?{quote(PASSWORD)}=1", {})
    assert "s3cr3t" not in repr(refused.value)


def test_a_server_that_does_not_let_us_in_is_not_away() -> None:
    """A wrong password, an unknown user or database: another way out than for a server that is down."""
    server = PostgresServer()
    server.start()
    try:
        rules = server.folder / "data" / "pg_hba.conf"
        asked = "host all reader 127.0.0.1/32 scram-sha-256\nhost all nobody 127.0.0.1/32 reject\n"
        rules.write_text(asked + rules.read_text())
        server.execute("CREATE ROLE reader SUPERUSER LOGIN PASSWORD 'right'")
        server.execute("CREATE ROLE guest")
        server.execute("SELECT pg_reload_conf()")
        for dsn in (
            server.dsn("postgres", "reader", "wrong"),
            server.dsn("postgres", "reader"),
            server.dsn("postgres", "stranger"),
            server.dsn("postgres", "nobody"),
            server.dsn("postgres", "guest"),
            server.dsn("nowhere"),
        ):
            source = PostgresSource("s", dsn, {"timeout": "2"})
            with pytest.raises(AccessDenied) as caught:
                source.tables()
            assert "password" in caught.value.hint and caught.value.retryable
        source = PostgresSource("s", server.dsn("postgres", "reader", "right"), {})
        assert source.tables() == ()
        source.close()
    finally:
        server.remove()


@pytest.mark.parametrize(
    "options", [{"tiemout": "1"}, {"timeout": "soon"}, {"timeout": "-1"}, {"slot": "Not allowed"}]
)
def test_bad_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        PostgresSource("s", "postgresql://localhost/x", options)


def test_names_at_the_server_differ_between_databases_and_can_be_chosen(database: Database) -> None:
    items(database)
    one, two = database.source(), database.source(slot="mine")
    for source in (one, two):
        source.setup([table for table in source.tables() if table.name == "item"])
    names = {name for (name,) in traces(database)[2]}
    assert "mine" in names and len(names) == 2 and all(len(name) <= 63 for name in names)
    histories = [History(one), History(two)]
    database.execute("INSERT INTO item VALUES (2, 2)")
    assert [len(history.capture()) for history in histories] == [1, 1]
    long = PostgresSource("x" * 100, database.dsn, {})
    assert len(long.describe()["capture"].rpartition(" ")[2]) <= 63
    long.close()


def test_describe_shows_what_the_server_keeps(database: Database) -> None:
    items(database)
    source = database.source()
    assert source.describe()["tables"] == "not set up"
    assert source.kept_log_bytes() is None
    source.setup(source.tables())
    kept = source.kept_log_bytes()
    database.execute("INSERT INTO item SELECT i, i FROM generate_series(1000, 3000) i")
    assert kept is not None
    # Without synchronous commits the server writes its log a little later, and much later if it is busy.
    waited_until = time.monotonic() + 60
    while (source.kept_log_bytes() or 0) <= kept + 10_000:
        assert time.monotonic() < waited_until
        time.sleep(0.1)
    described = source.describe()
    assert (
        described["server"].startswith("PostgreSQL ")
        and described["tables"] == "item, part"
        and "MB" in described["kept log"]
    )
    with pytest.raises(InputError, match="no site"):
        source.current_position("elsewhere")
    # A slot of another database is not touched.
    database.server.execute("SELECT pg_create_logical_replication_slot('of_others', 'pgoutput')")
    with pytest.raises(CaptureRefused, match="used for something else"):
        database.source(slot="of_others").setup(source.tables())
    database.server.execute("SELECT pg_drop_replication_slot('of_others')")


def test_a_table_that_others_came_to_inherit_from_is_let_go(database: Database) -> None:
    """The children were never published: a publication that is asked to drop them, too, refuses."""
    database.execute("CREATE TABLE t (id int)", "CREATE TABLE other (id int)")
    source, _ = database.ready()
    database.execute("CREATE TABLE child () INHERITS (t)")
    done = source.setup([table for table in source.tables() if table.name == "other"])
    assert not done.needed
    assert database.rows("SELECT tablename FROM pg_publication_tables") == [("other",)]

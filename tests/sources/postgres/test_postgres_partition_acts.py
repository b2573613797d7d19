"""Partitions come and go: without rows nothing stops; rows that come or go with them are never missed."""

from __future__ import annotations

import re
import threading
import time

import psycopg
import pytest
from partitioned_table import ADD, ATTACH, FILL, LIKE, Ledger, identities, ready, write
from postgres_history import Database, History, bag, table_named
from test_postgres_partitions import event_trigger

from pages.what_if import what_if
from rollview.sources.postgres.position import log_position_of
from rollview.sources.source import Loss

pytestmark = pytest.mark.slow

BORN = {
    "a partition": [ADD],
    "with its first rows": ["BEGIN", ADD, "INSERT INTO event VALUES (40, 4, 'x'), (41, 4, 'y')", "COMMIT"],
    "with a default and a key of its own": [
        ADD.replace("FOR VALUES", "(note DEFAULT 'none', UNIQUE (id)) FOR VALUES")
    ],
    "a partition of a partition": ["CREATE TABLE event_2c PARTITION OF event_2 DEFAULT", ADD],
    "partitioned itself": [
        "BEGIN",
        f"{ADD} PARTITION BY HASH (id)",
        "CREATE TABLE event_4a PARTITION OF event_4 FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
        "CREATE TABLE event_4b PARTITION OF event_4 FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        "COMMIT",
    ],
    "in a subtransaction": [f"DO $$ BEGIN BEGIN {ADD}; EXCEPTION WHEN others THEN RAISE; END; END $$"],
    "renamed since": [ADD, "ALTER TABLE event_4 RENAME TO event_next"],
    "altered since": [ADD, "ALTER TABLE event ALTER note SET STATISTICS 5", "ANALYZE event"],
}


@what_if(
    "PostgreSQL",
    "`CREATE TABLE … PARTITION OF`, also while rollview is stopped",
    "harmless: it is captured from its first row on",
    under="nothing stops",
)
@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "while it is stopped"])
@pytest.mark.parametrize("acts", BORN.values(), ids=BORN)
def test_a_partition_that_is_created_stops_nothing(
    database: Database, acts: list[str], is_running: bool
) -> None:
    """Next month's partition. Nobody has to come, and capture sees to its replica identity."""
    ledger = ready(database)
    database.execute(*acts)
    if not is_running:
        database.execute("INSERT INTO event SELECT n, 4, 'later' FROM generate_series(50, 60) n")
    ledger.check()
    assert set(identities(database).values()) == {"f"}
    write(database, 1, 2, 3, 4)
    ledger.check()
    # Neither setup nor a new process finds anything to do.
    assert database.source().setup([table_named(ledger.source, "event")]).done == ()
    later = History(database.source(), ledger.history.log_position)
    database.execute("INSERT INTO event VALUES (200, 4, 'z')")
    assert len(later.capture()) == 1 and later.lost == {}


EMPTY = {
    "attached": [LIKE, ATTACH],
    "attached in one transaction": ["BEGIN", LIKE, ATTACH, "COMMIT"],
    "attached after it was emptied": [LIKE, FILL, "TRUNCATE event_4", ATTACH],
    "attached with partitions": [
        f"{LIKE} PARTITION BY HASH (id)",
        "CREATE TABLE event_4a PARTITION OF event_4 FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
        ATTACH,
    ],
}


@what_if(
    "PostgreSQL",
    "an empty table is attached as a partition",
    "harmless, if capture sees it while it has no rows",
    under="nothing stops",
)
@pytest.mark.parametrize("acts", EMPTY.values(), ids=EMPTY)
def test_an_empty_table_that_is_attached_stops_nothing(database: Database, acts: list[str]) -> None:
    ledger = ready(database)
    database.execute(*acts)
    ledger.check()
    write(database, 1, 2, 3, 4)
    ledger.check()
    position = log_position_of(ledger.history.log_position)
    assert not any(link.until for links in position.partitions.values() for link in links.values())


FULL = "ALTER TABLE event_4 REPLICA IDENTITY FULL"
CAME_OR_WENT = {
    "attached with rows": ([LIKE, FILL, ATTACH], r"table public\.event_4 was attached to table s\.event"),
    "created, filled and attached in one transaction": (
        ["BEGIN", LIKE, FILL, ATTACH, "COMMIT"],
        r"table public\.event_4 was attached",
    ),
    "attached with rows in partitions": (
        [
            f"{LIKE} PARTITION BY HASH (id)",
            "CREATE TABLE event_4a PARTITION OF event_4 FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
            FILL,
            ATTACH,
        ],
        r"table public\.event_4a was attached",
    ),
    "attached, and its rows deleted": (
        [LIKE, FILL, ATTACH, FULL, "DELETE FROM event WHERE month = 4"],
        "was attached",
    ),
    "attached, its rows deleted, their room given back": (
        [LIKE, FILL, ATTACH, FULL, "DELETE FROM event WHERE month = 4", "VACUUM event_4"],
        "was attached",
    ),
    "unlogged for a while": (
        [ADD.replace("TABLE", "UNLOGGED TABLE"), FILL, "ALTER TABLE event_4 SET LOGGED"],
        "was attached",
    ),
    "detached": (["ALTER TABLE event DETACH PARTITION event_1"], "was dropped or detached"),
    "detached, concurrently": (
        ["ALTER TABLE event DETACH PARTITION event_1 CONCURRENTLY"],
        "was dropped or detached",
    ),
    "a partition of a partition detached": (
        ["ALTER TABLE event_2 DETACH PARTITION event_2b"],
        "was dropped or detached",
    ),
    "detached with partitions": (["ALTER TABLE event DETACH PARTITION event_2"], "was dropped or detached"),
    "dropped": (["DROP TABLE event_1"], r"a partition of table s\.event was dropped or detached"),
    "detached, changed, attached again": (
        [
            "ALTER TABLE event DETACH PARTITION event_1",
            "UPDATE event_1 SET note = 'changed'",
            "ALTER TABLE event ATTACH PARTITION event_1 FOR VALUES FROM (1) TO (2)",
        ],
        r"partition public\.event_1 of table s\.event was detached",
    ),
    "dropped and created again": (
        ["DROP TABLE event_1", "CREATE TABLE event_1 PARTITION OF event FOR VALUES FROM (1) TO (2)"],
        "was dropped or detached",
    ),
    "exchanged": (
        [
            "BEGIN",
            "ALTER TABLE event DETACH PARTITION event_1",
            "CREATE TABLE event_new AS SELECT id, month, 'exchanged' AS note FROM event_1",
            "ALTER TABLE event_new ALTER id SET NOT NULL, ALTER month SET NOT NULL",
            "ALTER TABLE event ATTACH PARTITION event_new FOR VALUES FROM (1) TO (2)",
            "COMMIT",
        ],
        "was dropped or detached",
    ),
    "truncated": (["TRUNCATE event_1"], r"partition public\.event_1 of table s\.event was truncated"),
    "the table truncated": (["TRUNCATE event"], r"of table s\.event was truncated|table s\.event was"),
    "there for a moment": ([ADD, FILL, "DROP TABLE event_4"], "came and went"),
}


DETACHED = """SELECT c.relname FROM pg_class c
    WHERE c.relkind = 'r' AND c.relname LIKE 'event%' AND c.relreplident = 'f' AND (
      SELECT r.relname FROM pg_class r WHERE r.oid = pg_partition_root(c.oid)) IS DISTINCT FROM 'event'
    ORDER BY c.relname"""


@what_if(
    "PostgreSQL",
    "a partition is created, filled and dropped between two polls",
    "noticed in the log, at the transactions that changed it; `run` reloads the views of the table "
    "automatically",
)
@pytest.mark.parametrize(("acts", "reason"), CAME_OR_WENT.values(), ids=CAME_OR_WENT)
def test_rows_that_come_or_go_with_a_partition_make_the_table_begin_again(
    database: Database, acts: list[str], reason: str
) -> None:
    """It is said once; whoever reads from then on finds all that is captured from then on."""
    ledger = ready(database)
    write(database, 1, 2, 3)
    database.execute(*acts)
    ((month,),) = database.rows(f"SELECT {1 if 'event_2' in acts[0] else 2}")
    database.execute(f"INSERT INTO event VALUES (500, {month}, 'x')")
    lost = ledger.capture()
    assert lost.keys() == {"s.event"} and lost["s.event"].is_truncate
    assert re.search(reason, lost["s.event"].message), lost
    assert ledger.capture() == {}
    again = Ledger(database, ledger.source)
    database.execute("DELETE FROM event WHERE id = 500", f"INSERT INTO event VALUES (501, {month}, 'y')")
    again.check()
    wanted = [table_named(ledger.source, "event")]
    # What is a table of its own now gets its replica identity back; nothing else has to be done.
    detached = [f"table {name} logs old rows as before" for (name,) in database.rows(DETACHED)]
    assert sorted(database.source().setup(wanted).done) == detached
    assert database.source().setup(wanted).done == ()


def test_a_partition_that_is_newer_than_setup_is_missed_when_it_goes(database: Database) -> None:
    """Setup knows the partitions of its own time, a log position those that were captured."""
    ledger = ready(database)
    database.execute(ADD, "INSERT INTO event VALUES (40, 4, 'x')")
    ledger.check()
    database.execute("DROP TABLE event_4")
    stale = History(database.source(), ledger.history.log_position)
    stale.capture()
    assert "was dropped or detached" in stale.lost["s.event"].message


def test_changes_of_a_partition_that_is_gone_do_not_come_late(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look at the server is ahead of the log: what is left there of the partition counts for nothing."""
    ledger = ready(database)
    reader = ledger.source._log
    original = reader._filled

    def filled(connection: psycopg.Connection[tuple[object, ...]], after: str, limit: int) -> object:
        stream, _ = original(connection, after, limit)
        database.execute("INSERT INTO event VALUES (70, 1, 'late')", "DROP TABLE event_1")
        return stream, reader._watch.observe(connection)

    with monkeypatch.context() as patched:
        patched.setattr(reader, "_filled", filled)
        batch = ledger.source.capture("s", ledger.history.log_position, 1000)
    assert batch.transactions == () and "dropped or detached" in batch.lost["s.event"].message
    again = History(ledger.source, batch.log_position)
    database.execute("INSERT INTO event VALUES (71, 2, 'next')")
    assert [bag(each.rows["s.event"]) for each in again.capture()] == [{(71, 2, "next"): 1}]
    assert again.lost == {}
    position = log_position_of(again.log_position)
    assert not any(link.is_gone for links in position.partitions.values() for link in links.values())


def test_a_table_that_was_seen_empty_and_was_not_is_noticed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look at the server is ahead of the log, where the attached table's old rows are still deleted."""
    ledger = ready(database)
    reader = ledger.source._log
    original = reader._filled

    def filled(connection: psycopg.Connection[tuple[object, ...]], after: str, limit: int) -> object:
        stream, _ = original(connection, after, limit)
        database.execute(LIKE, FULL, FILL, ATTACH, "DELETE FROM event WHERE month = 4", "VACUUM event_4")
        return stream, reader._watch.observe(connection)

    with monkeypatch.context() as patched:
        patched.setattr(reader, "_filled", filled)
        batch = ledger.source.capture("s", ledger.history.log_position, 1000)
    if database.rows("SELECT pg_relation_size('event_4')::int") == [(0,)]:
        assert batch.lost == {}
        (only,) = History(database.source(), batch.log_position).capture()
        assert "table public.event_4 was attached" in only.lost["s.event"].message
    else:
        assert "was attached" in batch.lost["s.event"].message


def test_replay_knows_partitions_that_are_gone_by_now(database: Database) -> None:
    ledger = ready(database)
    start = ledger.history.log_position
    database.execute(
        ADD, "INSERT INTO event VALUES (40, 4, 'x')", "UPDATE event SET note = 'y' WHERE month = 1"
    )
    batch = ledger.source.capture("s", start, 1000)
    assert batch.lost == {} and len(batch.transactions) == 2
    database.execute("DROP TABLE event_4", "DROP TABLE event_1")
    txids = [each.source_txid for each in batch.transactions]
    again = database.source().replay("s", start, txids, batch.log_position)
    rows = [bag(each.rows["s.event"]) for each in batch.transactions]
    assert [bag(each.rows["s.event"]) for each in again.transactions] == rows


def test_oracle_partitions_come_and_go_under_writers(database: Database) -> None:
    """After each act the table is right all the time, or begins again and is right then."""
    ledger = ready(database)
    database.execute(event_trigger())
    stop = threading.Event()
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with psycopg.connect(database.dsn, autocommit=True) as connection:
                for count in range(1_000_000):
                    key, month = 1000 * number + count % 50, count % 4 + 1
                    try:
                        connection.execute(
                            f"INSERT INTO event VALUES ({key}, {month}, 'w') ON CONFLICT DO NOTHING".encode()
                        )
                        connection.execute(
                            f"UPDATE event SET month = {(count + 1) % 4 + 1} WHERE id = {key}"
                            f" AND month = {month}".encode()
                        )
                        connection.execute(f"DELETE FROM event WHERE id = {key - 7}".encode())
                    except (psycopg.errors.CheckViolation, psycopg.errors.UniqueViolation):
                        pass  # There is no partition for it, or the row is in another one.
                    if stop.wait(0.02):
                        return
        except BaseException as error:
            errors.append(error)

    acts: list[tuple[list[str], bool | None]] = [
        ([ADD], False),
        (["DROP TABLE event_4"], True),
        # Whether it is seen empty before old rows of it are changed is a matter of chance.
        ([LIKE, ATTACH], None),
        (["ALTER TABLE event DETACH PARTITION event_4"], True),
        (["DROP TABLE event_4", LIKE, FILL, ATTACH], True),
        (["TRUNCATE event_1"], True),
    ]
    writers = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for each in writers:
        each.start()
    try:
        for statements, is_loss in acts:
            database.execute(*statements)
            lost: dict[str, Loss] = {}
            for _ in range(3):
                lost |= ledger.capture()
                time.sleep(0.05)
            assert is_loss is None or bool(lost) == is_loss, (statements, lost)
            if lost:
                ledger = Ledger(database, ledger.source)
                assert ledger.lost == {}
            ledger.check_reading()
            ledger.check_reading()
    finally:
        stop.set()
        for each in writers:
            each.join()
    assert not errors
    ledger.check()

"""Partitioned tables under their own name: what is captured of them, look-ups and loads."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from partitioned_table import ADD, ATTACH, EVENT, LIKE, Ledger, identities, ready, write
from postgres_history import Database, History, add, bag, net, read, table_named

from pages.what_if import what_if
from rollview.errors import CaptureRefused, SourceChanged
from rollview.rows import FileScan
from rollview.sources.postgres import PostgresSource
from rollview.sources.postgres.position import LogPosition, PartitionLink, log_position_of
from rollview.sources.postgres.read import load as load_module
from rollview.sources.postgres.read.load import chunks
from rollview.sources.source import Comparison, Lookup

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "postgresql.md"


def event_trigger() -> str:
    """The statements that the docs give to administrators."""
    text = PAGE.read_text()
    begin = text.index("CREATE FUNCTION rollview_partitions")
    return text[begin : text.index("```", begin)]


def test_log_positions_with_partitions_can_be_written_and_read() -> None:
    links = {7: PartitionLink(733), 9: PartitionLink(741, 5 << 32 | 0xAB), 11: PartitionLink(7, 12, True)}
    position = LogPosition(20, 10, "77/1", {5: links, 6: {}})
    assert log_position_of(str(position)) == position
    assert str(position) == "0/14 from 0/A at 77/1 over 5:7=733,9=741@5/AB,11=7!0/C;6:"


def test_changes_of_all_partitions_are_changes_of_the_table(database: Database) -> None:
    database.execute(*EVENT)
    before = identities(database)
    source = database.source()
    table = table_named(source, "event")
    assert [each.name for each in source.tables()] == ["event"]
    assert table.columns == ("id", "month", "note") and table.key == ("id", "month")
    source.setup([table])
    assert identities(database) == {"event_1": "f", "event_2a": "f", "event_2b": "f"}
    assert source.setup([table]).done == ()
    ledger = Ledger(database, source)
    write(database, 1, 2, 3)
    database.execute(
        "BEGIN",
        "INSERT INTO event VALUES (100, 1, 'a'), (100, 2, 'b'), (100, 3, NULL)",
        "UPDATE event_2b SET note = 'direct' WHERE id = 100",
        "COMMIT",
    )
    ledger.check()
    # A transaction over several partitions is one, and a row that moves is deleted and inserted.
    rows = bag(ledger.history.transactions[-1].rows["s.event"])
    assert rows == {(100, 1, "a"): 1, (100, 2, "b"): 1, (100, 3, "direct"): 1}
    database.execute("UPDATE event SET id = 101, month = 2 WHERE id = 100 AND month = 1")
    database.execute("DELETE FROM event WHERE id = 100")
    ledger.check()
    source.remove()
    assert identities(database) == before


def test_a_partitioned_table_without_a_key(database: Database) -> None:
    """Equal rows in one partition and in two, and one of two that is updated."""
    database.execute(
        "CREATE TABLE event (id int, month int, note text) PARTITION BY LIST (month)",
        "CREATE TABLE event_1 PARTITION OF event FOR VALUES IN (1)",
        "CREATE TABLE event_rest PARTITION OF event DEFAULT",
        "INSERT INTO event VALUES (1, 1, 'a'), (1, 1, 'a'), (1, 2, 'a')",
    )
    source, _ = database.ready()
    ledger = Ledger(database, source)
    database.execute("UPDATE event_1 SET note = 'b' WHERE ctid = (SELECT min(ctid) FROM event_1)")
    ledger.check()
    database.execute("UPDATE event SET month = 1")
    database.execute("DELETE FROM event_1 WHERE ctid = (SELECT max(ctid) FROM event_1)")
    ledger.check()
    assert database.rows("SELECT count(*)::int FROM event") == [(2,)]


def test_look_ups_read_all_partitions(database: Database) -> None:
    source = ready(database).source
    table = table_named(source, "event")
    keys = pa.table({"id": pa.array([1, 2, 3, 77], pa.int32())})
    found = source.lookup(
        [
            Lookup(table, ("id", "note"), keys=keys),
            Lookup(table, ("id",), conditions=(Comparison("month", "=", (3,)),)),
        ]
    )
    assert bag(found.rows[0]) == {(1, "first"): 1, (2, "first"): 1, (3, "first"): 1}
    assert bag(found.rows[1]) == {(2,): 1, (5,): 1, (8,): 1}


@pytest.mark.parametrize("may_read_partitions", [True, False])
def test_oracle_large_partitions_come_in_files_while_writers_write(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, may_read_partitions: bool
) -> None:
    monkeypatch.setattr(load_module, "LARGE_BYTES", 100_000)
    monkeypatch.setattr(load_module, "_PART_BYTES", 60_000)
    fill = "INSERT INTO event SELECT n, n % 2 + 1, repeat('x', n % 40) FROM generate_series(10, 6000) n"
    database.execute(*EVENT, fill)
    source, history = database.ready()
    if not may_read_partitions:
        stored = load_module._Stored
        monkeypatch.setattr(load_module, "_Stored", lambda *row: stored(*row[:-1], False))
    table = table_named(source, "event")
    initial = bag(source.read({table: table.columns}, tmp_path).rows[0])
    one_at_a_time = threading.Lock()

    def write_between(*arguments: object) -> object:
        """Rows move to other pages and other partitions before they are read."""
        with one_at_a_time, psycopg.connect(database.dsn, autocommit=True) as connection:
            connection.execute("UPDATE event SET month = 3 - month WHERE id % 5 = 0 AND month < 3")
            connection.execute("DELETE FROM event WHERE id = (SELECT min(id) FROM event)")
        return chunks(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(load_module, "chunks", write_between)
    found = source.read({table: table.columns}, tmp_path)
    assert isinstance(found.rows[0], FileScan)
    assert (len(found.rows[0].files) > 3) == may_read_partitions
    expected = history.changes("event", history.seen(found.read_point))
    add(expected, initial)
    assert bag(found.rows[0]) == net(expected)


@what_if(
    "PostgreSQL",
    "rows of a new partition are updated or deleted before it has `REPLICA IDENTITY FULL`",
    "noticed in the log, at that transaction; see [partitioned tables](#partitioned-tables)",
    under="the views of that table stop; `rollview setup` reloads them",
)
def test_old_rows_of_a_new_partition_that_we_do_not_own(database: Database) -> None:
    """Insertions pass. What cannot be known is a loss, and says what to do; setup does not insist on it."""
    role = f"reader_of_{database.name}"
    database.execute(*EVENT, f"CREATE ROLE {role} LOGIN REPLICATION", f"GRANT SELECT ON event TO {role}")
    reader = PostgresSource("s", database.dsn.replace("postgres@", f"{role}@"))
    try:
        table = table_named(reader, "event")
        needed = reader.setup([table]).needed
        assert sum("REPLICA IDENTITY FULL" in line for line in needed) == 3
        database.execute(*needed)
        reader.setup([table])
        history = History(reader)
        database.execute(ADD, "INSERT INTO event VALUES (40, 4, 'x')")
        (inserted,) = history.capture()
        assert bag(inserted.rows["s.event"]) == {(40, 4, "x"): 1} and history.lost == inserted.lost == {}
        assert reader.describe()["replica identity"] == "not FULL: public.event_4"
        again = reader.setup([table])
        assert again.needed == again.done == () and "event_4" in again.warnings[0]
        database.execute(
            "UPDATE event SET note = 'y' WHERE month = 4", "INSERT INTO event VALUES (99, 1, 'z')"
        )
        updated, later = history.capture()
        loss = updated.lost["s.event"]
        assert loss.message.startswith("partition public.event_4 of table s.event was changed while")
        assert "`ALTER TABLE public.event_4 REPLICA IDENTITY FULL`" in loss.hint
        assert later.lost == {} and not loss.is_truncate
        database.execute("ALTER TABLE event_4 REPLICA IDENTITY FULL")
        assert "replica identity" not in reader.describe() and reader.setup([table]).warnings == ()
        database.execute("DELETE FROM event WHERE month = 4")
        (deleted,) = history.capture()
        assert bag(deleted.rows["s.event"]) == {(40, 4, "y"): -1}
        # It may read the table, and not the partitions alone.
        assert bag(read(reader, "event").rows[0]) == Counter(database.rows("SELECT * FROM event"))
    finally:
        reader.close()
        database.server.free_slots(database.name)
        database.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_the_event_trigger_of_the_docs_sets_replica_identities(database: Database) -> None:
    """There is no moment at which a new partition does not have it."""
    ledger = ready(database)
    database.execute(event_trigger())
    database.execute(ADD, "UPDATE event SET month = 4 WHERE month = 1", "DELETE FROM event WHERE month = 4")
    assert identities(database)["event_4"] == "f"
    database.execute("ALTER TABLE event DETACH PARTITION event_1", "DROP TABLE event_1")
    database.execute(
        LIKE.replace("event_4", "event_1"),
        ATTACH.replace("event_4", "event_1").replace("FROM (4) TO (5)", "FROM (1) TO (2)"),
    )
    assert identities(database)["event_1"] == "f"
    database.execute(
        "CREATE TABLE plain (id int PRIMARY KEY)",
        "CREATE TABLE parts (id int) PARTITION BY LIST (id)",
        "CREATE TABLE parts_rest PARTITION OF parts DEFAULT",
    )
    assert identities(database)["parts_rest"] == "d"
    assert ledger.capture().keys() == {"s.event"}
    Ledger(database, ledger.source).check()


@what_if(
    "PostgreSQL",
    "a partition is unlogged, or a foreign table",
    "noticed; `setup` refuses such tables",
    under="the views of that table stop; `rollview setup` reloads them",
)
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("CREATE UNLOGGED TABLE x PARTITION OF event FOR VALUES FROM (4) TO (5)", "x is unlogged"),
        ("CREATE FOREIGN TABLE x PARTITION OF event DEFAULT SERVER far", "x is a foreign table"),
    ],
)
def test_partitions_without_a_log_are_noticed_and_refused(
    database: Database, statement: str, reason: str
) -> None:
    ledger = ready(database)
    if "FOREIGN" in statement:
        database.execute(
            "ALTER TABLE event DROP CONSTRAINT event_pkey", "CREATE FOREIGN DATA WRAPPER nothing"
        )
        database.execute("CREATE SERVER far FOREIGN DATA WRAPPER nothing")
    database.execute(statement)
    assert reason in ledger.capture()["s.event"].message
    with pytest.raises(SourceChanged, match=reason):
        read(ledger.source, "event")
    with pytest.raises(CaptureRefused, match=reason):
        ledger.source.setup([table_named(ledger.source, "event")])


@what_if(
    "PostgreSQL",
    "a partition is added to the publication alone, where it may have a filter",
    "noticed, because the partitioned table alone is in the publication",
    under="the views of that table stop; `rollview setup` reloads them",
)
def test_a_partition_in_the_publication_on_its_own_is_noticed(database: Database) -> None:
    """There it could have a row filter, which the server would apply."""
    ledger = ready(database)
    ((name,),) = database.rows("SELECT pubname::text FROM pg_publication")
    database.execute(f"ALTER PUBLICATION {name} ADD TABLE event_1 WHERE (id > 5)")
    assert "was put into the publication on its own" in ledger.capture()["s.event"].message
    done = ledger.source.setup([table_named(ledger.source, "event")]).done
    assert "partition event_1 is published with its table alone" in done
    assert database.rows("SELECT prrelid::regclass::text FROM pg_publication_rel") == [("event",)]
    read(ledger.source, "event")


def test_what_is_done_to_columns_of_a_partitioned_table(database: Database) -> None:
    ledger = ready(database)
    for statement in (
        "ALTER TABLE event ADD COLUMN more int DEFAULT 7",
        "ALTER TABLE event ALTER note SET DEFAULT 'none'",
        "ALTER TABLE event ALTER note TYPE varchar",
        "CREATE INDEX ON event (note)",
        "VACUUM FULL event_1",
        "ALTER TABLE event DROP COLUMN more",
    ):
        database.execute(statement)
        write(database, 1, 2, 3)
        ledger.check()
    database.execute("ALTER TABLE event ALTER note TYPE varchar USING upper(note)")
    loss = ledger.capture()["s.event"]
    assert "was rewritten" in loss.message and loss.columns == ("note",)
    database.execute("ALTER TABLE event RENAME note TO remark")
    assert "was dropped or renamed" in ledger.capture()["s.event"].message

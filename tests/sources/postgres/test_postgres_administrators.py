"""An administrator is asked once, an owner's publication is left alone, and dropped views need nobody."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest
from postgres_history import Database, History, bag, read, table_named

from pages.what_if import what_if
from rollview.errors import CaptureRefused, InputError, SourceFailed
from rollview.sources.postgres import PostgresSource

pytestmark = pytest.mark.slow


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    """A role that may log in, and nothing else."""
    name = f"Stranger {uuid.uuid4().hex[:8]}"
    database.execute(
        f'CREATE ROLE "{name}" LOGIN',
        "CREATE TABLE item (id int PRIMARY KEY, size int)",
        "CREATE TABLE part (id int PRIMARY KEY)",
        "INSERT INTO item VALUES (1, 1)",
        "CREATE SCHEMA private CREATE TABLE secret (id int)",
    )
    yield name
    database.execute(f'DROP OWNED BY "{name}"', f'DROP ROLE "{name}"')


def opened(database: Database, role: str, **options: str) -> PostgresSource:
    dsn = f"host=127.0.0.1 port={database.server.port} dbname={database.name} user='{role}'"
    return PostgresSource("s", dsn, options)


def identities(database: Database) -> dict[str, str]:
    rows = database.rows("SELECT relname::text, relreplident::text FROM pg_class WHERE relkind = 'r'")
    return {name: identity for name, identity in rows if name in ("item", "part", "later", "secret")}


def members(database: Database) -> set[str]:
    return {name for (name,) in database.rows("SELECT prrelid::regclass::text FROM pg_publication_rel")}


def publications(database: Database) -> list[Any]:
    return database.rows("SELECT oid, xmin::text, obj_description(oid) FROM pg_publication ORDER BY 1")


def test_one_script_lets_a_whole_schema_be_captured(database: Database, role: str) -> None:
    source = opened(database, role)
    script = source.schema_statements("public")
    before = (identities(database), publications(database))
    assert before[1] == [], "the script is only written"
    database.execute("\n".join(script))
    # Every table of the schema, those of later and of somebody else too, and nobody is asked again.
    assert source.setup([table_named(source, "item")]).needed == ()
    history = History(source)
    database.execute("CREATE TABLE later (id int PRIMARY KEY)", "INSERT INTO item VALUES (2, 2)")
    prepared = source.setup([table_named(source, "item"), table_named(source, "later")])
    assert prepared.needed == () and "table later is now captured" in prepared.done
    database.execute("UPDATE item SET size = 5 WHERE id = 1", "INSERT INTO later VALUES (1)")
    changes = [{name: bag(rows) for name, rows in each.rows.items()} for each in history.capture()]
    assert changes == [
        {"s.item": {(2, 2): 1}},
        {"s.item": {(1, 1): -1, (1, 5): 1}},
        {"s.later": {(1,): 1}},
    ]
    assert bag(read(source, "later").rows[0]) == {(1,): 1} and history.lost == {}
    assert members(database) == {"item", "later"}
    # A table that is let go is as it was.
    assert "table later is no longer captured" in source.setup([table_named(source, "item")]).done
    assert members(database) == {"item"} and identities(database)["later"] == "d"
    # What others did to the publication is mended.
    ((name,),) = database.rows("SELECT pubname::text FROM pg_publication")
    database.execute(f"ALTER PUBLICATION {name} SET TABLE item WHERE (size > 3)")
    assert source.setup([table_named(source, "item")]).needed == ()
    assert database.rows("SELECT prqual FROM pg_publication_rel") == [(None,)]
    removed = source.remove()
    database.execute(*removed.needed)
    source.close()
    assert (identities(database), publications(database)) == ({**before[0], "later": "d"}, [])
    assert database.rows("SELECT FROM pg_proc WHERE proname LIKE 'rollview%'") == []
    assert database.rows("SELECT FROM pg_largeobject_metadata") == []


def test_partitions_of_later_log_old_rows_in_full_by_the_function(database: Database, role: str) -> None:
    database.execute(
        "CREATE TABLE log (id int, day int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        "CREATE TABLE log_1 PARTITION OF log FOR VALUES FROM (0) TO (10)",
    )
    source = opened(database, role)
    database.execute("\n".join(source.schema_statements("public")))
    prepared = source.setup([table_named(source, "log")])
    assert prepared.needed == () and prepared.warnings == () and members(database) == {"log"}
    history = History(source)
    database.execute(
        "CREATE TABLE log_2 PARTITION OF log FOR VALUES FROM (10) TO (20)",
        "INSERT INTO log VALUES (1, 1), (2, 11)",
    )
    assert [bag(each.rows["s.log"]) for each in history.capture()] == [{(1, 1): 1, (2, 11): 1}]
    full = "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relreplident = 'f' ORDER BY 1"
    assert database.rows(full) == [("log_1",), ("log_2",)]
    database.execute("DELETE FROM log")
    assert [bag(each.rows["s.log"]) for each in history.capture()] == [{(1, 1): -1, (2, 11): -1}]
    assert history.lost == {}
    # Let go, and as they were.
    assert source.setup([table_named(source, "item")]).needed == ()
    assert database.rows(full) == [("item",)] and members(database) == {"item"}
    database.execute(*source.remove().needed)
    source.close()
    assert database.rows(full) == []


def test_a_table_of_another_schema_still_needs_its_owner(database: Database, role: str) -> None:
    source = opened(database, role)
    database.execute("\n".join(source.schema_statements("public")))
    tables = [table_named(source, "item"), table_named(source, "private.secret")]
    needed = "\n".join(source.setup(tables).needed)
    assert 'GRANT USAGE ON SCHEMA "private"' in needed and 'ADD TABLE "private"."secret"' in needed
    with pytest.raises(InputError, match="has no schema nowhere"):
        source.schema_statements("nowhere")
    database.execute(*source.remove().needed)
    source.close()


def test_the_function_does_nothing_but_that_for_nobody_else(database: Database, role: str) -> None:
    source = opened(database, role)
    database.execute("\n".join(source.schema_statements("public")))
    ((name,),) = database.rows("SELECT proname::text FROM pg_proc WHERE proname LIKE 'rollview%'")
    ((secret, item),) = database.rows(
        "SELECT 'private.secret'::regclass::oid::int8, 'item'::regclass::oid::int8"
    )
    dsn = f"host=127.0.0.1 port={database.server.port} dbname={database.name} user='{role}'"
    call = f"SELECT public.{name}(%s, %s::oid, %s)"
    with psycopg.connect(dsn, autocommit=True) as ours:
        for act, table, identity, error in (
            ("capture", secret, "", psycopg.errors.InsufficientPrivilege),
            ("log", secret, "", psycopg.errors.InsufficientPrivilege),
            ("release", secret, "NOTHING", psycopg.errors.InsufficientPrivilege),
            ("capture", 0, "", psycopg.errors.InsufficientPrivilege),
            ("drop", item, "", psycopg.errors.InvalidParameterValue),
            ("release", item, "item_pkey; DROP TABLE item", psycopg.errors.UndefinedObject),
        ):
            with pytest.raises(error):
                ours.execute(call.encode(), (act, table, identity))
        # What stands in for its tools elsewhere on the search path is not called.
        ours.execute("CREATE TEMP TABLE pg_class (oid oid)")
        ours.execute(call.encode(), ("capture", item, ""))
    assert members(database) == {"item"} and identities(database)["secret"] == "d"
    other = f"other_{uuid.uuid4().hex[:8]}"
    database.execute(f"CREATE ROLE {other} LOGIN")
    with (
        psycopg.connect(database.server.dsn(database.name, other), autocommit=True) as theirs,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        theirs.execute(call.encode(), ("capture", item, ""))
    database.execute(f"DROP ROLE {other}", *source.remove().needed)
    source.close()


def test_a_function_that_would_run_with_our_rights_is_not_called(database: Database, role: str) -> None:
    """Whoever may create functions in the schema could wait for us to call one."""
    source = opened(database, role)
    slot = source.describe()["capture"].rpartition(" ")[2]
    other = f"other_{uuid.uuid4().hex[:8]}"
    body = "LANGUAGE plpgsql AS $$BEGIN RAISE 'called'; END$$"
    create = f'CREATE FUNCTION public."{slot}"(text, oid, text) RETURNS void'
    database.execute(f"CREATE ROLE {other}", "GRANT CREATE ON SCHEMA public TO PUBLIC")
    for security in ("SECURITY INVOKER", "SECURITY DEFINER"):
        database.execute(
            f"SET ROLE {other}", f"{create} {security} {body}", "RESET ROLE",
        )  # fmt: skip
        needed = source.setup([table_named(source, "item")]).needed
        assert any("ADD TABLE" in each for each in needed)
        database.execute(f'DROP FUNCTION public."{slot}"')
    database.execute(f"DROP OWNED BY {other}", f"DROP ROLE {other}")
    source.close()


def test_views_over_known_tables_come_and_go_without_an_administrator(database: Database, role: str) -> None:
    """The publication is the administrator's, so nothing is taken out of it; what is captured we say."""
    database.execute(
        'CREATE UNIQUE INDEX "by; ""id" ON item (id)',
        'ALTER TABLE item REPLICA IDENTITY USING INDEX "by; ""id"',
    )
    source = opened(database, role)
    item, part = table_named(source, "item"), table_named(source, "part")
    few = item.only(["id"])
    database.execute(*source.setup([few, part]).needed)
    assert source.setup([few, part]).needed == ()
    history = History(source)
    gone = source.setup([few])
    assert gone.needed == () and "table part is no longer captured" in gone.done
    database.execute("INSERT INTO part VALUES (1)", "INSERT INTO item VALUES (2, 2)")
    assert [set(each.rows) for each in history.capture()] == [{"s.item"}]
    # More columns of a table, and a table that was let go before.
    assert source.setup([item, part]).needed == ()
    second = History(source)
    database.execute("INSERT INTO part VALUES (2)", "UPDATE item SET size = 9 WHERE id = 2")
    assert [bag(rows) for each in second.capture() for rows in each.rows.values()] == [
        {(2,): 1},
        {(2, 2): -1, (2, 9): 1},
    ]
    assert second.lost == {} and source.setup([item, part]).done == ()
    # What was let go is given back with all else.
    source.setup([few])
    database.execute(*source.remove().needed)
    source.close()
    assert identities(database) == {"item": "i", "part": "d", "secret": "d"}
    assert publications(database) == []


PUBLICATIONS = {
    "tables": 'CREATE PUBLICATION "Theirs" FOR TABLE item, part',
    "schema": 'CREATE PUBLICATION "Theirs" FOR TABLES IN SCHEMA public',
    "all": 'CREATE PUBLICATION "Theirs" FOR ALL TABLES',
}


@pytest.mark.parametrize("create", PUBLICATIONS.values(), ids=PUBLICATIONS)
def test_an_owners_publication_is_used_and_left_alone(database: Database, role: str, create: str) -> None:
    database.execute(create, "COMMENT ON PUBLICATION \"Theirs\" IS 'ours'")
    source, before = opened(database, role, publication="Theirs"), publications(database)
    tables = [table_named(source, "item"), table_named(source, "part")]
    needed = source.setup(tables).needed
    assert not any("PUBLICATION" in each for each in needed), "nothing is missing there"
    assert any("REPLICA IDENTITY FULL" in each for each in needed)
    database.execute(*needed)
    assert source.setup(tables).needed == ()
    history = History(source)
    database.execute("UPDATE item SET size = 7", "INSERT INTO part VALUES (1)")
    assert [bag(rows) for each in history.capture() for rows in each.rows.values()] == [
        {(1, 1): -1, (1, 7): 1},
        {(1,): 1},
    ]
    # Tables come and go, and so does all of it; the publication is what it was.
    assert source.setup(tables[:1]).needed == ()
    assert publications(database) == before
    database.execute(*source.remove().needed)
    source.close()
    assert publications(database) == before and database.rows("SELECT FROM pg_largeobject_metadata") == []
    # What the administrator has altered for a publication of theirs is theirs to take back.
    assert identities(database) == {"item": "f", "part": "f", "secret": "d"}


def test_what_an_owners_publication_lacks_is_reported(database: Database, role: str) -> None:
    database.execute(
        "CREATE PUBLICATION theirs FOR TABLE item WHERE (size > 3) WITH (publish = 'insert')",
        "ALTER TABLE item REPLICA IDENTITY FULL",
        "ALTER TABLE part REPLICA IDENTITY FULL",
        f'GRANT SELECT ON item, part TO "{role}"',
        f'ALTER ROLE "{role}" REPLICATION',
    )
    source, before = opened(database, role, publication="theirs"), publications(database)
    tables = [table_named(source, "item"), table_named(source, "part")]
    needed = source.setup(tables).needed
    assert publications(database) == before
    assert [each.partition(" WITH")[0] for each in needed[1:-1]] == [
        "ALTER PUBLICATION \"theirs\" SET (publish = 'insert, update, delete, truncate',"
        " publish_via_partition_root = false);",
        'ALTER PUBLICATION "theirs" DROP TABLE "public"."item";',
        'ALTER PUBLICATION "theirs" ADD TABLE "public"."item";',
        'ALTER PUBLICATION "theirs" ADD TABLE "public"."part";',
    ]
    database.execute(*needed)
    assert source.setup(tables).needed == ()
    source.close()
    nobody = opened(database, role, publication="nobodys")
    with pytest.raises(CaptureRefused, match="no publication nobodys"):
        nobody.setup(tables)
    nobody.close()


ACTS = {
    "taken out": (
        "tables",
        ["ALTER PUBLICATION {p} DROP TABLE item"],
        "was taken out of the publication",
        {"s.item"},
    ),
    "filtered for a while": (
        "tables",
        [
            "ALTER PUBLICATION {p} SET TABLE item WHERE (size > 3), part",
            "ALTER PUBLICATION {p} SET TABLE item, part",
        ],
        "had a filter for a while",
        {"s.item"},
    ),
    "the schema taken out and put back": (
        "schema",
        [
            "ALTER PUBLICATION {p} DROP TABLES IN SCHEMA public",
            "ALTER PUBLICATION {p} ADD TABLES IN SCHEMA public",
        ],
        "was taken out of the publication and put back",
        {"s.item", "s.part"},
    ),
    "publishes less": (
        "all",
        ["ALTER PUBLICATION {p} SET (publish = 'insert')"],
        "does not publish all changes any more",
        {"s.item", "s.part"},
    ),
    "replaced": (
        "all",
        ["BEGIN", "DROP PUBLICATION {p}", "CREATE PUBLICATION {p} FOR ALL TABLES", "COMMIT"],
        "was replaced by another one",
        {"s.item", "s.part"},
    ),
}


@what_if(
    "PostgreSQL",
    "all of that in a publication that the project file names: also a schema taken out of it, or put back",
    "noticed by the rows in the catalog by which tables are in it; only its owner can repair it",
    under="the views of that table stop; `rollview setup` reloads them",
)
@pytest.mark.parametrize("name", ACTS)
def test_what_happens_to_an_owners_publication_is_noticed(database: Database, role: str, name: str) -> None:
    kind, acts, reason, lost = ACTS[name]
    database.execute(PUBLICATIONS[kind])
    source, history = database.ready("item", "part", publication="Theirs")
    database.execute(*(act.format(p='"Theirs"') for act in acts), "INSERT INTO item VALUES (5, 5)")
    history.capture()
    assert history.lost.keys() == lost
    assert all(reason in loss.message for loss in history.lost.values())
    assert database.rows("SELECT obj_description(oid) FROM pg_publication") == [(None,)]
    source.close()


def test_a_table_is_registered_when_all_are_gone_who_had_written_it(database: Database, role: str) -> None:
    """Nobody waits behind us, and those who come meanwhile are captured as a whole."""
    database.execute(PUBLICATIONS["tables"].replace(", part", ""))
    source, history = database.ready("item", publication="Theirs")
    early, late = database.connect(), database.connect()
    early.execute("BEGIN")
    early.execute("INSERT INTO part VALUES (1)")
    database.execute('ALTER PUBLICATION "Theirs" ADD TABLE part')
    early.execute("INSERT INTO part VALUES (2)")
    late.execute("BEGIN")
    late.execute("INSERT INTO part VALUES (3)")
    tables = [table_named(source, "item"), table_named(source, "part")]
    failed: list[Exception] = []

    def set_up() -> None:
        try:
            source.setup(tables)
        except Exception as error:
            failed.append(error)

    thread = Thread(target=set_up)
    thread.start()
    thread.join(1.0)
    assert thread.is_alive(), "setup did not wait"
    early.execute("COMMIT")
    late.execute("COMMIT")
    thread.join(120)
    assert not thread.is_alive() and not failed
    found = source.read({tables[1]: ("id",)}, Path("unused"))
    total = bag(found.rows[0])
    seen = history.seen(found.read_point)
    assert total == {(1,): 1, (2,): 1, (3,): 1} and history.changes("part", seen) == {}
    database.execute("INSERT INTO part VALUES (4)")
    assert [bag(each.rows["s.part"]) for each in history.capture()] == [{(4,): 1}]


def test_who_stays_open_for_long_is_named(database: Database, role: str) -> None:
    early = database.connect()
    database.execute("ALTER TABLE part REPLICA IDENTITY FULL")
    early.execute("BEGIN")
    early.execute("INSERT INTO part VALUES (1)")
    source = database.source(timeout="1")
    with pytest.raises(SourceFailed, match="was still open after 1 s"):
        source.setup([table_named(source, "part")])
    early.execute("ROLLBACK")
    assert source.setup([table_named(source, "part")]).needed == ()

"""Global transactions: what makes a transaction a part of one, who may say so, and prepared ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from postgres_history import Database, History, bag, read

from rollview.algebra.history import Seen
from rollview.errors import CaptureRefused, LogLost
from rollview.sources.postgres import PostgresSource

pytestmark = pytest.mark.slow


@pytest.fixture
def items(database: Database) -> Database:
    database.execute("CREATE TABLE item (id int PRIMARY KEY, size int)")
    return database


def prepare(database: Database, number: int, gid: str) -> None:
    database.execute("BEGIN", f"INSERT INTO item VALUES ({number}, 0)", f"PREPARE TRANSACTION '{gid}'")


def parts(history: History) -> list[tuple[str, tuple[str, ...], dict[str, object]]]:
    return [
        (each.global_id, each.participants, {name: bag(rows) for name, rows in each.rows.items()})
        for each in history.capture()
    ]


@pytest.fixture
def app(items: Database) -> Iterator[psycopg.Connection[Any]]:
    """A role that may announce parts, `app_…`, and one that may do nothing, `nobody_…`, both with a login."""
    for role in (f"app_{items.name}", f"nobody_{items.name}"):
        items.execute(f"CREATE ROLE {role} LOGIN")
    items.execute(f"GRANT INSERT ON item TO app_{items.name}")
    with psycopg.connect(items.dsn, user=f"app_{items.name}", autocommit=True) as connection:
        yield connection
    for role in (f"app_{items.name}", f"nobody_{items.name}"):
        items.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def ready(items: Database, **options: str) -> tuple[PostgresSource, History]:
    return items.ready(slot=f"slot_{items.name}", coordinators=f"app_{items.name}", **options)


def call(items: Database, text: str) -> str:
    identity, _, sources = text.rpartition(":")
    return f"SELECT slot_{items.name}_global.take_part('{identity}', '{sources}')"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("g1:s,other", ("g1", ("other", "s"))),
        ("urn:a:b:other, s,s", ("urn:a:b", ("other", "s"))),
        ("g1:other", ("", ())),
        ("g1:s", ("g1", ("s",))),
    ],
)
def test_an_announcement_names_the_transaction_and_the_sources(
    items: Database, app: psycopg.Connection[Any], text: str, part: object
) -> None:
    _, history = ready(items)
    for statement in ("BEGIN", call(items, text), "INSERT INTO item VALUES (1, 0)", "COMMIT"):
        app.execute(statement)
    ((identity, participants, rows),) = parts(history)
    assert (identity, participants) == part and rows == {"s.item": {(1, 0): 1}}
    assert items.rows(f"SELECT * FROM slot_{items.name}_global.part") == []


@pytest.mark.parametrize(("identity", "sources"), [("", "s"), ("g", ""), ("x" * 201, "s"), ("g", "s" * 2001)])
def test_what_announces_nothing_is_refused_at_the_server(
    items: Database, app: psycopg.Connection[Any], identity: str, sources: str
) -> None:
    ready(items)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="take_part needs an id"):
        app.execute(call(items, f"{identity}:{sources}"))


def test_a_prepared_transaction_is_captured_when_it_is_committed(
    items: Database, app: psycopg.Connection[Any]
) -> None:
    _, history = ready(items)
    for statement in ("BEGIN", "INSERT INTO item VALUES (1, 0)", call(items, "g1:s,crm")):
        app.execute(statement)
    app.execute("PREPARE TRANSACTION 'any name'")
    items.execute("INSERT INTO item VALUES (2, 0)")
    assert parts(history) == [("", (), {"s.item": {(2, 0): 1}})]
    app.execute("COMMIT PREPARED 'any name'")
    assert parts(history) == [("g1", ("crm", "s"), {"s.item": {(1, 0): 1}})]
    assert history.transactions[1].source_txid < history.transactions[0].source_txid


def test_one_that_is_named_otherwise_is_ordinary_and_one_rolled_back_is_none(items: Database) -> None:
    _, history = items.ready()
    prepare(items, 1, "of somebody else")
    prepare(items, 2, "rollview:g2:s,crm")
    assert parts(history) == []
    items.execute("ROLLBACK PREPARED 'rollview:g2:s,crm'", "COMMIT PREPARED 'of somebody else'")
    assert parts(history) == [("", (), {"s.item": {(1, 0): 1}})]


def test_an_announcement_makes_a_transaction_global_even_if_it_changed_nothing_here(
    items: Database, app: psycopg.Connection[Any]
) -> None:
    _, history = ready(items)
    for statement in ("BEGIN", call(items, "g7:s,crm"), "INSERT INTO item VALUES (1, 0)", "COMMIT"):
        app.execute(statement)
    for statement in ("BEGIN", "INSERT INTO item VALUES (2, 0)", call(items, "g8:s,crm"), "ROLLBACK"):
        app.execute(statement)
    for statement in ("BEGIN", "SAVEPOINT a", call(items, "g8:s,crm"), "ROLLBACK TO a", "COMMIT"):
        app.execute(statement)
    app.execute(call(items, "g9:s,crm"))
    app.execute(call(items, "g7:x"))
    assert parts(history) == [("g7", ("crm", "s"), {"s.item": {(1, 0): 1}}), ("g9", ("crm", "s"), {})]


FORGERIES = (
    ("SELECT pg_logical_emit_message(true, 'rollview', 'g:s,crm')",),
    ("SELECT pg_logical_emit_message(false, 'rollview', 'g:s,crm')",),
    (
        "BEGIN",
        "SELECT pg_logical_emit_message(true, 'other', '')",
        "PREPARE TRANSACTION 'rollview:g:s,crm'",
        "COMMIT PREPARED 'rollview:g:s,crm'",
    ),
)
REFUSED = (
    "SELECT {schema}.take_part('g', 's,crm')",
    "INSERT INTO {schema}.part VALUES ('g', 's,crm')",
    "CREATE TABLE {schema}.other ()",
    "SET ROLE app_{database}",
    "ALTER PUBLICATION slot_{database} ADD TABLE item",
)


@pytest.mark.parametrize("is_set_up", [True, False])
def test_a_role_without_rights_announces_nothing(
    items: Database, app: psycopg.Connection[Any], is_set_up: bool
) -> None:
    source, history = ready(items) if is_set_up else items.ready(slot=f"slot_{items.name}")
    with psycopg.connect(items.dsn, user=f"nobody_{items.name}", autocommit=True) as nobody:
        for statements in FORGERIES:
            for statement in statements:
                nobody.execute(statement)
        for statement in REFUSED:
            sql = statement.format(schema=f"slot_{items.name}_global", database=items.name)
            with pytest.raises(psycopg.ProgrammingError, match=r"permission|must be owner|does not exist"):
                nobody.execute(sql)
    items.execute("INSERT INTO item VALUES (1, 0)")
    batch = source.capture("s", history.log_position, 100)
    assert [(each.global_id, set(each.rows)) for each in batch.transactions] == [("", {"s.item"})]
    (note,) = batch.notes
    assert "is taken as a transaction of its own" in note and "coordinators" in note


def test_a_step_of_an_older_release_that_took_such_a_transaction_is_finished(items: Database) -> None:
    source, history = items.ready()
    items.execute("INSERT INTO item VALUES (1, 0)")
    items.execute("BEGIN", "SELECT pg_logical_emit_message(true, 'rollview', 'g:s,crm')")
    ((xid,),) = items.rows("SELECT pg_current_xact_id()::text::int8")
    items.execute("COMMIT", "INSERT INTO item VALUES (2, 0)")
    batch = source.capture("s", history.log_position, 100)
    first, second = (each.source_txid for each in batch.transactions)
    asked = [first, xid, second]
    replayed = source.replay("s", history.log_position, asked, batch.log_position)
    assert [each.source_txid for each in replayed.transactions] == asked
    assert [set(each.rows) for each in replayed.transactions] == [{"s.item"}, set(), {"s.item"}]


def granted(items: Database) -> set[str]:
    """The roles that may announce parts."""
    rows = items.rows(
        "SELECT r.rolname FROM pg_roles r, pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace"
        " WHERE f.proname = 'take_part' AND NOT r.rolsuper AND r.rolname !~ '^pg_'"
        " AND has_function_privilege(r.oid, f.oid, 'EXECUTE') AND has_schema_privilege(r.oid, n.oid, 'USAGE')"
    )
    return {str(name) for (name,) in rows}


def test_setup_grants_and_revokes_what_the_project_file_says(
    items: Database, app: psycopg.Connection[Any]
) -> None:
    both = f"app_{items.name}, nobody_{items.name}"
    for coordinators in (f"app_{items.name}", both, f"nobody_{items.name}", "", both):
        source = items.source(slot=f"slot_{items.name}", coordinators=coordinators)
        planned = source.check(source.tables())
        done = source.setup(source.tables())
        assert planned.done == done.done and planned.needed == ()
        assert granted(items) == {name for name in coordinators.split(", ") if name}
        assert any("global transactions" in each for each in done.done)
        again = source.setup(source.tables())
        assert again.done == (), "nothing is left to be done"
        assert "part" not in {table.name for table in source.tables()}
    # Whatever somebody else has granted is taken back.
    items.execute(f"GRANT EXECUTE ON FUNCTION slot_{items.name}_global.take_part(text, text) TO PUBLIC")
    source.setup(source.tables())
    assert granted(items) == set(both.split(", "))
    assert any("announce parts" in each for each in source.remove().done)
    assert items.rows("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'slot%'") == []


def test_a_role_that_does_not_exist_is_named(items: Database) -> None:
    source = items.source(coordinators="nobody_at_all")
    with pytest.raises(CaptureRefused, match="there is no role nobody_at_all"):
        source.setup(source.tables())


def test_a_schema_of_somebody_else_is_not_trusted(items: Database, app: psycopg.Connection[Any]) -> None:
    """Who may create schemas makes one with our name before us, in a publication of all tables."""
    schema, mallory = f"slot_{items.name}_global", f"nobody_{items.name}"
    items.execute(
        f"GRANT CREATE ON DATABASE {items.name} TO {mallory}", "CREATE PUBLICATION theirs FOR ALL TABLES"
    )
    items.execute("ALTER TABLE item REPLICA IDENTITY FULL")
    _, history = items.ready("item", slot=f"slot_{items.name}", publication="theirs")
    with psycopg.connect(items.dsn, user=mallory, autocommit=True) as other:
        other.execute(f"CREATE SCHEMA {schema}".encode())
        other.execute(f"CREATE TABLE {schema}.part (global_id text, sources text)".encode())
        other.execute(f"INSERT INTO {schema}.part VALUES ('g', 's,crm')".encode())
    items.execute("INSERT INTO item VALUES (1, 0)")
    assert parts(history) == [("", (), {"s.item": {(1, 0): 1}})]
    source = items.source(slot=f"slot_{items.name}", publication="theirs", coordinators=f"app_{items.name}")
    with pytest.raises(CaptureRefused, match="belongs to another role"):
        source.setup([table for table in source.tables() if table.name == "item"])
    # It keeps nobody from setup who has no use for it.
    source = items.source(slot=f"slot_{items.name}", publication="theirs")
    source.setup([table for table in source.tables() if table.name == "item"])
    assert items.rows(f"SELECT 1 FROM pg_namespace WHERE nspname = '{schema}'") == [(1,)]


def test_who_may_create_nothing_gets_statements_for_an_administrator(
    items: Database, app: psycopg.Connection[Any]
) -> None:
    role = f"nobody_{items.name}"
    items.execute(f"ALTER ROLE {role} REPLICATION", f"GRANT SELECT ON item TO {role}")
    dsn = items.dsn.replace("postgres@", f"{role}@")
    options = {"slot": f"slot_{items.name}", "coordinators": f"app_{items.name}"}
    with closing(PostgresSource("s", dsn, options)) as source:
        tables = source.tables()
        needed = source.setup(tables).needed
        items.execute(" ".join(needed))
        assert source.setup(tables).needed == ()
        assert granted(items) == {f"app_{items.name}"} | {role}
        history = History(source)
        app.execute(call(items, "g1:s,crm"))
        assert parts(history) == [("g1", ("crm", "s"), {})]
        removed = source.remove()
        items.execute(" ".join(removed.needed))
        assert items.rows("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'slot%'") == []


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize(
    "act",
    ["SELECT pg_current_xact_id()", "INSERT INTO item VALUES (1, 0)", "SELECT 1 FROM item FOR UPDATE"],
)
def test_a_prepared_transaction_that_changed_nothing_concerns_nobody(
    items: Database, act: str, end: str
) -> None:
    """Of some the server sends the end without the beginning; every role can prepare such a transaction."""
    _, history = items.ready()
    items.execute("INSERT INTO item VALUES (5, 0)")
    items.execute("BEGIN", "SAVEPOINT a", act, "ROLLBACK TO a", "PREPARE TRANSACTION 'empty'")
    items.execute("INSERT INTO item VALUES (6, 0)", f"{end} PREPARED 'empty'")
    items.execute("BEGIN", act, "PREPARE TRANSACTION 'whole'", "ROLLBACK PREPARED 'whole'")
    items.execute("INSERT INTO item VALUES (7, 0)")
    assert [rows for _, _, rows in parts(history)] == [{"s.item": {(each, 0): 1}} for each in (5, 6, 7)]


def test_log_positions_lead_back_to_what_was_prepared_before_them(items: Database) -> None:
    """Another process continues from any log position: the prepared rows are kept only in the log."""
    source, history = items.ready()
    origin = history.log_position
    prepare(items, 1, "one")
    items.execute("INSERT INTO item VALUES (2, 0)")
    prepare(items, 3, "two")
    items.execute("INSERT INTO item VALUES (4, 0)")
    history.capture(limit=1)
    items.execute("COMMIT PREPARED 'two'", "INSERT INTO item VALUES (5, 0)", "COMMIT PREPARED 'one'")
    history.capture(limit=1)
    whole = [(each.source_txid, bag(each.rows["s.item"])) for each in history.transactions]
    assert [list(rows) for _, rows in whole] == [[(2, 0)], [(4, 0)], [(3, 0)], [(5, 0)], [(1, 0)]]
    source.close()
    for place, after in enumerate([origin, *(each.log_position for each in history.transactions)]):
        later = History(items.source(), after)
        rest = [(each.source_txid, bag(each.rows["s.item"])) for each in later.capture()]
        assert rest == whole[place:]
        later.source.close()


def test_what_is_forgotten_does_not_take_prepared_rows_with_it(items: Database) -> None:
    source, history = items.ready()
    prepare(items, 1, "one")
    for number in range(2, 6):
        items.execute(f"INSERT INTO item VALUES ({number}, 0)", "SELECT pg_switch_wal()", "CHECKPOINT")
        history.capture(acknowledge=True)
    source.close()
    items.execute("COMMIT PREPARED 'one'")
    later = History(items.source(), history.log_position)
    assert parts(later) == [("", (), {"s.item": {(1, 0): 1}})]


def test_an_origin_does_not_lose_what_is_prepared(items: Database) -> None:
    source, _ = items.ready()
    prepare(items, 1, "one")
    items.execute("INSERT INTO item VALUES (2, 0)")
    history = History(source)
    found = read(source, "item")
    assert bag(found.rows[0]) == {(2, 0): 1}
    assert history.seen(found.read_point) == Seen(0)
    items.execute("COMMIT PREPARED 'one'")
    assert parts(history) == [("", (), {"s.item": {(1, 0): 1}})]


def test_a_snapshot_does_not_see_what_is_only_prepared(items: Database) -> None:
    source, history = items.ready()
    prepare(items, 1, "one")
    items.execute("INSERT INTO item VALUES (2, 0)")
    first = read(source, "item")
    items.execute("COMMIT PREPARED 'one'")
    second = read(source, "item")
    for found in (first, second):
        assert history.changes("item", history.seen(found.read_point)) == bag(found.rows[0])
    assert history.seen(first.read_point) == Seen(1) and history.seen(second.read_point) == Seen(2)


def test_rows_that_were_captured_before_and_not_kept_are_missed(items: Database) -> None:
    """Somebody moved the slot on past a prepared transaction: its rows cannot be had any more."""
    source, history = items.ready()
    prepare(items, 1, "one")
    history.capture()
    source.close()
    items.server.free_slots(items.name)
    items.execute(
        "SELECT pg_replication_slot_advance(slot_name, pg_current_wal_lsn()) FROM pg_replication_slots"
        " WHERE database = current_database()"
    )
    items.execute("COMMIT PREPARED 'one'")
    with pytest.raises(LogLost):
        items.source().capture("s", history.log_position, 10)

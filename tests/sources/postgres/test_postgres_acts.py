"""What owners and administrators do while capture runs: noticed if changes may be missing, else harmless.

A writer is at work between an act and its undoing, so that what is not noticed would be wrong.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import pytest
from postgres_history import Bag, Database, History, add, bag, net, table_named

from pages.what_if import what_if
from rollview.errors import CaptureRefused, LogLost, NotSetUp, SourceChanged
from rollview.sources.postgres import PostgresSource

pytestmark = pytest.mark.slow

COLUMNS = ("id", "size", "text", "mood")
PLACES = {"s.item", "s.other"}


def world(database: Database) -> tuple[PostgresSource, History]:
    """Two captured tables, and one that is not."""
    database.execute(
        "CREATE TYPE mood AS ENUM ('good', 'bad')",
        "CREATE TABLE item (id int PRIMARY KEY, size int, text text, mood mood)",
        "CREATE TABLE other (id int)",
        "CREATE TABLE unread (id int)",
        "INSERT INTO item VALUES (1, 1, 'a', 'good'), (2, 2, 'b', 'bad')",
    )
    return database.ready("item", "other")


def write(database: Database, number: int) -> None:
    """A row for each table."""
    database.execute(
        f"INSERT INTO item (id, size) VALUES ({number}, {number})", f"INSERT INTO other VALUES ({number})"
    )


def is_intact(source: PostgresSource, table: str, columns: tuple[str, ...] = ("id",)) -> bool:
    try:
        source.read({table_named(source, table): columns}, Path("unused"))
    except SourceChanged as error:
        assert error.subject in ("s", f"s.{table}") and "`rollview setup" in error.hint
        return False
    return True


def check_capture(database: Database, source: PostgresSource) -> None:
    """From here on nothing is missed: what is read, and all changes from then on, is what there is."""
    history = History(source)
    table = table_named(source, "item")
    first = source.read({table: table.columns}, Path("unused"))
    total = bag(first.rows[0])
    seen = history.seen(first.read_point)
    write(database, 1000)
    database.execute("UPDATE item SET size = size + 1", "DELETE FROM item WHERE id = 1000")
    captured = history.capture()
    for version, transaction in enumerate(history.transactions, 1):
        if version not in seen and "s.item" in transaction.rows:
            add(total, bag(transaction.rows["s.item"]))
    assert len(captured) == 4 and history.lost == {} and not any(each.lost for each in captured)
    columns = ", ".join(f'"{name}"' for name in table.columns)
    assert net(total) == bag_of(database.rows(f"SELECT {columns} FROM item"))


def bag_of(rows: Sequence[tuple[object, ...]]) -> dict[tuple[object, ...], int]:
    return {row: rows.count(row) for row in rows}


@dataclass(frozen=True)
class Act:
    """What is done, what takes it back, and what is said about it. `{p}` is the publication.

    If it concerns some `columns` only, the others continue.
    """

    name: str
    do: tuple[str, ...]
    undo: tuple[str, ...]
    reason: str
    lost: frozenset[str] = frozenset({"s.item"})
    is_refused: bool = False
    columns: tuple[str, ...] = ()


ALL = "insert, update, delete, truncate"
DAMAGE = [
    Act(
        "out of the publication",
        ("ALTER PUBLICATION {p} DROP TABLE item",),
        (),
        "table s.item was taken out of the publication",
    ),
    Act(
        "out of the publication and back",
        ("ALTER PUBLICATION {p} DROP TABLE item",),
        ("ALTER PUBLICATION {p} ADD TABLE item",),
        "table s.item was taken out of the publication and put back",
    ),
    Act(
        "publish less",
        ("ALTER PUBLICATION {p} SET (publish = 'insert')",),
        (),
        "does not publish all changes any more",
        frozenset(PLACES),
    ),
    Act(
        "publish less for a while",
        ("ALTER PUBLICATION {p} SET (publish = 'delete')",),
        (f"ALTER PUBLICATION {{p}} SET (publish = '{ALL}')",),
        "was altered, and may have published less for a while",
        frozenset(PLACES),
    ),
    Act(
        "a row filter",
        ("ALTER PUBLICATION {p} SET TABLE item WHERE (size < 5), other",),
        (),
        "table s.item was given a row filter in the publication",
    ),
    Act(
        "a row filter for a while",
        ("ALTER PUBLICATION {p} SET TABLE item WHERE (size < 5), other",),
        ("ALTER PUBLICATION {p} SET TABLE item, other",),
        "table s.item was taken out of the publication and put back, or had a filter for a while",
    ),
    Act(
        "a column list",
        ("ALTER PUBLICATION {p} SET TABLE item (id, size), other",),
        (),
        "table s.item was given a column list in the publication",
    ),
    Act(
        "unlogged for a while",
        ("ALTER PUBLICATION {p} DROP TABLE item", "ALTER TABLE item SET UNLOGGED"),
        ("ALTER TABLE item SET LOGGED", "ALTER PUBLICATION {p} ADD TABLE item"),
        "table s.item was taken out of the publication and put back",
    ),
    Act(
        "unlogged",
        ("ALTER PUBLICATION {p} DROP TABLE item", "ALTER TABLE item SET UNLOGGED"),
        (),
        "table s.item was set UNLOGGED",
        is_refused=True,
    ),
    Act(
        "without its key",
        ("ALTER TABLE item DROP CONSTRAINT item_pkey", "INSERT INTO item VALUES (1, 1, 'twin', 'bad')"),
        (),
        "the key of table s.item was dropped",
    ),
    Act(
        "without its key for a while",
        ("ALTER TABLE item DROP CONSTRAINT item_pkey",),
        ("ALTER TABLE item ADD PRIMARY KEY (id)",),
        "the key of table s.item was dropped, or replaced",
    ),
    Act(
        "a child",
        ("CREATE TABLE child () INHERITS (item)", "INSERT INTO child VALUES (7, 7, 'of the child', 'good')"),
        (),
        "other tables inherit from table s.item now",
        is_refused=True,
    ),
    Act(
        "a rename swap",
        ("CREATE TABLE item_new (LIKE item INCLUDING ALL)",),
        ("BEGIN", "ALTER TABLE item RENAME TO item_old", "ALTER TABLE item_new RENAME TO item", "COMMIT"),
        "table s.item was renamed to public.item_old",
    ),
    Act(
        "another schema",
        ("CREATE SCHEMA elsewhere", "CREATE TABLE item_new (LIKE item INCLUDING ALL)"),
        ("ALTER TABLE item SET SCHEMA elsewhere", "ALTER TABLE item_new RENAME TO item"),
        "table s.item was renamed to elsewhere.item",
    ),
    Act(
        "dropped and created again",
        ("DROP TABLE item", "CREATE TABLE item (id int PRIMARY KEY, size int, text text, mood mood)"),
        (),
        "table s.item was dropped",
    ),
    Act(
        "a column dropped and created again",
        ("ALTER TABLE item DROP COLUMN text",),
        ("ALTER TABLE item ADD COLUMN text text DEFAULT 'none'",),
        "column text of table s.item is another one than before",
        columns=("text",),
    ),
    Act(
        "a wider type",
        ("ALTER TABLE item ALTER size TYPE bigint",),
        (),
        "column size of table s.item has another type than before",
        columns=("size",),
    ),
    Act(
        "the same type with other values",
        ("ALTER TABLE item ALTER size TYPE int USING size + 100",),
        (),
        "table s.item was rewritten, and its column size altered: values may differ",
        columns=("size",),
    ),
    Act(
        "a rewrite, and a column altered, which look like the same type with other values",
        (
            "ALTER TABLE item ADD COLUMN more float DEFAULT random()",
            "ALTER TABLE item ALTER size SET DEFAULT 1",
        ),
        (),
        "table s.item was rewritten, and its column size altered: values may differ",
        columns=("size",),
    ),
    Act(
        "a renamed enum value",
        ("ALTER TYPE mood RENAME VALUE 'good' TO 'fine'",),
        (),
        "a value of the enum type of column mood of table s.item was renamed",
        columns=("mood",),
    ),
    Act(
        "an enum value renamed for a while",
        ("ALTER TYPE mood RENAME VALUE 'good' TO 'fine'",),
        ("ALTER TYPE mood RENAME VALUE 'fine' TO 'good'",),
        "a value of the enum type of column mood of table s.item was renamed",
        columns=("mood",),
    ),
    Act(
        "a collation that ignores case",
        (
            "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
            "ALTER TABLE item ALTER text TYPE text COLLATE loose",
        ),
        (),
        "column text of table s.item has a collation that takes unequal texts as equal",
        columns=("text",),
    ),
]


@what_if(
    "PostgreSQL",
    "a table is taken out of the publication, also if it is put back; gets a row filter or a "
    "column list, also for a while",
    "noticed by the member's row in the catalog; `setup` adds the table without a filter",
    under="the views of that table stop; `rollview setup` reloads them",
)
@what_if(
    "PostgreSQL",
    "`SET UNLOGGED`, also for a while",
    "the server refuses it for a published table, so it has to be taken out of the publication "
    "first: as above",
    under="the views of that table stop; `rollview setup` reloads them",
)
@what_if(
    "PostgreSQL",
    "a table is dropped, renamed, moved to another schema, or swapped with another",
    "noticed by the id of the table",
    under="the views of that table stop; `rollview setup` reloads them",
)
@what_if(
    "PostgreSQL",
    "the primary key is dropped, also if it is added again (or the unique constraint that stands in for one)",
    "noticed: views rely on it where they join by it. To rebuild its index, use `REINDEX CONCURRENTLY`",
    under="the views of that table stop; `rollview setup` reloads them",
)
@what_if(
    "PostgreSQL",
    "another table `INHERITS` from it",
    "noticed; `setup` refuses such tables",
    under="the views of that table stop; `rollview setup` reloads them",
)
@what_if(
    "PostgreSQL",
    "`ALTER COLUMN … TYPE … USING` with the same type, a generated column's new expression",
    "noticed, because the server rewrites the table and alters the column. It cannot be distinguished "
    "from a rewrite for another reason *and* another change of a column's properties, both since `setup`:"
    " that is a loss, too. (`VACUUM FULL` and `CLUSTER` are no such rewrite unless all columns are of "
    "short fixed types.)",
    under="the views that use the column stop; `rollview setup`, after their files are edited "
    "if need be, reloads them",
)
@what_if(
    "PostgreSQL",
    "`ALTER TYPE … RENAME VALUE` of an enum, also for a while",
    "noticed by the value's row in the catalog",
    under="the views that use the column stop; `rollview setup`, after their files are edited "
    "if need be, reloads them",
)
@what_if(
    "PostgreSQL",
    "a collation that takes unequal texts as equal",
    "noticed, because keys would find too much",
    under="the views that use the column stop; `rollview setup`, after their files are edited "
    "if need be, reloads them",
)
@what_if(
    "PostgreSQL",
    "the publication's options are altered, also if they are altered back; it has another owner "
    "or is renamed for a while",
    "noticed by its row in the catalog, which does not say what was altered; `setup` lets it "
    "publish everything again",
    under="the views of all tables stop; `rollview setup` reloads them",
)
@pytest.mark.parametrize("act", DAMAGE, ids=lambda act: act.name)
def test_an_act_that_may_lose_changes_is_noticed_and_setup_mends_it(database: Database, act: Act) -> None:
    source, history = world(database)
    publication = database.rows("SELECT pubname::text FROM pg_publication")[0][0]
    database.execute(*(each.format(p=publication) for each in act.do))
    write(database, 10)
    database.execute(*(each.format(p=publication) for each in act.undo))
    history.capture()
    assert history.lost.keys() == act.lost
    assert all(act.reason in loss.message and "setup" in loss.hint for loss in history.lost.values())
    assert all(loss.columns == act.columns for loss in history.lost.values())
    assert is_intact(source, "other") == ("s.other" not in act.lost)
    assert not is_intact(source, "item", act.columns or ("id",))
    assert is_intact(source, "item") == bool(act.columns), "other columns can be read"
    # It is reported until setup, whoever asks, and all others continue.
    stale = History(database.source(), history.log_position)
    database.execute("INSERT INTO other VALUES (11)")
    others = [each for each in stale.capture() if "s.other" in each.rows]
    assert stale.lost == history.lost
    assert "s.other" in act.lost or len(others) == 1
    tables = [table for table in source.tables() if table.name in ("item", "other")]
    if act.is_refused:
        with pytest.raises(CaptureRefused):
            source.setup(tables)
        return
    database.execute("INSERT INTO other VALUES (12)")
    report = source.setup(tables)
    assert report.needed == () and any(act.reason in line for line in report.done)
    assert source.setup(tables).done == ()
    check_capture(database, source)
    # A reader that continues from before gets it once more, until it is past it.
    stale.lost.clear()
    stale.capture()
    assert stale.lost.keys() == act.lost and act.reason in stale.lost[min(act.lost)].message
    assert stale.source.capture("s", stale.log_position, 10).lost == {}


@what_if(
    "PostgreSQL",
    "the publication is replaced or dropped",
    "noticed by its id; the server cannot read what it logged without a publication, so `setup` creates "
    "publication and slot again",
    under="all views of the source stop; `rollview setup --reload crm` reloads them",
)
def test_a_publication_of_the_same_name_is_another_one(database: Database) -> None:
    source, history = world(database)
    ((name,),) = database.rows("SELECT pubname::text FROM pg_publication")
    create = f"CREATE PUBLICATION {name} FOR TABLE item, other"
    database.execute("BEGIN", f"DROP PUBLICATION {name}", create, "COMMIT")
    write(database, 10)
    write(database, 11)
    assert len(history.capture()) == 4 and history.lost.keys() == PLACES
    assert all("was replaced by another" in each.message for each in history.lost.values())
    assert not is_intact(source, "item") and not is_intact(source, "other")


def test_changes_that_were_logged_without_a_publication_are_lost(database: Database) -> None:
    source, history = world(database)
    ((name,),) = database.rows("SELECT pubname::text FROM pg_publication")
    tables = [table_named(source, "item"), table_named(source, "other")]
    database.execute(f"DROP PUBLICATION {name}")
    write(database, 10)
    with pytest.raises(NotSetUp, match="not set up"):
        source.capture("s", history.log_position, 10)
    database.execute(f"CREATE PUBLICATION {name} FOR TABLE item, other")
    if database.writer.info.server_version < 180000:
        # The server itself cannot read past it.
        with pytest.raises(LogLost, match="does not exist") as caught:
            source.capture("s", history.log_position, 10)
        assert "--reload s" in caught.value.hint
    else:
        history.capture()
        assert history.lost.keys() == PLACES
    source.setup(tables)
    check_capture(database, source)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE PUBLICATION {p} FOR TABLE item WHERE (size > 3), unread WITH (publish = 'insert')",
        "CREATE PUBLICATION {p} FOR ALL TABLES",
    ],
)
def test_setup_replaces_what_it_finds_in_place_of_its_publication(database: Database, statement: str) -> None:
    source, history = world(database)
    ((name,),) = database.rows("SELECT pubname::text FROM pg_publication")
    tables = [table_named(source, "item"), table_named(source, "other")]
    database.execute(f"DROP PUBLICATION {name}", statement.format(p=name))
    write(database, 10)
    assert source.check(tables).done == source.setup(tables).done and source.setup(tables).done == ()
    members = "SELECT prrelid::regclass::text, prqual::text FROM pg_publication_rel ORDER BY 1"
    assert database.rows(members) == [("item", None), ("other", None)]
    with pytest.raises(LogLost):
        source.capture("s", history.log_position, 10)
    check_capture(database, source)


@what_if(
    "PostgreSQL",
    "the large object that lists the captured tables, or the comment on it, is removed (`vacuumlo` "
    "removes large objects that no table refers to)",
    "noticed at once",
    under="all views of the source stop; `rollview setup --reload crm` reloads them",
)
@pytest.mark.parametrize("act", ["COMMENT ON LARGE OBJECT {n} IS 'of no use?'", "SELECT lo_unlink({n}::oid)"])
def test_what_is_registered_was_removed_and_that_is_noticed(database: Database, act: str) -> None:
    """Without it nobody would know what is captured, and nothing would be. `vacuumlo` does so."""
    source, history = world(database)
    tables = [table_named(source, "item"), table_named(source, "other")]
    ((number,),) = database.rows("SELECT oid::int8 FROM pg_largeobject_metadata")
    database.execute(act.format(n=number))
    write(database, 10)
    with pytest.raises(SourceChanged, match="comment on large object") as caught:
        source.capture("s", history.log_position, 10)
    assert caught.value.subject == "s" and "--reload s" in caught.value.hint
    assert not is_intact(source, "item")
    if "unlink" not in act:
        with pytest.raises(CaptureRefused, match="used for something else"):
            source.setup(tables)
        database.execute(f"SELECT lo_unlink({number})")
    source.setup(tables)
    check_capture(database, source)


@what_if(
    "PostgreSQL",
    "`REPLICA IDENTITY` is not `FULL` any more",
    "noticed at once; if it was `FULL` again before, at the transaction whose old rows are not in "
    "the log. If nothing but insertions happened meanwhile, nothing is lost and nothing stops",
    under="the views of that table stop; `rollview setup` reloads them",
)
def test_a_replica_identity_that_was_less_for_a_while_is_seen_in_the_log(database: Database) -> None:
    source, history = world(database)
    database.execute(
        "ALTER TABLE item REPLICA IDENTITY DEFAULT",
        "INSERT INTO item VALUES (3, 3, 'c', NULL)",
        "UPDATE item SET size = 5 WHERE id = 1",
        "DELETE FROM item WHERE id = 2",
        "ALTER TABLE item REPLICA IDENTITY FULL",
        "DELETE FROM item WHERE id = 3",
    )
    inserted, updated, deleted, later = history.capture()
    assert history.lost == inserted.lost == later.lost == {} and is_intact(source, "item")
    for each in (updated, deleted):
        assert each.rows == {} and "did not have REPLICA IDENTITY FULL" in each.lost["s.item"].message


def test_a_table_that_was_let_go_and_taken_in_again_has_missed_changes(database: Database) -> None:
    """By a setup of another process, or one that was cut off: a history from before is not complete."""
    source, history = world(database)
    item, other = table_named(source, "item"), table_named(source, "other")
    source.setup([other])
    write(database, 10)
    source.setup([item, other])
    write(database, 11)
    history.capture()
    assert history.lost.keys() == {"s.item"} and "not captured for a while" in history.lost["s.item"].message
    # A table that is new to everybody has lost nothing.
    second = History(source)
    source.setup([item, other, table_named(source, "unread")])
    database.execute("INSERT INTO unread VALUES (1)")
    assert [set(each.rows) for each in second.capture()] == [{"s.unread"}] and second.lost == {}


def test_setup_registers_a_key_where_none_was_registered(database: Database) -> None:
    """As by an earlier release: nothing is captured again, and from then on the key is watched."""
    source, history = world(database)
    ((number, comment),) = database.rows(
        "SELECT objoid::int8, description FROM pg_description WHERE classoid = 'pg_largeobject'::regclass"
    )
    header, brace, rest = comment.partition("{")
    stored = json.loads(brace + rest)
    for table in stored["tables"]:
        del table["key"]
    older = (header + json.dumps(stored)).replace("'", "''")
    database.execute(f"COMMENT ON LARGE OBJECT {number} IS '{older}'")
    tables = [table for table in source.tables() if table.name in ("item", "other")]
    assert database.source().setup(tables).done == ()
    history.capture()
    assert history.lost == {}
    database.execute("ALTER TABLE item DROP CONSTRAINT item_pkey")
    write(database, 10)
    history.capture()
    assert "the key of table s.item was dropped" in history.lost["s.item"].message


HARMLESS = {
    "properties of columns": [
        "ALTER TABLE item ALTER size SET DEFAULT 5",
        "ALTER TABLE item ALTER size SET NOT NULL",
        "ALTER TABLE item ALTER size DROP NOT NULL",
        "ALTER TABLE item ALTER size DROP DEFAULT",
        "GRANT UPDATE (size) ON item TO public",
        "ALTER TABLE item ALTER text SET STATISTICS 500",
        "ALTER TABLE item ALTER text SET STORAGE EXTERNAL",
        'ALTER TABLE item ALTER text TYPE text COLLATE "C"',
        "COMMENT ON COLUMN item.size IS 'in inches'",
        "VACUUM FULL item",
        "CLUSTER item USING item_pkey",
        "ALTER TABLE item SET TABLESPACE aside",
        "ALTER TABLE item SET TABLESPACE pg_default",
        "DROP TABLESPACE aside",
        "ALTER TABLE item DROP COLUMN unused",
    ],
    "the table": [
        "ALTER TABLE item ADD COLUMN more int",
        "ALTER TABLE item ADD COLUMN more int NOT NULL DEFAULT 7",
        "ALTER TABLE item ADD COLUMN more float DEFAULT random()",
        "ALTER TABLE item RENAME COLUMN unused TO used",
        "ALTER TABLE item ALTER unused TYPE bigint USING unused + 1",
        "CREATE INDEX ON item (size)",
        "CREATE UNIQUE INDEX ON item (size, id)",
        "REINDEX TABLE item",
        "REINDEX TABLE CONCURRENTLY item",
        "COMMENT ON TABLE item IS 'what we sell'",
        "GRANT SELECT ON item TO public",
        "ANALYZE item",
        "VACUUM (FREEZE, ANALYZE) item",
        "ALTER TABLE item ADD CHECK (size < 1000000)",
        "ALTER TABLE item SET (fillfactor = 50)",
        "ALTER TABLE item OWNER TO pg_database_owner",
        "ALTER TYPE mood ADD VALUE 'fair' BEFORE 'bad'",
        "CREATE TRIGGER t BEFORE UPDATE ON item FOR EACH ROW"
        " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "CREATE POLICY p ON item",
        "CREATE PUBLICATION of_others FOR ALL TABLES",
        "VACUUM FULL",
    ],
}


@what_if(
    "PostgreSQL",
    "a column is added, with or without a default; a column that no view uses is dropped, renamed or altered",
    "harmless; new columns can be used after a `setup`, which locks and reloads nothing",
    under="nothing stops",
)
@what_if(
    "PostgreSQL",
    "indexes, comments, rights, owners, triggers, policies, other constraints, defaults, `NOT NULL`, "
    "statistics, storage options, fill factor",
    "harmless",
    under="nothing stops",
)
@what_if(
    "PostgreSQL",
    "`ANALYZE`, `VACUUM`, `VACUUM FULL`, `CLUSTER`, `REINDEX`, another tablespace",
    "harmless",
    under="nothing stops",
)
@what_if(
    "PostgreSQL",
    "a new value of an enum, constraints and defaults of a domain, another deterministic collation",
    "harmless",
    under="nothing stops",
)
@pytest.mark.parametrize("acts", HARMLESS.values(), ids=HARMLESS)
def test_what_stops_nothing(database: Database, acts: list[str]) -> None:
    """One after the other, with a writer: not a single loss, nothing to reload, nothing for setup to do."""
    database.execute(
        "CREATE TYPE mood AS ENUM ('good', 'bad')",
        "CREATE TABLE item (id int PRIMARY KEY, unused int, size int, text text, mood mood)",
        "CREATE TABLE other (id int)",
    )
    source = database.source()
    whole, other = table_named(source, "item"), table_named(source, "other")
    item = replace(whole, columns=COLUMNS, types=("int", "int", "string", "string"))
    source.setup([item, other])
    history = History(source)
    total: Bag = Counter()
    for number, act in enumerate(acts):
        database.execute(*_prepared_for(act), act)
        write(database, number)
        database.execute(f"UPDATE item SET size = size + 1, mood = 'good' WHERE id = {number}")
        if number % 3 == 0:
            database.execute(f"DELETE FROM item WHERE id = {number}")
        for each in history.capture():
            assert each.lost == {}, (act, each.lost)
            add(total, bag(each.rows["s.item"]) if "s.item" in each.rows else {})
        assert history.lost == {}, (act, history.lost)
        there = bag_of(database.rows("SELECT id, size, text, mood::text FROM item"))
        assert net(total) == there, act
        assert bag(source.read({item: COLUMNS}, Path("unused")).rows[0]) == there
        assert source.setup([item, other]).done == (), act


def _prepared_for(act: str) -> list[str]:
    """A column for the act to be about; what it left of the last one is gone."""
    if "unused" in act:
        return ["ALTER TABLE item DROP COLUMN IF EXISTS unused", "ALTER TABLE item ADD COLUMN unused int"]
    if "TABLESPACE aside" in act and "DROP" not in act:
        return ["SET allow_in_place_tablespaces = on", "CREATE TABLESPACE aside LOCATION ''"]
    return ["ALTER TABLE item DROP COLUMN IF EXISTS more"] if "more" in act else []


def test_a_domain_may_be_altered_and_not_be_replaced(database: Database) -> None:
    database.execute(
        "CREATE DOMAIN price AS numeric(8,2)",
        "CREATE DOMAIN cost AS numeric(8,2)",
        "CREATE TABLE item (id int PRIMARY KEY, price price)",
    )
    source, history = database.ready()
    database.execute(
        "ALTER DOMAIN price ADD CHECK (VALUE >= 0)",
        "ALTER DOMAIN price SET DEFAULT 1",
        "ALTER DOMAIN price RENAME TO amount",
        "INSERT INTO item VALUES (1, 2.5)",
    )
    assert [bag(each.rows["s.item"]) for each in history.capture()] == [{(1, Decimal("2.50")): 1}]
    assert history.lost == {} and is_intact(source, "item", ("price",))
    database.execute("ALTER TABLE item ALTER price TYPE cost", "INSERT INTO item VALUES (2, 5)")
    (only,) = history.capture()
    assert "price of table s.item has another type" in history.lost["s.item"].message
    assert only.lost["s.item"].columns == history.lost["s.item"].columns == ("price",)
    assert bag(only.rows["s.item"]) == {(2, None): 1}
    assert is_intact(source, "item") and not is_intact(source, "item", ("id", "price"))


WIDENED = {
    "varchar(5)": ("'abc'", ["varchar(9)", "varchar", "text", "varchar"]),
    "text": ("'abc'", ["varchar", "text"]),
    "numeric(5,2)": ("123.45", ["numeric(7,2)", "numeric(20,2)", "numeric"]),
    "timestamp(3)": ("'2020-01-01 00:00:00.123'", ["timestamp(6)", "timestamp"]),
    "timestamptz(0)": ("'2020-01-01 00:00:00+00'", ["timestamptz(3)", "timestamptz"]),
    "time(0)": ("'10:00:00'", ["time(6)"]),
}


@what_if(
    "PostgreSQL",
    "`varchar(n)` becomes longer or `text`, `numeric(p,s)` gets more digits before the point or becomes "
    "`numeric`, a timestamp or time gets more digits",
    "harmless: the server does not rewrite the table. A value that does not fit the type of `setup` is a "
    "loss when it comes; the next `setup` takes the wider type and reloads the views whose type it changes "
    "(`numeric`)",
    under="nothing stops",
)
@pytest.mark.parametrize("declared", WIDENED)
def test_a_wider_type_stops_nothing(database: Database, declared: str) -> None:
    value, wider = WIDENED[declared]
    database.execute(
        f"CREATE TABLE item (id int PRIMARY KEY, v {declared})", f"INSERT INTO item VALUES (0, {value})"
    )
    source, history = database.ready()
    table = table_named(source, "item")
    for number, each in enumerate(wider, 1):
        database.execute(
            f"ALTER TABLE item ALTER v TYPE {each}", f"INSERT INTO item VALUES ({number}, {value})"
        )
        database.execute(f"DELETE FROM item WHERE id = {number - 1}")
        inserted, deleted = history.capture()
        assert history.lost == inserted.lost == deleted.lost == {}
        (row,) = bag(inserted.rows["s.item"])
        assert bag(deleted.rows["s.item"]) == {(number - 1, row[1]): -1}
        assert bag(source.read({table: table.columns}, Path("unused")).rows[0]) == {row: 1}
        assert source.setup([table]).done == ()
    # Back to what it was the table is rewritten, and values may be cut.
    database.execute(f"ALTER TABLE item ALTER v TYPE {declared}")
    history.capture()
    assert history.lost.keys() == (set() if declared == "text" else {"s.item"})


def test_a_value_that_only_the_wider_type_holds_is_a_loss_until_setup_takes_the_type(
    database: Database,
) -> None:
    database.execute("CREATE TABLE item (id int PRIMARY KEY, v numeric(5,2))")
    source, history = database.ready()
    database.execute(
        "ALTER TABLE item ALTER v TYPE numeric(9,2)",
        "INSERT INTO item VALUES (1, 999.99)",
        "INSERT INTO item VALUES (2, 1000)",
    )
    first, second = history.capture()
    assert bag(first.rows["s.item"]) == {(1, Decimal("999.99")): 1} and first.lost == {}
    assert "s.item.v is read as decimal(5,2), but holds '1000.00'" in second.lost["s.item"].message
    assert history.lost == {}
    wider = table_named(source, "item")
    assert wider.types == ("int", "decimal(9,2)")
    assert any("v of table s.item has a wider type" in line for line in source.setup([wider]).done)
    assert source.setup([wider]).done == ()
    later = History(source)
    database.execute("INSERT INTO item VALUES (3, 1000000)")
    assert [bag(each.rows["s.item"]) for each in later.capture()] == [{(3, Decimal("1000000.00")): 1}]
    assert later.lost == {}
    # A reader that continues from before has to begin again with this column.
    history.capture()
    assert history.lost["s.item"].columns == ("v",)


def test_new_columns_are_shown_and_not_captured_until_setup(database: Database) -> None:
    source, history = world(database)
    database.execute(
        "ALTER TABLE item ADD COLUMN more int DEFAULT 7", "INSERT INTO item VALUES (9, 9, 'x', NULL, 1)"
    )
    assert table_named(source, "item").columns == (*COLUMNS, "more")
    with pytest.raises(NotSetUp, match=r"column s\.item\.more is not captured"):
        is_intact(source, "item", ("more",))
    (only,) = history.capture()
    assert bag(only.rows["s.item"]) == {(9, 9, "x", None): 1} and history.lost == {}
    # Setup with the new column takes in just that: what was captured before lacks it, and nothing else.
    source.setup([table_named(source, "item"), table_named(source, "other")])
    database.execute("DELETE FROM item WHERE id = 9")
    (later,) = history.capture()
    assert bag(later.rows["s.item"]) == {(9, 9, "x", None, 1): -1}
    assert history.lost.keys() == {"s.item"} and history.lost["s.item"].columns == ("more",)
    assert "more of table s.item was not captured before" in history.lost["s.item"].message
    assert source.capture("s", history.log_position, 10).lost == {}

"""Several schemas of a database: what views call their tables, and that no table is taken for another one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from postgres_history import Database, History, bag, read, table_named

from pages.what_if import what_if
from rollview.algebra.relation import ForeignKey
from rollview.errors import CaptureRefused
from rollview.sources.source import Lookup

pytestmark = pytest.mark.slow


def two_schemas(database: Database) -> None:
    database.execute(
        "CREATE TABLE item (id int PRIMARY KEY, size int)",
        "CREATE SCHEMA billing",
        "CREATE TABLE billing.item (id int PRIMARY KEY, item int REFERENCES public.item, price int)",
        "INSERT INTO item VALUES (1, 1), (2, 2)",
        "INSERT INTO billing.item VALUES (1, 1, 10)",
    )


def test_tables_of_all_schemas_are_captured_read_and_looked_up(database: Database) -> None:
    two_schemas(database)
    source, history = database.ready()
    assert {table.name for table in source.tables()} == {"item", "billing.item"}
    billing = table_named(source, "billing.item")
    assert (
        billing.foreign_keys == (ForeignKey(("item",), "s.item"),) and billing.qualified == "s.billing.item"
    )
    found = read(source, "billing.item")
    assert bag(found.rows[0]) == {(1, 1, 10): 1}
    database.execute(
        "BEGIN", "INSERT INTO item VALUES (3, 3)", "INSERT INTO billing.item VALUES (2, 2, 20)", "COMMIT"
    )
    (only,) = history.capture()
    assert {name: bag(rows) for name, rows in only.rows.items()} == {
        "s.item": {(3, 3): 1},
        "s.billing.item": {(2, 2, 20): 1},
    }
    # From one schema to the other within one plan.
    plan = [
        Lookup(billing, ("item", "price"), keys=pa.table({"id": pa.array([2], pa.int32())})),
        Lookup(table_named(source, "item"), ("id", "size"), parent=0, on=(("item", "id"),)),
    ]
    answers = source.lookup(plan).rows
    assert [bag(each) for each in answers] == [{(2, 20): 1}, {(2, 2): 1}]
    assert source.describe()["tables"] == "billing.item, item"


def test_only_the_named_schemas_can_be_read_and_the_first_is_the_short_one(database: Database) -> None:
    two_schemas(database)
    database.execute("CREATE SCHEMA third", "CREATE TABLE third.t (id int)")
    names = {table.name for table in database.source(schemas="billing, public").tables()}
    assert names == {"item", "public.item"}
    source, history = database.ready(schemas="billing")
    database.execute("INSERT INTO item VALUES (7, 7)", "INSERT INTO billing.item VALUES (8, 7, 1)")
    assert [bag(each.rows["s.item"]) for each in history.capture()] == [{(8, 7, 1): 1}]
    source.close()


@what_if(
    "PostgreSQL",
    "`schemas` in the project file begins with another schema that has tables of the same names",
    "noticed by the id of the table, at the next `setup`",
    under="the views of that table stop; `rollview setup` reloads them",
)
def test_another_first_schema_means_other_tables_and_that_is_noticed(database: Database) -> None:
    """The old table is as it was, so only the schema in the project file shows it."""
    two_schemas(database)
    database.execute(
        "ALTER TABLE billing.item RENAME COLUMN price TO size", "ALTER TABLE billing.item DROP item"
    )
    source, history = database.ready("item")
    source.close()
    other = database.source(schemas="billing")
    done = other.setup(other.tables()).done
    assert any(
        "captured again: s.item is another table than before, in schema billing" in each for each in done
    )
    database.execute("INSERT INTO item VALUES (9, 9)", "INSERT INTO billing.item VALUES (5, 50)")
    stale = History(other, history.log_position)
    assert [bag(each.rows["s.item"]) for each in stale.capture()] == [{(5, 50): 1}]
    assert "another table than before" in stale.lost["s.item"].message
    assert bag(other.read({table_named(other, "item"): ("id", "size")}, Path("unused")).rows[0]) == {
        (1, 10): 1,
        (5, 50): 1,
    }


def test_a_table_that_moves_to_another_schema_is_noticed(database: Database) -> None:
    two_schemas(database)
    _, history = database.ready("billing.item")
    database.execute("CREATE SCHEMA archive", "ALTER TABLE billing.item SET SCHEMA archive")
    history.capture()
    assert "was renamed to archive.item" in history.lost["s.billing.item"].message


@what_if(
    "PostgreSQL",
    "a table gets a name with a dot that views could confuse with `schema.table`",
    "capture continues; `setup` refuses both tables until one of them is renamed",
    under="nothing stops",
)
def test_two_tables_that_views_could_not_tell_apart_are_refused(database: Database) -> None:
    two_schemas(database)
    source, history = database.ready("billing.item", "item")
    database.execute('CREATE TABLE "billing.item" (id int, item int, price int)')
    with pytest.raises(CaptureRefused, match=r'"billing"\."item" has the same name in views'):
        source.setup(source.tables())
    # What is captured continues.
    database.execute(
        "INSERT INTO billing.item VALUES (4, 1, 4)", 'INSERT INTO "billing.item" VALUES (5, 5, 5)'
    )
    assert [bag(each.rows["s.billing.item"]) for each in history.capture()] == [{(4, 1, 4): 1}]
    assert history.lost == {}


HOSTILE = 'x"; DROP TABLE keep; --.{0}%s'


def test_hostile_names_of_schemas_stay_names(database: Database) -> None:
    quoted = '"' + HOSTILE.replace('"', '""') + '"'
    database.execute(
        "CREATE TABLE keep (id int)",
        f"CREATE SCHEMA {quoted}",
        f"CREATE TABLE {quoted}.{quoted} (id int PRIMARY KEY)",
        f"INSERT INTO {quoted}.{quoted} VALUES (1)",
    )
    name = f"{HOSTILE}.{HOSTILE}"
    source, history = database.ready(name)
    assert bag(read(source, name).rows[0]) == {(1,): 1}
    database.writer.execute(f"INSERT INTO {quoted}.{quoted} VALUES (2)".encode())
    assert [bag(each.rows[f"s.{name}"]) for each in history.capture()] == [{(2,): 1}]
    source.remove()
    assert database.rows("SELECT count(*) FROM keep") == [(0,)]

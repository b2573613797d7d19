"""What triggers see at MariaDB, as `rollview simulate --policy triggers` and design note 020 say of it."""

from __future__ import annotations

from contextlib import closing

import pytest
from mariadb_database import Database

pytestmark = pytest.mark.slow


def test_triggers_do_not_run_for_a_cascade(database: Database) -> None:
    database.execute(
        "CREATE TABLE customer (id INT PRIMARY KEY)",
        "CREATE TABLE sale (customer INT, FOREIGN KEY (customer) REFERENCES customer (id) ON DELETE CASCADE)",
        "CREATE TABLE fired (what TEXT)",
        "CREATE TRIGGER c AFTER DELETE ON customer FOR EACH ROW INSERT INTO fired VALUES ('customer')",
        "CREATE TRIGGER s AFTER DELETE ON sale FOR EACH ROW INSERT INTO fired VALUES ('sale')",
        "INSERT INTO customer VALUES (1)",
        "INSERT INTO sale VALUES (1), (1)",
        "DELETE FROM customer",
    )
    assert database.execute("SELECT count(*) FROM sale") == ((0,),)
    assert database.execute("SELECT what FROM fired") == (("customer",),)


def test_a_plain_read_sees_the_snapshot_and_one_that_locks_the_newest_rows(database: Database) -> None:
    database.execute(
        "CREATE TABLE customer (id INT PRIMARY KEY)",
        "CREATE TABLE sale (id INT PRIMARY KEY, customer INT)",
        "CREATE TABLE plain (n INT)",
        "CREATE TABLE locking (n INT)",
        "CREATE TRIGGER p BEFORE INSERT ON sale FOR EACH ROW BEGIN DECLARE n INT;"
        " SELECT count(*) INTO n FROM customer WHERE id = NEW.customer; INSERT INTO plain VALUES (n); END",
        "CREATE TRIGGER l AFTER INSERT ON sale FOR EACH ROW"
        " INSERT INTO locking SELECT count(*) FROM customer WHERE id = NEW.customer",
    )
    with closing(database.connect(autocommit=False)) as older, older.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM customer")
        database.execute("INSERT INTO customer VALUES (1)")
        cursor.execute("INSERT INTO sale VALUES (1, 1)")
        older.commit()
    assert database.execute("SELECT n FROM plain") == ((0,),)
    assert database.execute("SELECT n FROM locking") == ((1,),)

"""A project that was moved or copied asks before it captures: a copy must not take what is the original's."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from shop import VIEWS, Shop, shown, transact

from pages.what_if import what_if
from rollview.errors import ProjectMoved
from rollview.project.project import Project
from servers.mariadb import shared_server as mariadb_server
from servers.postgres import shared_server as postgres_server

pytestmark = pytest.mark.slow


@what_if(
    "all sources",
    "the project is moved or copied",
    "it can be read; before it captures, `rollview setup --moved` or `--copy` must say which of "
    "both it was, so that a copy does not take what the original has not read yet",
)
def test_oracle_a_project_that_was_moved_asks_first(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path / "shop", {"sold": VIEWS["sold"]})
    transact(shop, 12)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        transact(shop)
        project.run(once=True)
        before = shown(project, "sold")
    shop.close()
    moved = tmp_path / "elsewhere"
    shutil.copytree(shop.folder, moved)
    with Project.open(moved, spark) as project:
        for call in (lambda: project.run(once=True), project.capture, project.setup):
            with pytest.raises(ProjectMoved, match="was set up as"):
                call()
        # Nobody else is concerned.
        assert shown(project, "sold") == before
        assert project.confirm_move().loaded == {}
        project.run(once=True)
        assert all(verdict.is_right for verdict in project.verify())
    with Project.open(moved, spark) as project:
        assert set(project.confirm_move(is_copy=True).loaded) == {"sold"}
        assert shown(project, "sold") == before


PROJECT = """name: live
spark: {{master: 'local[2]'}}
sources:
  crm: {{type: postgres, dsn: '{crm}'{slot}}}
  shop: {{type: mariadb, dsn: '{shop}'{registry}}}
"""
SOLD = """CREATE MATERIALIZED VIEW sold AS SELECT s.id, c.name, s.amount FROM shop.sale s
    JOIN crm.customer c ON s.customer = c.id"""
NAMES = "CREATE MATERIALIZED VIEW names AS SELECT id, name FROM crm.customer"
AMOUNTS = "CREATE MATERIALIZED VIEW amounts AS SELECT sum(amount) AS total FROM shop.sale"


class Live:
    """A PostgreSQL and a MariaDB with a project over both, and its copy."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.copy = folder / "live", folder / "copy"
        self.name = f"copied_{os.getpid()}"
        self.crm_dsn = postgres_server().create_database(self.name)
        self.shop_dsn = mariadb_server().create_database(self.name)
        self.crm = psycopg.connect(self.crm_dsn, autocommit=True)
        self.shop = mariadb_server().connect(self.name, autocommit=True)
        self.write(
            [
                "CREATE TABLE customer (id int PRIMARY KEY, name text)",
                "INSERT INTO customer VALUES (1, 'Ann')",
            ],
            [
                "CREATE TABLE sale (id INT PRIMARY KEY, customer INT, amount INT)",
                "INSERT INTO sale VALUES (1, 1, 5)",
            ],
        )
        (self.folder / "views").mkdir(parents=True)
        self.describe(self.folder)
        for name, sql in (("sold", SOLD), ("names", NAMES), ("amounts", AMOUNTS)):
            (self.folder / "views" / f"{name}.sql").write_text(sql)

    def describe(self, folder: Path, slot: str = "", registry: str = "") -> None:
        text = PROJECT.format(crm=self.crm_dsn, shop=self.shop_dsn, slot=slot, registry=registry)
        (folder / "rollview.yml").write_text(text)

    def write(self, crm: list[str], shop: list[str]) -> None:
        for statement in crm:
            self.crm.execute(statement.encode())
        with self.shop.cursor() as cursor:
            for statement in shop:
                cursor.execute(statement)

    def change(self, number: int) -> None:
        self.write(
            [f"UPDATE customer SET name = 'name {number}'", f"INSERT INTO customer VALUES ({number}, 'new')"],
            [
                f"INSERT INTO sale VALUES ({number}, {number}, {number})",
                "UPDATE sale SET amount = amount + 1",
            ],
        )

    def check(self, project: Project, *names: str) -> None:
        """These views are what the servers hold."""
        project.run(once=True)
        customers = dict(self.crm.execute("SELECT id, name FROM customer").fetchall())
        with self.shop.cursor() as cursor:
            cursor.execute("SELECT id, customer, amount FROM sale")
            sales = cursor.fetchall()
        expected = {
            "sold": Counter(
                (sale, customers[who], amount) for sale, who, amount in sales if who in customers
            ),
            "names": Counter(customers.items()),
            "amounts": Counter([(sum(amount for _, _, amount in sales),)]),
        }
        for name in names:
            assert Counter(map(tuple, project.read(name).collect())) == expected[name], name

    def traces(self) -> list[Any]:
        """What setup leaves at the servers."""
        with self.shop.cursor() as cursor:
            cursor.execute("SHOW TABLES")
            tables = sorted(cursor.fetchall())
        return [
            tables,
            self.crm.execute("SELECT relreplident::text FROM pg_class WHERE relname = 'customer'").fetchall(),
            *(self.crm.execute(query).fetchall() for query in (
                "SELECT pubname::text FROM pg_publication ORDER BY 1",
                "SELECT oid::int8 FROM pg_largeobject_metadata ORDER BY 1",
                "SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database()",
            )),
        ]  # fmt: skip

    def close(self) -> None:
        self.crm.close()
        self.shop.close()
        postgres_server().drop_database(self.name)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    made = Live(tmp_path)
    yield made
    made.close()


@what_if(
    "all sources",
    "a copy of a project captures along with the original",
    "nothing, once it has a slot (PostgreSQL) or a registry (MariaDB) of its own: `rollview setup --copy`"
    " requires one",
)
def test_oracle_a_copy_of_a_project_over_servers_captures_for_itself(live: Live, spark: SparkSession) -> None:
    """Both continue, each at its own pace, until one is gone without a trace that the other needs."""
    before = live.traces()
    with Project.open(live.folder, spark) as original:
        original.setup()
        live.change(10)
        live.check(original, "sold", "names", "amounts")
        shutil.copytree(live.folder, live.copy)
        installed = live.traces()
        for registry, subject in (("", "shop"), (", registry: copy", "crm")):
            live.describe(live.copy, registry=registry)
            with Project.open(live.copy, spark) as copy:
                with pytest.raises(ProjectMoved, match="was set up as"):
                    copy.run(once=True)
                with pytest.raises(ProjectMoved, match="a copy of") as caught:
                    copy.confirm_move(is_copy=True)
                assert caught.value.subject == subject and "of its own" in caught.value.hint
        assert live.traces() == installed
        live.change(20)
        live.describe(live.copy, ", slot: of_copy", ", registry: copy")
        with Project.open(live.copy, spark) as copy:
            assert set(copy.confirm_move(is_copy=True).loaded) == {"sold", "names", "amounts"}
            # What the original has not captured yet is still there for it, and the other way round.
            live.change(30)
            live.check(copy, "sold", "names", "amounts")
            live.change(40)
            live.check(original, "sold", "names", "amounts")
            live.check(copy, "sold", "names", "amounts")
            # A table that the copy lets go stays with the original.
            (live.copy / "views" / "sold.sql").unlink()
            (live.copy / "views" / "amounts.sql").unlink()
            copy.setup()
            live.change(50)
            live.check(original, "sold", "names", "amounts")
            live.check(copy, "names")
            assert not [view.name for view in original.status().views if view.state == "stopped"]
            # Whoever goes first leaves what the other one needs.
            original.remove()
            live.change(60)
            live.check(copy, "names")
            copy.remove()
    assert live.traces() == before


def test_a_project_over_servers_that_was_moved_continues(live: Live, spark: SparkSession) -> None:
    with Project.open(live.folder, spark) as project:
        project.setup()
    live.change(10)
    installed = live.traces()
    live.folder.rename(live.copy)
    with Project.open(live.copy, spark) as project:
        with pytest.raises(ProjectMoved, match="was set up as"):
            project.run(once=True)
        assert project.confirm_move().loaded == {}
        live.check(project, "sold", "names", "amounts")
        assert live.traces() == installed
        project.remove()

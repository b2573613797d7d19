"""A PostgreSQL table that has lost changes stops its views, no others, until `setup` has reloaded them."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from pages.what_if import what_if
from rollview.errors import SourceChanged
from rollview.events import Event, Halted
from rollview.project.project import Project
from servers.postgres import shared_server

pytestmark = pytest.mark.slow

_numbers = itertools.count(1)
VIEWS = {
    "sold": "SELECT s.id, p.kind, s.amount FROM crm.sale s JOIN crm.product p ON s.product = p.id",
    "kinds": "SELECT kind, count(*) AS n FROM crm.product GROUP BY kind",
    "amounts": "SELECT count(*) AS n, sum(amount) AS total FROM crm.sale",
}


class Crm:
    """A database and the project over it."""

    def __init__(self, folder: Path) -> None:
        self.name = f"losses_{os.getpid()}_{next(_numbers)}"
        self.folder = folder
        dsn = shared_server().create_database(self.name)
        self.connection = psycopg.connect(dsn, autocommit=True)
        self.execute(
            "CREATE TABLE product (id int PRIMARY KEY, kind text)",
            "CREATE TABLE sale (id int PRIMARY KEY, product int, amount int)",
            "CREATE TABLE branch (id int)",
            "INSERT INTO product VALUES (1, 'tea'), (2, 'cup')",
            "INSERT INTO sale VALUES (1, 1, 10), (2, 2, 20)",
        )
        (folder / "views").mkdir(parents=True)
        (folder / "rollview.yml").write_text(
            "name: losses\nspark: {master: 'local[2]'}\n"
            f"sources:\n  crm: {{type: postgres, dsn: '{dsn}'}}\n"
        )
        for name, sql in VIEWS.items():
            self.define(name, sql)

    def define(self, name: str, sql: str) -> None:
        (self.folder / "views" / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {sql}")

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement)

    def publication(self, change: str) -> None:
        ((name,),) = self.connection.execute("SELECT pubname::text FROM pg_publication").fetchall()
        self.execute(f"ALTER PUBLICATION {name} {change}")

    def check(self, project: Project, *names: str) -> None:
        """These views are what the server itself computes."""
        for name in names or VIEWS:
            answer = self.connection.execute(VIEWS[name].replace("crm.", "").encode()).fetchall()
            assert Counter(map(tuple, project.read(name).collect())) == Counter(answer), name

    def stopped(self, project: Project) -> set[str]:
        return {view.name for view in project.status().views if view.state == "stopped"}


@pytest.fixture
def crm(tmp_path: Path) -> Iterator[Crm]:
    opened = Crm(tmp_path / "project")
    yield opened
    opened.connection.close()
    shared_server().drop_database(opened.name)


@pytest.fixture
def received() -> list[Event]:
    return []


@pytest.fixture
def project(crm: Crm, received: list[Event], spark: SparkSession) -> Iterator[Project]:
    with Project.open(crm.folder, spark) as opened:
        opened.subscribe(received.append)
        opened.setup()
        yield opened


def taken_out_and_put_back(crm: Crm) -> None:
    crm.publication("DROP TABLE product")
    crm.execute("UPDATE product SET kind = 'pot' WHERE id = 1")
    crm.publication("ADD TABLE product")


def rewritten(crm: Crm) -> None:
    crm.execute("ALTER TABLE product ALTER kind TYPE text USING upper(kind)")


def without_its_key(crm: Crm) -> None:
    crm.execute("ALTER TABLE product DROP CONSTRAINT product_pkey", "INSERT INTO product VALUES (1, 'pot')")


ACTS = {
    without_its_key: "key of table crm.product was dropped",
    taken_out_and_put_back: "taken out of the publication",
    rewritten: "was rewritten",
}


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_a_loss_stops_the_views_of_that_table_until_setup(
    crm: Crm, project: Project, received: list[Event], act: object
) -> None:
    assert callable(act)
    act(crm)
    crm.execute("INSERT INTO sale VALUES (3, 2, 30)")
    with pytest.raises(SourceChanged, match=ACTS[act]) as caught:
        project.run(once=True)
    assert caught.value.subject == "crm.product" and "`rollview setup`" in caught.value.hint
    assert crm.stopped(project) == {"sold", "kinds"}
    crm.check(project, "amounts")
    assert [e.subject for e in received if isinstance(e, Halted) and e.scope == "table"] == ["crm.product"]
    report = project.setup()
    assert set(report.loaded) == {"sold", "kinds"} and report.unchanged == ["amounts"]
    crm.execute("UPDATE product SET kind = kind || '!'", "INSERT INTO sale VALUES (4, 2, 40)")
    project.run(once=True)
    crm.check(project)
    assert not crm.stopped(project) and all(verdict.is_right for verdict in project.verify())


@what_if(
    "PostgreSQL",
    "`TRUNCATE`, also of several tables, and with `CASCADE`",
    "noticed in the log, at its transaction. Views that are [empty without the table](../what-if.md) "
    "continue without a gap; `run` reloads the others automatically",
)
def test_views_of_a_table_that_was_truncated_continue_or_are_reloaded_automatically(
    crm: Crm, project: Project
) -> None:
    crm.execute(
        "INSERT INTO sale VALUES (3, 2, 30)", "TRUNCATE product", "INSERT INTO product VALUES (2, 'mug')"
    )
    project.run(once=True)
    crm.check(project)
    crm.execute("UPDATE product SET kind = 'jug'", "INSERT INTO sale VALUES (4, 2, 40)")
    project.run(once=True)
    crm.check(project)
    assert not crm.stopped(project) and all(verdict.is_right for verdict in project.verify())
    # A sale had to be joined with a product of before.
    assert {view.name for view in project.status().views if view.spans} == {"sold"}


@what_if(
    "PostgreSQL",
    "a partition is dropped or detached, also `CONCURRENTLY`; detached and attached again; truncated; a "
    "table with rows is attached",
    "noticed by the list of partitions, and by the transactions that made them partitions; `run` reloads "
    "the views of the table automatically",
)
@what_if(
    "all sources",
    "a partition with rows comes or goes (PostgreSQL, MariaDB)",
    "`run` reloads the views that read the table. A new, empty one stops nothing",
)
def test_partitions_come_and_go(crm: Crm, received: list[Event], spark: SparkSession) -> None:
    """A new one stops and reloads nothing; after rows came or went with one, `run` reloads automatically."""
    crm.execute(
        "ALTER TABLE sale RENAME TO sale_old",
        "CREATE TABLE sale (id int, product int, amount int) PARTITION BY RANGE (id)",
        "CREATE TABLE sale_1 PARTITION OF sale FOR VALUES FROM (1) TO (10)",
        "INSERT INTO sale SELECT * FROM sale_old",
    )
    with Project.open(crm.folder, spark) as project:
        project.subscribe(received.append)
        project.setup()
        before = {view.name: view.oldest for view in project.status().views}
        crm.execute(
            "CREATE TABLE sale_2 PARTITION OF sale FOR VALUES FROM (10) TO (20)",
            "INSERT INTO sale VALUES (11, 1, 40), (12, 2, 50)",
        )
        project.run(once=True)
        crm.check(project)
        crm.execute("UPDATE sale SET id = 3 WHERE id = 11", "UPDATE product SET kind = kind || '!'")
        project.run(once=True)
        crm.check(project)
        assert project.setup().loaded == {}
        assert {view.name: view.oldest for view in project.status().views} == before
        assert not [each for each in received if isinstance(each, Halted)]
        for act in (
            [
                "CREATE TABLE more AS SELECT id + 20 AS id, product, amount FROM sale WHERE id < 10",
                "ALTER TABLE more REPLICA IDENTITY FULL",
                "ALTER TABLE sale ATTACH PARTITION more FOR VALUES FROM (20) TO (30)",
            ],
            ["DROP TABLE sale_1", "ALTER TABLE sale DETACH PARTITION sale_2"],
        ):
            crm.execute(
                "INSERT INTO product SELECT max(id) + 1, 'x' FROM product",
                *act,
                "INSERT INTO sale SELECT 29, max(id), 1 FROM product",
                "UPDATE sale SET amount = amount + 1",
            )
            project.run(once=True)
            crm.check(project)
            crm.execute("UPDATE sale SET product = 2", "UPDATE product SET kind = 'y' WHERE id = 2")
            project.run(once=True)
            crm.check(project)
            assert not crm.stopped(project) and project.setup().loaded == {}
        assert {e.subject for e in received if isinstance(e, Halted)} == {"crm.sale"}
        assert all(verdict.is_right for verdict in project.verify())
        assert {view.name: view.oldest for view in project.status().views}["kinds"] == before["kinds"]


def test_columns_that_no_view_uses_stop_nothing(crm: Crm, project: Project, received: list[Event]) -> None:
    """Neither when they come and go, nor at the next setup."""
    before = {view.name: view.oldest for view in project.status().views}
    for statement in (
        "ALTER TABLE product ADD COLUMN weight int DEFAULT 5",
        "ALTER TABLE product ALTER weight TYPE bigint",
        "ALTER TABLE product RENAME weight TO mass",
        "ALTER TABLE product DROP COLUMN mass",
    ):
        crm.execute(statement, "UPDATE product SET kind = kind || '!'")
        project.run(once=True)
        crm.check(project)
        assert project.setup().loaded == {}
        crm.execute("UPDATE product SET kind = kind || '?'")
        project.run(once=True)
        crm.check(project)
    assert {view.name: view.oldest for view in project.status().views} == before
    assert not crm.stopped(project)
    assert not [each for each in received if isinstance(each, Halted) and each.scope == "view"]


def test_a_loss_that_nobody_noticed_before_setup_is_not_forgotten(crm: Crm, project: Project) -> None:
    """Setup takes the publication as it is now, and whoever captures from before learns what is missing."""
    taken_out_and_put_back(crm)
    report = project.setup()
    assert any("captured again" in line for line in report.sources["crm"])
    assert crm.stopped(project) == {"sold", "kinds"}
    with pytest.raises(SourceChanged, match="taken out of the publication"):
        project.run(once=True)
    project.setup()
    crm.execute("UPDATE product SET kind = kind || '!'")
    project.run(once=True)
    crm.check(project)


def test_a_table_that_is_new_has_lost_nothing(crm: Crm, project: Project, received: list[Event]) -> None:
    crm.execute("INSERT INTO sale VALUES (3, 2, 30)")
    crm.define("branches", "SELECT count(*) AS n FROM crm.branch")
    project.setup()
    crm.execute("INSERT INTO branch VALUES (1)")
    project.run(once=True)
    assert not crm.stopped(project) and not [each for each in received if isinstance(each, Halted)]
    assert [tuple(row) for row in project.read("branches").collect()] == [(1,)]
    crm.check(project)

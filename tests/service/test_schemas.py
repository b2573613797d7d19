"""Views over several schemas of a PostgreSQL database, and over two databases of one server."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from rollview.errors import NeedsAdministrator, SourceChanged, ViewError
from rollview.project.project import Project
from servers.postgres import shared_server

pytestmark = pytest.mark.slow

_numbers = itertools.count(1)
VIEWS = {
    "paid": """SELECT customer.name, crm.billing.invoice.total FROM crm.customer
        JOIN crm.billing.invoice ON crm.billing.invoice.cust = customer.id""",
    "both": "SELECT i.id, o.id AS old FROM crm.billing.invoice i JOIN crm.`old one`.invoice o ON i.id = o.id",
    "sums": "SELECT cust, sum(total) AS total FROM crm.billing.invoice GROUP BY cust",
    "across": "SELECT c.name, t.text FROM crm.customer c JOIN desk.ticket t ON t.cust = c.id",
}


class Databases:
    """Two databases of one server, three schemas in the first, and the project over both."""

    def __init__(self, folder: Path) -> None:
        number = f"{os.getpid()}_{next(_numbers)}"
        self.names = [f"crm_{number}", f"desk_{number}"]
        self.folder = folder
        dsns = [shared_server().create_database(name) for name in self.names]
        self.crm, self.desk = (psycopg.connect(dsn, autocommit=True) for dsn in dsns)
        for statement in (
            "CREATE TABLE customer (id int PRIMARY KEY, name text)",
            "CREATE SCHEMA billing",
            "CREATE TABLE billing.invoice (id int PRIMARY KEY, cust int, total int)",
            'CREATE SCHEMA "old one"',
            'CREATE TABLE "old one".invoice (id int PRIMARY KEY)',
            "INSERT INTO customer VALUES (1, 'Ann'), (2, 'Bob')",
            "INSERT INTO billing.invoice VALUES (1, 1, 10), (2, 2, 20)",
            'INSERT INTO "old one".invoice VALUES (2)',
        ):
            self.crm.execute(statement)
        self.desk.execute("CREATE TABLE ticket (id int PRIMARY KEY, cust int, text text)")
        self.desk.execute("INSERT INTO ticket VALUES (1, 2, 'help')")
        (folder / "views").mkdir(parents=True)
        (folder / "rollview.yml").write_text(
            "name: schemas\nspark: {master: 'local[2]'}\nsources:\n"
            f"  crm: {{type: postgres, dsn: '{dsns[0]}', schemas: [public, billing, old one]}}\n"
            f"  desk: {{type: postgres, dsn: '{dsns[1]}'}}\n"
        )
        for name, sql in VIEWS.items():
            (folder / "views" / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {sql}")

    def expected(self) -> dict[str, Counter[Any]]:
        """What the servers themselves say."""
        customers = dict(self.crm.execute("SELECT id, name FROM customer").fetchall())
        invoices = self.crm.execute("SELECT id, cust, total FROM billing.invoice").fetchall()
        old = {number for (number,) in self.crm.execute('SELECT id FROM "old one".invoice').fetchall()}
        tickets = self.desk.execute("SELECT cust, text FROM ticket").fetchall()
        sums: Counter[int] = Counter()
        for _, cust, total in invoices:
            sums[cust] += total
        return {
            "paid": Counter((customers[cust], total) for _, cust, total in invoices if cust in customers),
            "both": Counter((number, number) for number, _, _ in invoices if number in old),
            "sums": Counter(sums.items()),
            "across": Counter((customers[cust], text) for cust, text in tickets if cust in customers),
        }

    def check(self, project: Project) -> None:
        project.run(once=True)
        for name, rows in self.expected().items():
            assert Counter(map(tuple, project.read(name).collect())) == rows, name

    def close(self) -> None:
        self.crm.close()
        self.desk.close()
        for name in self.names:
            shared_server().drop_database(name)


@pytest.fixture
def databases(tmp_path: Path) -> Iterator[Databases]:
    opened = Databases(tmp_path / "project")
    yield opened
    opened.close()


def test_oracle_views_over_schemas_and_databases(databases: Databases, spark: SparkSession) -> None:
    with Project.open(databases.folder, spark) as project:
        project.setup()
        databases.check(project)
        databases.crm.execute("UPDATE billing.invoice SET total = total + 1")
        databases.crm.execute("INSERT INTO billing.invoice VALUES (3, 1, 30)")
        databases.crm.execute('INSERT INTO "old one".invoice VALUES (3)')
        databases.crm.execute("UPDATE customer SET name = 'Eve' WHERE id = 2")
        databases.desk.execute("INSERT INTO ticket VALUES (2, 1, 'thanks')")
        databases.check(project)
        assert all(verdict.is_right for verdict in project.verify())
        assert (databases.folder / "lake/changes/crm/billing~2einvoice/_delta_log").is_dir()
        assert "crm.billing.invoice" in project.explain("paid").normal_form
        answer = project.query("SELECT count(*) AS n FROM crm.billing.invoice")
        assert [tuple(row) for row in answer.rows.collect()] == [(3,)]
        # What happens to a table of one schema is no matter to its namesake in another.
        databases.crm.execute('ALTER TABLE "old one".invoice RENAME TO gone')
        databases.crm.execute("INSERT INTO billing.invoice VALUES (4, 1, 40)")
        with pytest.raises(SourceChanged, match=r"crm\.old one\.invoice was renamed") as caught:
            project.run(once=True)
        assert caught.value.subject == "crm.old one.invoice"
        stopped = {view.name for view in project.status().views if view.state == "stopped"}
        assert stopped == {"both"}
        sums = databases.crm.execute("SELECT cust, sum(total) FROM billing.invoice GROUP BY cust").fetchall()
        assert Counter(map(tuple, project.read("sums").collect())) == Counter(sums)
        file = databases.folder / "views" / "both.sql"
        file.write_text("CREATE MATERIALIZED VIEW both AS SELECT id FROM crm.private.invoice")
        with pytest.raises(ViewError, match=r"unknown relation `crm\.private\.invoice`"):
            project.setup()


def test_views_come_and_go_without_the_administrator_of_the_server(
    databases: Databases, spark: SparkSession
) -> None:
    """Who is asked once for the tables is not asked again, whatever becomes of the views."""
    role = f"reader_{databases.names[0]}"
    databases.crm.execute(f"CREATE ROLE {role} LOGIN")
    file = databases.folder / "rollview.yml"
    file.write_text(file.read_text().replace("//postgres@", f"//{role}@"))
    for name in ("both", "across"):
        (databases.folder / "views" / f"{name}.sql").unlink()
    with Project.open(databases.folder, spark) as project:
        with pytest.raises(NeedsAdministrator) as needed:
            project.setup()
        for statement in needed.value.statements:
            databases.crm.execute(statement.encode())
        project.setup()
        (databases.folder / "views" / "paid.sql").unlink()
        report = project.setup()
        assert report.dropped == ["paid"] and "table customer is no longer captured" in report.sources["crm"]
        databases.crm.execute("UPDATE customer SET name = 'Eve'")
        databases.crm.execute("UPDATE billing.invoice SET total = 7")
        project.run(once=True)
        assert Counter(map(tuple, project.read("sums").collect())) == databases.expected()["sums"]
        (databases.folder / "views" / "named.sql").write_text(
            "CREATE MATERIALIZED VIEW named AS SELECT c.id, c.name, i.id AS invoice"
            " FROM crm.customer c JOIN crm.billing.invoice i ON i.cust = c.id"
        )
        project.setup()
        databases.crm.execute("UPDATE customer SET name = 'Zoe' WHERE id = 1")
        project.run(once=True)
        assert Counter(map(tuple, project.read("named").collect())) == {(1, "Zoe", 1): 1, (2, "Eve", 2): 1}
        for statement in project._warehouse.sites.sources["crm"].remove().needed:
            databases.crm.execute(statement.encode())
    databases.crm.execute(f"DROP OWNED BY {role}")
    databases.crm.execute(f"DROP ROLE {role}")

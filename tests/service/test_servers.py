"""Views over a real PostgreSQL and a real MariaDB: what can happen to them, and what a user does then."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from pages.what_if import what_if
from rollview.cli import main
from rollview.errors import PointError, RollviewError
from rollview.events import Event, GivenUp, SourceNoted
from rollview.maintain import capture
from rollview.project.project import Project
from rollview.spark.workers import SparkWorkers
from servers.mariadb import PASSWORD, MariaDBServer
from servers.postgres import PostgresServer

pytestmark = pytest.mark.slow

VIEWS = {
    "sold": """SELECT s.sale_id, c.state, s.amount FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id""",
    "by_state": """SELECT c.state, count(*) AS n, sum(s.amount) AS total FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id GROUP BY c.state""",
    "products": "SELECT sale_id, amount FROM shop.sales WHERE amount > 5",
}
PROJECT = """name: live
spark: {master: 'local[2]'}
sources:
  crm: {type: postgres, dsn: "${CRM_DSN}", slot: "${CRM_SLOT}", coordinators: [postgres]}
  shop: {type: mariadb, dsn: "${SHOP_DSN}"}
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDBServer]:
    server = MariaDBServer().start()
    yield server
    server.close()


class Live:
    """A customer database and a sales database, each on its own server, and the project over both."""

    def __init__(self, folder: Path, postgres: PostgresServer, mariadb: MariaDBServer, name: str) -> None:
        self.folder, self.postgres, self.mariadb, self.name = folder, postgres, mariadb, name
        self.crm_dsn, self.shop_dsn = postgres.create_database(name), mariadb.create_database(name)
        self.crm(
            "CREATE TABLE customer (cust_id BIGINT PRIMARY KEY, state TEXT)",
            "INSERT INTO customer VALUES (1, 'CA'), (2, 'NV'), (3, 'CA')",
        )
        self.shop(
            "CREATE TABLE sales (sale_id BIGINT PRIMARY KEY, cust_id BIGINT, amount DECIMAL(10,2))",
            "INSERT INTO sales VALUES (1, 1, 10), (2, 2, 3.50), (3, 1, 7)",
        )
        folder.mkdir()
        (folder / "views").mkdir()
        (folder / "rollview.yml").write_text(PROJECT)
        for view, sql in VIEWS.items():
            (folder / "views" / f"{view}.sql").write_text(f"CREATE MATERIALIZED VIEW {view} AS {sql}")

    def crm(self, *statements: str) -> None:
        """One transaction in PostgreSQL."""
        with psycopg.connect(self.crm_dsn) as connection:
            for statement in statements:
                connection.execute(statement)

    def shop(self, *statements: str) -> None:
        """One transaction in MariaDB."""
        with (
            closing(self.mariadb.connect(self.name, autocommit=False)) as connection,
            connection.cursor() as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def announced(self, global_id: str) -> dict[str, str]:
        """What makes a transaction a part of a global one, at each server."""
        return {
            "crm": f"SELECT {self.name}_global.take_part('{global_id}', 'crm,shop')",
            "shop": f"INSERT INTO _rollview_global VALUES ('{global_id}', 'crm,shop')",
        }

    def expected(self) -> dict[str, Counter[Any]]:
        """All views, computed here from what the servers hold."""
        with psycopg.connect(self.crm_dsn) as connection:
            states = dict(connection.execute("SELECT cust_id, state FROM customer").fetchall())
        sales = self.mariadb.execute("SELECT sale_id, cust_id, amount FROM sales", database=self.name)
        sold = [(sale, states[customer], amount) for sale, customer, amount in sales if customer in states]
        groups = {state: [a for _, s, a in sold if s == state] for _, state, _ in sold}
        return {
            "sold": Counter(sold),
            "by_state": Counter((state, len(each), sum(each)) for state, each in groups.items()),
            "products": Counter((sale, amount) for sale, _, amount in sales if amount > 5),
        }


@pytest.fixture
def live(
    tmp_path: Path,
    postgres: PostgresServer,
    mariadb: MariaDBServer,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Live:
    name = re.sub(r"\W", "_", request.node.name.removeprefix("test_"))[:40].lower()
    made = Live(tmp_path / "live", postgres, mariadb, name)
    monkeypatch.setenv("CRM_DSN", made.crm_dsn)
    monkeypatch.setenv("CRM_SLOT", name)
    monkeypatch.setenv("SHOP_DSN", made.shop_dsn)
    return made


@pytest.fixture
def project(live: Live, spark: SparkSession) -> Iterator[Project]:
    with Project.open(live.folder, spark) as opened:
        opened.setup()
        yield opened
        opened.remove()


def check(project: Project, live: Live) -> None:
    project.refresh()
    for view, expected in live.expected().items():
        assert Counter(tuple(row) for row in project.read(view).collect()) == expected, view
    assert all(verdict.is_right for verdict in project.verify())


def test_views_follow_both_servers(project: Project, live: Live) -> None:
    check(project, live)
    live.crm("UPDATE customer SET state = 'WA' WHERE cust_id = 1", "INSERT INTO customer VALUES (4, 'TX')")
    live.shop("DELETE FROM sales WHERE sale_id = 2", "INSERT INTO sales VALUES (9, 4, 8.25)")
    check(project, live)
    status = project.status()
    assert {site.kind for site in status.sources} == {"postgres", "mariadb"}
    assert status.last_csn == 2 and not status.waiting


def test_large_readings_are_spread_over_spark(
    project: Project, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many keys, and large tables: Spark's tasks look, all at one snapshot, while somebody writes."""
    ran: list[int] = []
    run = SparkWorkers.run

    def counted(workers: SparkWorkers, tasks: Sequence[Any], shared: Any) -> list[bytes]:
        live.crm("UPDATE customer SET state = state || '!' WHERE cust_id = 2")
        ran.append(len(tasks))
        return run(workers, tasks, shared)

    monkeypatch.setattr(SparkWorkers, "run", counted)
    monkeypatch.setattr("rollview.sources.postgres.read.lookup.SPLIT_KEYS", 2)
    monkeypatch.setattr("rollview.sources.postgres.read.load.LARGE_BYTES", 0)
    live.shop("INSERT INTO sales VALUES (70, 1, 10), (71, 2, 20), (72, 3, 30)")
    project.refresh("sold")
    assert ran and max(ran) > 1
    project.setup(["by_state"])
    assert len(ran) > 1
    monkeypatch.setattr(SparkWorkers, "run", run)
    check(project, live)


@what_if(
    "all sources",
    "the log of a source is lost, or another server answers",
    "its views stop; `rollview setup --reload SOURCE` loads them. With the property `'rollview.on_loss' ="
    " 'reload'` `run` reloads them",
)
def test_a_dropped_slot_is_an_error_and_its_source_is_reloaded(project: Project, live: Live) -> None:
    untouched = project._warehouse.views.record("products").loaded_csn
    with psycopg.connect(live.crm_dsn, autocommit=True) as connection:
        project._warehouse.sites.sources["crm"].close()
        live.postgres.free_slots(live.name)
        dropped = connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s",
            (live.name,),
        ).fetchall()
    assert dropped
    live.crm("UPDATE customer SET state = 'WA' WHERE cust_id = 1")
    with pytest.raises(RollviewError) as caught:
        project.capture()
    assert "`rollview setup --reload crm`" in str(caught.value) and "slot" in str(caught.value)
    report = project.setup(["crm"])
    assert set(report.loaded) == {"sold", "by_state"} and report.unchanged == ["products"]
    assert project._warehouse.views.record("products").loaded_csn == untouched
    live.crm("UPDATE customer SET state = 'OR' WHERE cust_id = 2")
    live.shop("INSERT INTO sales VALUES (10, 2, 99)")
    check(project, live)


def test_half_a_global_transaction_waits_until_somebody_ends_it(project: Project, live: Live) -> None:
    live.crm("UPDATE customer SET state = 'WA' WHERE cust_id = 1", live.announced("move-1")["crm"])
    live.crm("UPDATE customer SET state = 'TX' WHERE cust_id = 3")
    live.shop("INSERT INTO sales VALUES (11, 1, 50)")
    project.capture()
    (waiting,) = project.status().waiting
    assert (waiting.global_id, waiting.present, waiting.missing) == ("move-1", ("crm",), ("shop",))
    assert project.status().last_csn == 1, "the shop continues, the customers wait"
    shown = CliRunner().invoke(main, ["status", "--project", str(live.folder)]).output
    assert "global transaction move-1 waits for shop" in shown and "rollview release move-1" in shown
    states = {"sold": "waiting for shop", "by_state": "waiting for shop", "products": "catching up"}
    assert {view.name: view.state for view in project.status().views} == states
    found = project.observe.state().views
    assert {view.name: view.state for view in found} == states
    assert {view.name for view in found if view.waits_for} == {"sold", "by_state"}
    bad = CliRunner().invoke(main, ["release", "move-2", "--project", str(live.folder)])
    assert bad.exit_code == 2 and "no global transaction move-2 is waiting" in bad.output
    done = CliRunner().invoke(main, ["release", "move-1", "--project", str(live.folder)])
    assert done.exit_code == 0 and "no longer waiting for shop" in done.output
    check(project, live)
    status = project.status()
    assert status.last_csn == 3 and not status.waiting
    assert [each.global_id for each in status.released] == ["move-1"]
    assert {view.state for view in status.views} == {"running"}
    # The other half comes after all: a transaction of its own.
    live.shop("INSERT INTO sales VALUES (12, 1, 60)", live.announced("move-1")["shop"])
    check(project, live)
    assert project.status().last_csn == 4


def test_a_part_that_does_not_come_is_given_up_after_the_time_that_the_project_sets(
    project: Project, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[Event] = []
    project.subscribe(received.append)
    live.crm("UPDATE customer SET state = 'WA' WHERE cust_id = 1", live.announced("lost")["crm"])
    live.crm("UPDATE customer SET state = 'TX' WHERE cust_id = 3")
    project.capture()
    (waiting,) = project.status().waiting
    assert project.status().last_csn == 0 and waiting.global_id == "lost"
    now, later = time.time, 200.0
    monkeypatch.setattr(capture.time, "time", lambda: now() + later)
    project.capture()
    assert project.status().last_csn == 0, "it has not had its five minutes"
    later = 400.0
    # The server of the missing part does not answer: from now on it has five minutes, too.
    live.mariadb.stop()
    try:
        with pytest.raises(RollviewError):
            project.capture()
        assert project.status().last_csn == 0
    finally:
        live.mariadb.start()
    check(project, live)
    status = project.status()
    assert status.last_csn == 2 and not status.waiting
    assert [each.global_id for each in status.released] == ["lost"]
    (given_up,) = [each for each in received if isinstance(each, GivenUp)]
    assert (given_up.global_id, given_up.present, given_up.missing) == ("lost", ("crm",), ("shop",))
    # What comes too late is a transaction of its own, and another id is waited for as ever.
    live.shop("INSERT INTO sales VALUES (12, 1, 60)", live.announced("lost")["shop"])
    check(project, live)
    assert project.status().last_csn == 3


def test_a_message_that_anybody_can_write_holds_nothing_up(project: Project, live: Live) -> None:
    received: list[Event] = []
    project.subscribe(received.append)
    for number in range(3):
        live.crm(f"SELECT pg_logical_emit_message(true, 'rollview', 'g{number}:crm,shop')")
    live.crm("UPDATE customer SET state = 'WA' WHERE cust_id = 1")
    check(project, live)
    status = project.status()
    assert status.last_csn == 1 and not status.waiting
    assert {view.state for view in status.views} == {"running"}
    (note,) = [each for each in received if isinstance(each, SourceNoted)]
    assert note.source == "crm" and "take_part" in note.note


def test_both_parts_of_a_global_transaction_are_one_csn(project: Project, live: Live) -> None:
    live.shop("INSERT INTO sales VALUES (20, 1, 1)")
    mark = live.announced("both")
    live.crm("UPDATE customer SET state = 'WA'", mark["crm"], "PREPARE TRANSACTION 'here'")
    live.shop("XA START 'there'", "UPDATE sales SET amount = amount + 1", mark["shop"], "XA END 'there'",
              "XA PREPARE 'there'", "XA COMMIT 'there'")  # fmt: skip
    project.capture()
    assert project.status().last_csn == 1 and project.status().waiting
    with psycopg.connect(live.crm_dsn, autocommit=True) as connection:
        connection.execute("COMMIT PREPARED 'here'")
    check(project, live)
    assert project.status().last_csn == 2
    before = {row["state"] for row in project.read("sold", as_of=1).collect()}
    assert before == {"CA", "NV"}


@what_if(
    "all sources",
    "TRUNCATE",
    "views that are empty without the table continue without a gap, exact at that csn, as if every row "
    "had been deleted. `run` reloads the others at a later csn: those with a part that does not join the "
    "table, such as the other side of an outer join; those that were not propagated up to that csn and "
    "need its earlier rows; all of them, if the same transaction added rows again",
)
def test_views_pass_a_truncate(project: Project, live: Live) -> None:
    live.shop("TRUNCATE sales")
    check(project, live)
    live.crm("INSERT INTO customer VALUES (7, 'CA')")
    live.shop("INSERT INTO sales VALUES (30, 7, 70)")
    check(project, live)
    assert not any(view.spans for view in project.status().views)


def test_a_server_that_is_away_is_waited_for(project: Project, live: Live) -> None:
    live.mariadb.stop()
    try:
        with pytest.raises(RollviewError) as caught:
            project.capture()
        assert PASSWORD not in str(caught.value)
        assert any(site.problem or "unavailable" in str(site.how) for site in project.status().sources)
    finally:
        live.mariadb.start()
    live.shop("INSERT INTO sales VALUES (40, 1, 41)")
    check(project, live)


def test_secrets_stay_secret(project: Project, live: Live) -> None:
    live.shop("INSERT INTO sales VALUES (50, 1, 51)")
    check(project, live)
    shown = CliRunner().invoke(main, ["status", "--json", "--project", str(live.folder)]).output
    assert PASSWORD not in shown
    for file in (live.folder / "lake").rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert PASSWORD.encode() not in content and b"s3cret" not in content, file


def test_remove_leaves_no_trace(live: Live, spark: SparkSession) -> None:
    def traces() -> tuple[Any, ...]:
        with psycopg.connect(live.crm_dsn) as connection:
            found = (
                connection.execute("SELECT count(*) FROM pg_replication_slots").fetchone(),
                connection.execute("SELECT count(*) FROM pg_publication").fetchone(),
                connection.execute("SELECT relname, relreplident FROM pg_class WHERE relkind = 'r'"
                                   " AND relnamespace = 'public'::regnamespace ORDER BY 1").fetchall(),
            )  # fmt: skip
        return (*found, live.mariadb.execute("SHOW TABLES", database=live.name))

    before = traces()
    with Project.open(live.folder, spark) as opened:
        opened.setup()
        assert traces() != before
        live.shop("INSERT INTO sales VALUES (60, 1, 61)")
        check(opened, live)
        opened.remove()
    assert traces() == before


def test_positions_of_the_servers_are_points_in_time(live: Live, spark: SparkSession) -> None:
    """An LSN, a GTID and a place in the binary log, taken after a commit, mean that server's state then."""
    people = "CREATE MATERIALIZED VIEW people AS SELECT cust_id, state FROM crm.customer"
    (live.folder / "views" / "people.sql").write_text(people)

    def customers() -> Counter[Any]:
        with psycopg.connect(live.crm_dsn) as connection:
            return Counter(connection.execute("SELECT cust_id, state FROM customer").fetchall())

    def position() -> str:
        with psycopg.connect(live.crm_dsn) as connection:
            row = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
        assert row is not None
        return f"crm:{row[0]}"

    def gtid() -> str:
        ((written,),) = live.mariadb.execute("SELECT @@gtid_binlog_pos")
        return f"shop:{written}"

    points: list[tuple[str, str, Counter[Any]]] = []
    with Project.open(live.folder, spark) as project:
        project.setup()
        for number in range(14, 18):
            live.crm(f"INSERT INTO customer VALUES ({number}, 'P{number}')")
            points.append(("people", position(), customers()))
            live.shop(f"INSERT INTO sales VALUES ({number}, {number}, {number})")
            ((file, offset, *_),) = live.mariadb.execute("SHOW MASTER STATUS")
            points += [
                ("products", at, live.expected()["products"]) for at in (gtid(), f"shop:{file}:{offset}")
            ]
            # A transaction of a table that nobody reads.
            live.mariadb.execute("CREATE OR REPLACE TABLE other (x INT)", database=live.name)
            points.append(("products", gtid(), live.expected()["products"]))
            live.crm(f"DELETE FROM customer WHERE cust_id = {number}")
            points.append(("people", position(), customers()))
        for view, at, _ in points[-2:]:
            with pytest.raises(PointError, match="has not been captured up to"):
                project.read(view, at)
        project.run(once=True)
        for view, at, expected in points:
            answer = project.query(f"SELECT * FROM {view}", as_of=at)
            assert Counter(tuple(row) for row in answer.rows.collect()) == expected, (view, at)
        for wrong in ("crm:yesterday", "shop:0-1", "shop:other-bin.000001:4"):
            with pytest.raises(PointError, match="is not a position of source"):
                project.read("sold", wrong)

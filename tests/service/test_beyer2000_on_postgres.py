"""The examples of beyer2000, end to end on PostgreSQL: each view with the policy that the paper means."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from shop import shown

from rollview.algorithms.beyer2000 import source_propagation
from rollview.project.project import Project
from servers.postgres import PostgresServer, shared_server

pytestmark = pytest.mark.slow

STATE_COUNT = """SELECT c.state, count(*) AS count FROM db.sales s
    JOIN db.customer c ON s.custid = c.custid GROUP BY c.state"""


class Bank:
    """A database with some tables, and the project over it."""

    def __init__(self, folder: Path, dsn: str, tables: str, **views: str) -> None:
        self.folder, self.dsn = folder, dsn
        self.run(*tables.split(";"))
        (folder / "views").mkdir(parents=True)
        source = f'  db: {{type: postgres, dsn: "{dsn}"}}'
        (folder / "rollview.yml").write_text(
            f"name: bank\nspark: {{master: 'local[2]'}}\nsources:\n{source}\n"
        )
        for name, sql in views.items():
            properties, _, query = sql.rpartition("|")
            said = ", ".join(
                f"'rollview.{k}' = '{v}'" for k, v in (p.split("=") for p in properties.split("|") if p)
            )
            text = f"CREATE MATERIALIZED VIEW {name} {f'TBLPROPERTIES ({said}) ' if said else ''}AS {query}"
            (folder / "views" / f"{name}.sql").write_text(text)

    def run(self, *statements: str) -> None:
        """One transaction."""
        with psycopg.connect(self.dsn) as connection:
            for statement in statements:
                connection.execute(statement.encode())


@pytest.fixture
def dsn(request: pytest.FixtureRequest) -> Iterator[str]:
    server: PostgresServer = shared_server()
    name = request.node.name.partition("[")[0][:60]
    yield server.create_database(name)
    server.drop_database(name)


def _now() -> str:
    """The time, with nothing committed close to it."""
    time.sleep(0.05)
    moment = datetime.now(UTC).isoformat()
    time.sleep(0.05)
    return moment


def _expect_triggers(bank: Bank, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers do what the policy says of them; under ipda nothing is computed from the log."""
    with psycopg.connect(bank.dsn) as connection:
        found = connection.execute("SELECT FROM pg_trigger WHERE tgname LIKE 'rollview%'").fetchall()
    assert bool(found) == (policy != "deferred")

    def compute(query: object) -> None:
        raise AssertionError("it is computed from the log")

    if policy == "ipda":
        monkeypatch.setattr(source_propagation, "evaluate_forward", compute)


def _rows(answer: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in answer.rows.collect())


def test_state_count_and_its_copies(tmp_path: Path, spark: SparkSession, dsn: str) -> None:
    """§1.2: one delta, used by copies with other schedules; each is as of a time of its own."""
    bank = Bank(
        tmp_path / "p",
        dsn,
        "CREATE TABLE customer (custid INT PRIMARY KEY, state TEXT);"
        "CREATE TABLE sales (id INT PRIMARY KEY, custid INT);"
        "INSERT INTO customer VALUES (1, 'WI'), (2, 'WI')",
        statecount=f"policy=ipda|{STATE_COUNT}",
        daily="schedule=every 1s|SELECT * FROM statecount",
        monthly="schedule=0 0 1 1 *|SELECT * FROM statecount",
    )
    with Project.open(bank.folder, spark) as project:
        project.setup()
        with psycopg.connect(dsn) as x1, psycopg.connect(dsn) as x2:
            x1.execute("INSERT INTO sales VALUES (1, 1)")
            x2.execute("INSERT INTO sales VALUES (2, 2)")
            x2.commit()
            friday = _now()
            x1.commit()
        # On Sunday it is rolled to Friday.
        project.refresh("statecount", to=friday)
        assert shown(project, "statecount") == {("WI", 1): 1}
        time.sleep(1.2)
        project.run(once=True)
        assert shown(project, "statecount") == {("WI", 2): 1} == shown(project, "daily")
        assert shown(project, "monthly") == {}
        project.refresh("monthly", "statecount")
        assert shown(project, "monthly") == shown(project, "statecount") == {("WI", 2): 1}


@pytest.mark.parametrize("policy", ["ipda", "immediate", "deferred"])
def test_withdrawals_and_deposits_at_three(
    tmp_path: Path, spark: SparkSession, dsn: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§4.3 and §4.4: a transfer is in both views or in neither; what depends on it comes behind it."""
    query = "SELECT id, sum(amount) AS amount FROM db.accounts WHERE amount {} 0 GROUP BY id"
    bank = Bank(
        tmp_path / "p",
        dsn,
        "CREATE TABLE accounts (id TEXT, amount INT)",
        withdrawals=f"policy={policy}|{query.format('<')}",
        deposits=f"policy={policy}|{query.format('>')}",
    )
    with Project.open(bank.folder, spark) as project:
        project.setup()
        _expect_triggers(bank, policy, monkeypatch)
        with psycopg.connect(dsn) as x1:
            x1.execute("INSERT INTO accounts VALUES ('a1', -100)")  # 2:59
            three = _now()
            x1.execute("INSERT INTO accounts VALUES ('a2', 100)")  # 3:01
        bank.run("INSERT INTO accounts VALUES ('a3', 100), ('a2', -100)")
        later = _now()
        project.refresh(to=three)
        assert shown(project, "withdrawals") == shown(project, "deposits") == {}
        project.refresh(to=later)
        assert shown(project, "withdrawals") == {("a1", -100): 1, ("a2", -100): 1}
        assert shown(project, "deposits") == {("a2", 100): 1, ("a3", 100): 1}
        # At every csn, whoever received money did so from somebody who had it.
        last = project.status().last_csn
        for csn in range(last + 1):
            taken = sum(row[1] for row in shown(project, "withdrawals", csn))
            assert taken == -sum(row[1] for row in shown(project, "deposits", csn)), csn


@pytest.mark.parametrize("policy", ["ipda", "immediate", "deferred"])
def test_petunias(
    tmp_path: Path, spark: SparkSession, dsn: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§5: the net effect of what happened to a key is one row that goes and one that comes."""
    bank = Bank(
        tmp_path / "p",
        dsn,
        "CREATE TABLE customer (custid INT PRIMARY KEY, name TEXT, state TEXT);"
        "INSERT INTO customer VALUES (52, 'Paul''s Petunias', 'WI')",
        wicust=f"policy={policy}|SELECT custid, name FROM db.customer WHERE state = 'WI'",
    )
    with Project.open(bank.folder, spark) as project:
        project.setup()
        _expect_triggers(bank, policy, monkeypatch)
        first = project.status().last_csn
        for name in ("Peter", "Patty"):
            bank.run(f"UPDATE customer SET name = '{name}''s Petunias' WHERE custid = 52")
        project.run(once=True)
        history = [(row["name"].split("'")[0], row["_count"]) for row in project.deltas("wicust").collect()]
        assert sorted(history) == [("Patty", 1), ("Paul", -1), ("Peter", -1), ("Peter", 1)]
        assert shown(project, "wicust", first + 1) == {(52, "Peter's Petunias"): 1}
        project.condense("wicust", first, first + 2)
        net = [(row["name"].split("'")[0], row["_count"]) for row in project.deltas("wicust").collect()]
        assert sorted(net) == [("Patty", 1), ("Paul", -1)]
        assert shown(project, "wicust") == {(52, "Patty's Petunias"): 1}


def test_debits_and_credits(tmp_path: Path, spark: SparkSession, dsn: str) -> None:
    """§6, Figure 3: by commit times, the older view is not combined with the newer table."""
    bank = Bank(
        tmp_path / "p",
        dsn,
        "CREATE TABLE debits (date DATE, value INT);CREATE TABLE credits (date DATE, value INT)",
        totalcredits="policy=snapshot|SELECT sum(value) AS total FROM db.credits",
        debited="SELECT sum(value) AS total FROM db.debits",
    )
    question = (
        "SELECT 'debits' AS side, sum(value) AS total FROM db.debits"
        " UNION SELECT 'credits', sum(value) FROM db.credits"
    )
    with Project.open(bank.folder, spark) as project:
        project.setup()
        with psycopg.connect(dsn) as writer:
            writer.execute("INSERT INTO debits VALUES ('2000-01-01', 1)")  # t1
            project.refresh("totalcredits")  # t3, t4
            before = _now()
            writer.execute("INSERT INTO credits VALUES ('2000-01-01', 1)")  # t5
        project.run(once=True)  # t6 is behind it
        now = project.query(question)
        assert _rows(now) == [("credits", 1), ("debits", 1)]
        assert "totalcredits" not in now.views and "debited" in now.views
        then = project.query(question, as_of=before)
        assert _rows(then) == [("credits", None), ("debits", None)]
        # As the paper writes it: with the view in its place, there is no answer of now.
        written = question.replace("sum(value) FROM db.credits", "total FROM totalcredits")
        rewritten = project.query(written)
        assert _rows(rewritten) == _rows(then)
        assert rewritten.csn == then.csn < now.csn

"""The policy immediate: a view is kept at the server itself, in the transactions that change it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from one_server import VIEWS, OneServer, transact, with_policy, writing
from pyspark.sql import SparkSession
from shop import shown

from rollview.errors import UnsupportedError
from rollview.project.project import Project
from servers.postgres import PostgresServer

pytestmark = pytest.mark.slow

KEPT = {
    "state_count": VIEWS["state_count"],
    "lines": VIEWS["lines"],
    "sold": """SELECT s.sale_id, c.state, p.kind, s.amount FROM db.sales s
        JOIN db.customer c ON s.cust_id = c.cust_id
        JOIN db.product p ON s.product_id = p.product_id WHERE s.amount > 2""",
    "spread": """SELECT c.state, min(s.amount) AS least, max(s.amount) AS most, avg(s.amount) AS mean
        FROM db.sales s JOIN db.customer c ON s.cust_id = c.cust_id GROUP BY c.state""",
    "families": VIEWS["families"],
    "mixed": VIEWS["mixed"],
    "grand_total": "SELECT count(*) AS n, sum(amount) AS total, count(amount) AS known FROM db.sales",
    "by_product": """SELECT product_id, sum(amount) AS total FROM db.sales
        WHERE amount < 7 GROUP BY product_id""",
}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Writers that block each other both ways find out at once."""
    made = PostgresServer({"deadlock_timeout": "20ms"})
    made.start()
    yield made
    made.remove()


@pytest.fixture
def dsn(server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name.partition("[")[0][:60]
    yield server.create_database(name)
    server.drop_database(name)


def _check_kept(dsn: str, views: dict[str, str]) -> None:
    """What the server shows of a view is what it says when it computes it, in one snapshot."""
    with psycopg.connect(dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for name, sql in views.items():
            kept = Counter(connection.execute(f'SELECT * FROM {_schema(dsn)}."{name}"').fetchall())
            # The server's own average is a number of another type.
            theirs = sql.replace("db.", "").replace("avg(s.amount)", "avg(s.amount)::float8")
            assert kept == Counter(connection.execute(theirs).fetchall()), name


def _schema(dsn: str) -> str:
    with psycopg.connect(dsn) as connection:
        (row,) = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'rollview%'")
        return str(row[0])


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_oracle_at_the_server_at_any_moment_and_in_the_lake_at_every_csn(
    tmp_path: Path, spark: SparkSession, dsn: str, seed: int
) -> None:
    world = OneServer(tmp_path / "p", dsn, with_policy("immediate", KEPT))
    world.fill(random.Random(seed))
    world.begin()
    with Project.open(world.folder, spark) as project:
        project.setup()
        _check_kept(dsn, KEPT)
        written: list[None] = []

        def write(connection: psycopg.Connection[Any], chance: random.Random) -> None:
            transact(connection, chance, unnoticed=0.0)
            written.append(None)

        with writing(dsn, 4, write, seed):
            enough, latest = time.monotonic() + 3, time.monotonic() + 120
            # A busy machine takes longer to write as much.
            while time.monotonic() < enough or (len(written) < 150 and time.monotonic() < latest):
                _check_kept(dsn, KEPT)
        _check_kept(dsn, KEPT)
        project.run(once=True)
        assert world.check_every_csn(project) > 50


def test_the_second_writer_of_a_group_waits(tmp_path: Path, spark: SparkSession, dsn: str) -> None:
    """beyer2000 §1.2: what ipda is there to avoid."""
    world = OneServer(tmp_path / "p", dsn, with_policy("immediate", {"state_count": KEPT["state_count"]}))
    with psycopg.connect(dsn) as connection:
        connection.execute("INSERT INTO customer VALUES (1, 'WI'), (2, 'WI'), (3, 'NV')")
        connection.execute("INSERT INTO sales VALUES (7, 3, 1, 1), (8, 1, 1, 0)")
    world.begin()
    with Project.open(world.folder, spark) as project:
        project.setup()
        with psycopg.connect(dsn) as x1, psycopg.connect(dsn) as x2:
            x2.execute("SET lock_timeout = '50ms'")
            x2.commit()
            x1.execute("INSERT INTO sales VALUES (1, 1, 1, 5)")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                x2.execute("INSERT INTO sales VALUES (2, 2, 1, 6)")
            x2.rollback()
            x2.execute("INSERT INTO sales VALUES (3, 3, 1, 6)")  # Another group.
            x2.commit()
            x1.rollback()
            x2.execute("INSERT INTO sales VALUES (2, 2, 1, 6)")
            x2.commit()
        _check_kept(dsn, {"state_count": KEPT["state_count"]})
        project.run(once=True)
        assert shown(project, "state_count") == {("WI", 2, 6): 1, ("NV", 2, 7): 1}


def test_the_server_shows_what_spark_computes(tmp_path: Path, spark: SparkSession, dsn: str) -> None:
    """Averages and expressions: to the last digit, and with as many digits."""
    views = {
        "means": """SELECT k, avg(a) AS a, avg(b) AS b, avg(c) AS c, avg(n) AS n, avg(a * n) AS an,
            avg(CASE WHEN d > DATE '2024-03-01' THEN b END) AS late, sum(b) + 1 AS bb
            FROM db.odd GROUP BY k""",
        "mean": "SELECT avg(a) AS a, avg(c) AS c, avg(n) AS n, max(a) AS m, count(b) AS b FROM db.odd",
        "computed": """SELECT id, a * b AS ab, a - n AS an, -c AS c, abs(a) AS aa, year(d) + month(d) AS m,
            CAST(b AS DECIMAL(15,3)) AS b, CAST(b AS BIGINT) AS whole, coalesce(a, b) AS either,
            a = b OR NOT (n IN (1, 2)) AS flag, w || '-' || w AS w, n <=> NULL AS no, a * 0.10 AS tenth
            FROM db.odd""",
        "extremes": """SELECT k, min(a) AS a, max(a + b) AS ab, min(d) AS d, max(at) AS at, avg(c) AS c,
            count(*) AS n FROM db.odd GROUP BY k""",
    }
    world = OneServer(tmp_path / "p", dsn, with_policy("immediate", views))
    chance = random.Random(5)

    def some(digits: int, behind: int) -> Decimal | None:
        number = chance.randint(-(10**digits) + 1, 10**digits - 1)
        return None if chance.random() < 0.1 else Decimal(number).scaleb(-behind)

    with psycopg.connect(dsn) as connection:
        connection.execute(
            "CREATE TABLE odd (id INT PRIMARY KEY, k INT, a NUMERIC(9,2), b NUMERIC(18,7), c NUMERIC(5,4),"
            " n SMALLINT, d DATE, at TIMESTAMP, w TEXT)"
        )
        with connection.cursor() as cursor:
            rows = [
                (
                    *(i, i % 150, some(9, 2), some(18, 7), some(5, 4), chance.choice([None, 1, 2, 30000])),
                    date(2024, chance.randint(1, 12), 1 + i % 28),
                    datetime(2024, 1, 1, 0, 0, i % 60, chance.randint(0, 999999)),
                    chance.choice([None, "é", "x "]),
                )
                for i in range(900)
            ]
            cursor.executemany(f"INSERT INTO odd VALUES ({', '.join(['%s'] * 9)})", rows)
    with Project.open(world.folder, spark) as project:
        project.setup()
        with psycopg.connect(dsn) as connection:
            connection.execute("UPDATE odd SET a = a + 0.01, b = -b WHERE id % 3 = 0")
            connection.execute("DELETE FROM odd WHERE id % 7 = 0")
            # 1322.94 / 320 is 4.1341875; the doubles of Spark say 4.134187 of it.
            connection.execute(
                "INSERT INTO odd (id, k, a) SELECT 10000 + n, 999, CASE n WHEN 1 THEN 1322.94 ELSE 0 END"
                " FROM generate_series(1, 320) n"
            )
        project.run(once=True)
        for name in views:
            with psycopg.connect(dsn) as connection:
                kept = connection.execute(f'SELECT * FROM {_schema(dsn)}."{name}"').fetchall()
            lake = [tuple(row) for row in project.read(name).collect()]
            assert sorted(map(repr, kept)) == sorted(map(repr, lake)), name
        with psycopg.connect(dsn) as connection:
            # An average of decimals, whatever the reader's session has set.
            means = connection.execute(f"SELECT k, c FROM {_schema(dsn)}.extremes ORDER BY k").fetchall()
            connection.execute("SET extra_float_digits = -15")
            again = connection.execute(f"SELECT k, c FROM {_schema(dsn)}.extremes ORDER BY k").fetchall()
            assert again == means


def test_truncate_and_a_long_name(tmp_path: Path, spark: SparkSession, dsn: str) -> None:
    """A table that is truncated leaves the view empty, at the server as in the lake."""
    name = "a_view_with_a_name_that_is_about_as_long_as_the_server_allows"
    views = {name: KEPT["state_count"], "grand_total": KEPT["grand_total"]}
    world = OneServer(tmp_path / "p", dsn, with_policy("immediate", views))
    with psycopg.connect(dsn) as connection:
        connection.execute("INSERT INTO customer VALUES (1, 'WI')")
        connection.execute("INSERT INTO sales VALUES (1, 1, 1, 5)")
    with Project.open(world.folder, spark) as project:
        project.setup()
        assert project.setup().sources["db"] == []
        for emptied in ("customer", "sales, line"):
            with psycopg.connect(dsn) as connection:
                connection.execute(f"TRUNCATE {emptied}".encode())
                connection.execute("INSERT INTO customer VALUES (2, 'NV') ON CONFLICT DO NOTHING")
                connection.execute("INSERT INTO sales VALUES (2, 2, 1, 6) ON CONFLICT DO NOTHING")
            _check_kept(dsn, views)
        project.run(once=True)
        project.setup()
        project.run(once=True)
        assert shown(project, name) == {("NV", 1, 6): 1}


def test_policies_are_switched_without_a_reload(tmp_path: Path, spark: SparkSession, dsn: str) -> None:
    world = OneServer(tmp_path / "p", dsn, KEPT)
    world.fill(random.Random(3))
    world.begin()
    with Project.open(world.folder, spark) as project:
        project.setup()
        with writing(dsn, 2, partial(transact, unnoticed=0.0), 4, pause=0.05):
            for policy in ("immediate", "ipda", "immediate", "deferred"):
                world.write_views(with_policy(policy, KEPT))
                report = project.setup()
                assert not report.loaded and set(report.unchanged) == set(KEPT)
                if policy == "immediate":
                    _check_kept(dsn, KEPT)
                project.run(once=True)
        project.run(once=True)
        world.check_every_csn(project)
    with psycopg.connect(dsn) as connection:
        assert not connection.execute("SELECT FROM pg_namespace WHERE nspname LIKE 'rollview%'").fetchall()
        assert not connection.execute("SELECT FROM pg_trigger WHERE tgname LIKE 'rollview%'").fetchall()


def test_refusals(tmp_path: Path, spark: SparkSession, dsn: str) -> None:
    """A reason for each view that cannot be kept at the server."""
    world = OneServer(tmp_path / "p", dsn, {})
    wrong = {
        "patterned": ("SELECT state FROM db.customer WHERE state LIKE 'W%'", "LIKE in a condition"),
        "different": ("SELECT count(DISTINCT amount) AS n FROM db.sales", "left to Spark"),
        "nested": (
            "SELECT max(n) AS n FROM (SELECT count(*) AS n FROM db.sales GROUP BY cust_id)",
            "more than",
        ),
    }
    with Project.open(world.folder, spark) as project:
        for name, (sql, reason) in wrong.items():
            world.write_views(with_policy("immediate", {name: sql}))
            with pytest.raises(UnsupportedError, match=reason):
                project.setup()
    with psycopg.connect(dsn) as connection:
        assert not connection.execute("SELECT FROM pg_trigger WHERE tgname LIKE 'rollview%'").fetchall()

"""The policy immediate: a view is kept at the server itself, in the transactions that change it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest
from one_server import VIEWS, OneServer, transact, with_policy, writing
from pyspark.sql import SparkSession
from shop import shown

from rollview.errors import UnsupportedError
from rollview.service.project import Project
from servers.postgres import PostgresServer

pytestmark = pytest.mark.slow

KEPT = {
    "state_count": VIEWS["state_count"],
    "lines": VIEWS["lines"],
    "sold": """SELECT s.sale_id, c.state, p.kind, s.amount FROM db.sales s
        JOIN db.customer c ON s.cust_id = c.cust_id
        JOIN db.product p ON s.product_id = p.product_id WHERE s.amount > 2""",
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
            assert kept == Counter(connection.execute(sql.replace("db.", "")).fetchall()), name


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
        with writing(dsn, 4, partial(transact, unnoticed=0.0), seed):
            end = time.monotonic() + 3
            while time.monotonic() < end:
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


def test_a_writer_with_an_older_snapshot_is_refused(tmp_path: Path, spark: SparkSession, dsn: str) -> None:
    views = {name: KEPT[name] for name in ("state_count", "grand_total")}
    world = OneServer(tmp_path / "p", dsn, with_policy("immediate", views))
    with Project.open(world.folder, spark) as project:
        project.setup()
        with psycopg.connect(dsn) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            with pytest.raises(psycopg.errors.SerializationFailure, match="kept immediately"):
                connection.execute("INSERT INTO sales VALUES (1, 1, 1, 5)")
            connection.rollback()
            # Tables of views without joins are none of its business.
            connection.execute("INSERT INTO product VALUES (1, 'a', NULL)")
        _check_kept(dsn, views)


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
        with writing(dsn, 2, partial(transact, unnoticed=0.0), 4, pause=0.02):
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
    join = "FROM db.sales s JOIN db.customer c ON s.cust_id = c.cust_id"
    wrong = {
        "computed": (f"SELECT s.amount + 1 AS a {join}", "left to Spark"),
        "mean": ("SELECT cust_id, avg(amount) AS a FROM db.sales GROUP BY cust_id", "left to Spark"),
        "compared": (f"SELECT s.amount {join} WHERE s.amount > c.cust_id", "columns of several tables"),
        "patterned": ("SELECT state FROM db.customer WHERE state LIKE 'W%'", "comparison with constants"),
        "doubled": (
            "SELECT a.kind FROM db.product a JOIN db.product b ON a.parent_id = b.product_id",
            "itself",
        ),
        "highest": ("SELECT max(amount) AS most FROM db.sales", "more than a join"),
        "two": ("SELECT cust_id FROM db.sales UNION ALL SELECT cust_id FROM db.customer", "more than a join"),
    }
    with Project.open(world.folder, spark) as project:
        for name, (sql, reason) in wrong.items():
            world.write_views(with_policy("immediate", {name: sql}))
            with pytest.raises(UnsupportedError, match=reason):
                project.setup()
    with psycopg.connect(dsn) as connection:
        assert not connection.execute("SELECT FROM pg_trigger WHERE tgname LIKE 'rollview%'").fetchall()

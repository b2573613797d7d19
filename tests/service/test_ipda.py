"""The policy ipda: writers make the view delta in their own transactions, and wait for nobody."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from one_server import VIEWS, OneServer, transact, with_policy, writing
from pyspark.sql import SparkSession
from shop import shown

from rollview.algorithms.beyer2000 import source_propagation
from rollview.algorithms.effects import MadeDelta
from rollview.errors import NeedsAdministrator, UnsupportedError
from rollview.project.project import Project
from rollview.sources.postgres.log.collector import Transaction
from servers.postgres import PostgresServer, shared_server

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> PostgresServer:
    return shared_server()


@pytest.fixture
def dsn(server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"ipda_{abs(hash(request.node.name)) % 10**8}"
    yield server.create_database(name)
    server.drop_database(name)


@pytest.fixture
def doubts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """How many transactions were taken as they were made, and how many were computed."""
    counted, in_doubt = {"made": 0, "computed": 0}, source_propagation.in_doubt

    def counting(block: Any, made: MadeDelta[Any], interval: Any) -> Any:
        doubtful = yield from in_doubt(block, made, interval)
        changed = {csn for csns in made.changed.values() for csn in csns}
        within = {csn for csn in changed if interval.after < csn <= interval.upto}
        counted["computed"] += len(doubtful)
        counted["made"] += len(within - doubtful)
        return doubtful

    monkeypatch.setattr(source_propagation, "in_doubt", counting)
    yield counted


def _deltas(dsn: str) -> list[str]:
    """The delta tables of the database, and its triggers."""
    with psycopg.connect(dsn) as connection:
        tables = connection.execute(
            "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE nspname LIKE 'rollview%' AND relkind = 'r' UNION ALL"
            " SELECT tgname FROM pg_trigger WHERE tgname LIKE 'rollview%' ORDER BY 1"
        )
        return [name for (name,) in tables]


def _run(world: OneServer, *statements: str) -> None:
    with psycopg.connect(world.dsn) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_oracle_every_csn_with_concurrent_writers(
    tmp_path: Path, spark: SparkSession, dsn: str, doubts: dict[str, int], seed: int
) -> None:
    """At every level of isolation, with cascades, statements that change two tables, triggers left out."""
    world = OneServer(tmp_path / "p", dsn, with_policy("ipda"))
    world.fill(random.Random(seed))
    world.begin()
    with Project.open(world.folder, spark) as project:
        project.setup()
        for part in range(2):
            with writing(dsn, 4, transact, seed + part):
                time.sleep(1.5)
                project.capture()
            project.run(once=True)
        assert world.check_every_csn(project) > 30
    assert doubts["made"] > doubts["computed"] > 0


def test_rows_that_join_and_do_not_see_each_other(
    tmp_path: Path, spark: SparkSession, dsn: str, doubts: dict[str, int]
) -> None:
    """Two writers at READ COMMITTED insert a customer and a sale for it at the same moment."""
    world = OneServer(tmp_path / "p", dsn, with_policy("ipda", {"state_count": VIEWS["state_count"]}))
    world.begin()
    with Project.open(world.folder, spark) as project:
        project.setup()
        with psycopg.connect(dsn) as one, psycopg.connect(dsn) as other:
            one.execute("INSERT INTO customer VALUES (1, 'WI')")
            other.execute("INSERT INTO sales VALUES (1, 1, 1, 7)")
            other.execute("INSERT INTO sales VALUES (2, 2, 1, 8)")
            one.commit()
            other.commit()
        project.run(once=True)
        assert shown(project, "state_count") == {("WI", 1, 7): 1}
        assert doubts["computed"]
        # One that sees the other's rows is taken as it was made.
        doubts.update(made=0, computed=0)
        _run(world, "INSERT INTO customer VALUES (2, 'NV')", "INSERT INTO sales VALUES (3, 2, 1, 9)")
        project.run(once=True)
        assert shown(project, "state_count") == {("WI", 1, 7): 1, ("NV", 2, 17): 1}
        assert doubts["made"] and not doubts["computed"]
        world.check_every_csn(project)


def test_writers_of_one_group_do_not_wait(tmp_path: Path, spark: SparkSession, dsn: str) -> None:
    """beyer2000 §1.2: x1 adds a sale for Wisconsin and does not commit; x2 adds another one."""
    world = OneServer(tmp_path / "p", dsn, with_policy("ipda", {"state_count": VIEWS["state_count"]}))
    _run(world, "INSERT INTO customer VALUES (1, 'WI'), (2, 'WI')")
    world.begin()
    with Project.open(world.folder, spark) as project:
        project.setup()
        with psycopg.connect(dsn) as x1, psycopg.connect(dsn) as x2:
            x2.execute("SET lock_timeout = '1ms'")
            x1.execute("INSERT INTO sales VALUES (1, 1, 1, 5)")
            x2.execute("INSERT INTO sales VALUES (2, 2, 1, 6)")
            x2.commit()
            project.run(once=True)
            assert shown(project, "state_count") == {("WI", 1, 6): 1}
            x1.rollback()
        project.run(once=True)
        # A writer that aborts leaves nothing locked or visible.
        assert shown(project, "state_count") == {("WI", 1, 6): 1}
        world.check_every_csn(project)


def test_a_writer_never_fails_because_of_a_trigger(
    tmp_path: Path, spark: SparkSession, server: PostgresServer, dsn: str, doubts: dict[str, int]
) -> None:
    """What is taken away from under the triggers costs the writers nothing, and the view stays right."""
    world = OneServer(tmp_path / "p", dsn, with_policy("ipda", {"state_count": VIEWS["state_count"]}))
    world.begin()
    with Project.open(world.folder, spark) as project:
        project.setup()
        (delta,) = [name for name in _deltas(dsn) if not name.startswith("rollview_")]
        with psycopg.connect(dsn) as connection:
            (schema,) = connection.execute(
                "SELECT relnamespace::regnamespace::text FROM pg_class WHERE relname = %s", (delta,)
            ).fetchone() or ("",)
            connection.execute(f'ALTER TABLE {schema}."{delta}" RENAME TO elsewhere')
        _run(world, "INSERT INTO customer VALUES (1, 'WI')", "INSERT INTO sales VALUES (1, 1, 1, 5)")
        project.run(once=True)
        assert shown(project, "state_count") == {("WI", 1, 5): 1}
        assert not doubts["made"]
        world.check_every_csn(project)
        # `setup` puts it right.
        with psycopg.connect(dsn) as connection:
            connection.execute(f"DROP TABLE {schema}.elsewhere")
        project.setup()
        _run(world, "INSERT INTO sales VALUES (2, 1, 1, 6)")
        project.run(once=True)
        assert shown(project, "state_count") == {("WI", 2, 11): 1}
        assert doubts["made"]


def test_policies_are_switched_without_a_reload(tmp_path: Path, spark: SparkSession, dsn: str) -> None:
    """deferred to ipda and back while writers run; what was installed goes again."""
    world = OneServer(tmp_path / "p", dsn, VIEWS)
    world.fill(random.Random(5))
    world.begin()
    with Project.open(world.folder, spark) as project:
        project.setup()
        assert _deltas(dsn) == []
        with writing(dsn, 2, transact, 3, pause=0.02):
            for policy in ("ipda", "deferred"):
                world.write_views(with_policy(policy))
                report = project.setup()
                assert not report.loaded and set(report.unchanged) == set(VIEWS)
                assert bool(_deltas(dsn)) == (policy == "ipda")
                project.run(once=True)
        project.run(once=True)
        world.check_every_csn(project)


def test_remove_takes_all_of_it_away(tmp_path: Path, spark: SparkSession, dsn: str) -> None:
    world = OneServer(tmp_path / "p", dsn, with_policy("ipda"))
    with Project.open(world.folder, spark) as project:
        project.setup()
        # Five views, one of which has two blocks; each table of each delta has three triggers.
        assert len(_deltas(dsn)) == 6 + 3 * (2 + 3 + 1 + 2 + 2 + 1)
        project.remove()
    assert _deltas(dsn) == []
    with psycopg.connect(dsn) as connection:
        assert not connection.execute("SELECT FROM pg_namespace WHERE nspname LIKE 'rollview%'").fetchall()


def test_rights_that_are_needed(
    tmp_path: Path, spark: SparkSession, server: PostgresServer, dsn: str
) -> None:
    """For a role that may only read, setup lists what triggers need; with that, nothing more is needed."""
    with psycopg.connect(dsn) as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN REPLICATION")
    as_reader = dsn.replace("postgres@", "reader@")
    world = OneServer(tmp_path / "p", dsn, with_policy("ipda", {"state_count": VIEWS["state_count"]}))
    file = world.folder / "rollview.yml"
    file.write_text(file.read_text().replace(dsn, as_reader))
    with Project.open(world.folder, spark) as project:
        with pytest.raises(NeedsAdministrator) as needs:
            project.setup()
        statements = needs.value.statements
        assert any("GRANT TRIGGER ON" in each for each in statements)
        assert any("CREATE SCHEMA" in each and "AUTHORIZATION" in each for each in statements)
        with psycopg.connect(dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())
        project.setup()
        _run(world, "INSERT INTO customer VALUES (1, 'WI')", "INSERT INTO sales VALUES (1, 1, 1, 5)")
        project.run(once=True)
        assert shown(project, "state_count") == {("WI", 1, 5): 1}
        project.remove()
    assert _deltas(dsn) == []
    with psycopg.connect(dsn) as connection:
        connection.execute("DROP OWNED BY reader")


def test_what_writers_append_is_deleted_again(
    tmp_path: Path, spark: SparkSession, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollview.sources.postgres.deltas.install._PURGE_SECONDS", 0.0)
    world = OneServer(tmp_path / "p", dsn, with_policy("ipda", {"state_count": VIEWS["state_count"]}))
    world.begin()
    with Project.open(world.folder, spark) as project:
        project.setup()
        (delta,) = [name for name in _deltas(dsn) if not name.startswith("rollview_")]
        _run(world, "INSERT INTO customer VALUES (1, 'WI')", "INSERT INTO sales VALUES (1, 1, 1, 5)")
        project.run(once=True)
        with psycopg.connect(dsn) as connection:
            (schema,) = connection.execute(
                "SELECT relnamespace::regnamespace::text FROM pg_class WHERE relname = %s", (delta,)
            ).fetchone() or ("",)
            assert connection.execute(f'SELECT * FROM {schema}."{delta}"').fetchall() == []
        _run(world, "INSERT INTO sales VALUES (2, 1, 1, 6)")
        project.run(once=True)
        assert shown(project, "state_count") == {("WI", 2, 11): 1}
        world.check_every_csn(project)


def test_deltas_that_are_not_whole_are_left_alone(
    tmp_path: Path, spark: SparkSession, dsn: str, monkeypatch: pytest.MonkeyPatch, doubts: dict[str, int]
) -> None:
    """Triggers are switched off in the middle of a transaction; without the count of rows it would show."""
    world = OneServer(tmp_path / "p", dsn, with_policy("ipda", {"state_count": VIEWS["state_count"]}))
    _run(world, "INSERT INTO customer VALUES (1, 'WI')")
    world.begin()
    half = (
        "INSERT INTO sales VALUES (1, 1, 1, 5)",
        "SET LOCAL session_replication_role = replica",
        "INSERT INTO sales VALUES (2, 1, 1, 6)",
    )
    with Project.open(world.folder, spark) as project:
        project.setup()
        _run(world, *half)
        project.run(once=True)
        assert shown(project, "state_count") == {("WI", 2, 11): 1}
        assert doubts["computed"] and not doubts["made"]
        monkeypatch.setattr(Transaction, "is_whole", lambda self, table: True)
        _run(world, "DELETE FROM sales", *half)
        project.run(once=True)
        assert shown(project, "state_count") == {("WI", 1, 5): 1}, "the test would not notice"


def test_partitions(tmp_path: Path, spark: SparkSession, dsn: str, doubts: dict[str, int]) -> None:
    """Whatever a statement names, the whole or a part; one that came later has no triggers."""
    sold = "SELECT s.amount, p.item FROM db.sales s JOIN db.parted p ON s.sale_id = p.sale_id"
    world = OneServer(tmp_path / "p", dsn, with_policy("ipda", {"sold": sold}))
    _run(
        world,
        "CREATE TABLE parted (sale_id INT, item INT) PARTITION BY LIST (item)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1)",
        "CREATE TABLE parted_2 PARTITION OF parted FOR VALUES IN (2)",
        "INSERT INTO sales VALUES (1, 1, 1, 5), (2, 1, 1, 6)",
    )
    with Project.open(world.folder, spark) as project:
        project.setup()
        _run(world, "INSERT INTO parted VALUES (1, 1), (2, 2)", "INSERT INTO parted_1 VALUES (2, 1)")
        _run(world, "UPDATE parted SET item = 2 WHERE sale_id = 1", "DELETE FROM parted_2 WHERE sale_id = 2")
        project.run(once=True)
        assert shown(project, "sold") == {(5, 2): 1, (6, 1): 1}
        assert doubts["made"] and not doubts["computed"]
        _run(world, "CREATE TABLE parted_3 PARTITION OF parted FOR VALUES IN (3)")
        _run(world, "ALTER TABLE parted_3 REPLICA IDENTITY FULL", "INSERT INTO parted_3 VALUES (1, 3)")
        _run(world, "INSERT INTO parted VALUES (2, 3)")
        project.run(once=True)
        assert shown(project, "sold") == {(5, 2): 1, (6, 1): 1, (5, 3): 1, (6, 3): 1}
        assert doubts["computed"]


def test_refusals(tmp_path: Path, spark: SparkSession, dsn: str) -> None:
    """A reason for each view that cannot have it."""
    world = OneServer(tmp_path / "p", dsn, {})
    _run(
        world,
        "CREATE TABLE words (sale_id TEXT)",
    )
    wrong = {
        "words": (
            "SELECT s.amount FROM db.sales s JOIN db.words p ON s.sale_id = p.sale_id",
            "compare alike",
        ),
        "product": ("SELECT s.amount FROM db.sales s CROSS JOIN db.customer c", "not all others are reached"),
    }
    with Project.open(world.folder, spark) as project:
        for name, (sql, reason) in wrong.items():
            world.write_views(with_policy("ipda", {name: sql}))
            with pytest.raises(UnsupportedError, match=reason):
                project.setup()
    assert _deltas(dsn) == []


def test_many_rows_in_one_statement_and_in_one_transaction(
    tmp_path: Path, spark: SparkSession, dsn: str, doubts: dict[str, int]
) -> None:
    """More than a plan is kept for, and more than is held in memory."""
    world = OneServer(tmp_path / "p", dsn, with_policy("ipda", {"state_count": VIEWS["state_count"]}))
    _run(world, "INSERT INTO customer SELECT n, 'WI' FROM generate_series(1, 100) n")
    with Project.open(world.folder, spark) as project:
        project.setup()
        _run(world, "INSERT INTO sales SELECT n, n % 200, 1, 1 FROM generate_series(1, 5000) n")
        _run(
            world,
            "UPDATE sales SET amount = 2 WHERE sale_id <= 10",
            *(f"UPDATE sales SET amount = amount + {number}" for number in range(20)),
            "INSERT INTO customer SELECT n, 'NV' FROM generate_series(101, 150) n",
        )
        project.run(once=True)
        with psycopg.connect(dsn) as connection:
            computed = connection.execute(VIEWS["state_count"].replace("db.", "")).fetchall()
        assert shown(project, "state_count") == dict.fromkeys(computed, 1)
        assert doubts["made"] and not doubts["computed"]


def test_odd_names_in_a_schema_that_is_named(tmp_path: Path, spark: SparkSession, dsn: str) -> None:
    """Quotes, capitals, words of SQL and of ours; a schema that is not the first one."""
    world = OneServer(tmp_path / "p", dsn, {}, ", schemas: 'the shop, public'")
    _run(
        world,
        'CREATE SCHEMA "the shop"',
        'CREATE TABLE "the shop"."Sale" (id INT PRIMARY KEY, "select" INT, sign NUMERIC(10,2), "it\'s" TEXT)',
        'INSERT INTO "the shop"."Sale" VALUES (1, 1, 0.5, \'old\')',
    )
    sql = """SELECT s.`it's` AS what, c.state, sum(s.sign) AS total FROM db.Sale s
        JOIN db.public.customer c ON s.`select` = c.cust_id GROUP BY s.`it's`, c.state"""
    for policy in ("ipda", "immediate", "deferred"):
        world.write_views(with_policy(policy, {"sold": sql}))
        with Project.open(world.folder, spark) as project:
            project.setup()
            _run(
                world,
                "INSERT INTO customer VALUES (1, 'WI') ON CONFLICT DO NOTHING",
                """UPDATE "the shop"."Sale" SET "it's" = 'it''s ' || sign""",
                'UPDATE "the shop"."Sale" SET sign = sign + 1',
            )
            project.run(once=True)
            rows = {(row["what"], row["state"], str(row["total"])) for row in project.read("sold").collect()}
            with psycopg.connect(dsn) as connection:
                (row,) = connection.execute(
                    'SELECT "it\'s", \'WI\', sign::text FROM "the shop"."Sale"'
                ).fetchall()
            assert rows == {tuple(row)}, policy

"""Views that are kept at the server (policy immediate): at any moment they are what the server computes.

No project runs and no Spark: the objects of each view are installed as `setup` does it, writers run at every
level of isolation, and what the triggers keep is compared with the query, in one snapshot.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from one_server import TABLES, transact, writing

from rollview.algebra.view import View
from rollview.maintain.kept_at_source import applied_obstacle
from rollview.maintain.source_deltas import definition_of
from rollview.planning import parse_view
from rollview.sources.postgres.source import PostgresSource
from servers.postgres import PostgresServer

pytestmark = pytest.mark.slow

VIEWS = {
    "families": """SELECT a.kind AS kind, b.kind AS parent FROM db.product a
        JOIN db.product b ON a.parent_id = b.product_id""",
    "grandparents": """SELECT a.kind AS kind, max(c.product_id) AS oldest, count(*) AS n FROM db.product a
        JOIN db.product b ON a.parent_id = b.product_id
        JOIN db.product c ON b.parent_id = c.product_id GROUP BY a.kind""",
    "mixed": """SELECT s.sale_id AS id, c.state AS label FROM db.sales s
        JOIN db.customer c ON s.cust_id = c.cust_id
        UNION ALL SELECT product_id, kind FROM db.product""",
    "both": """SELECT id, sum(amount) AS total, max(amount) AS most, count(*) AS n FROM (
        SELECT cust_id AS id, amount FROM db.sales UNION ALL
        SELECT s.product_id, l.quantity FROM db.sales s JOIN db.line l ON s.sale_id = l.sale_id) u
        GROUP BY id""",
    "spread": """SELECT c.state, min(s.amount) AS least, max(s.amount) AS most, count(*) AS n,
        avg(s.amount) AS mean FROM db.sales s JOIN db.customer c ON s.cust_id = c.cust_id GROUP BY c.state""",
    "extremes": "SELECT min(amount) AS least, max(amount) AS most, count(*) AS n FROM db.sales",
    "computed": """SELECT s.sale_id + 1 AS next, s.amount * 2 - p.product_id AS a,
        coalesce(c.state, '?') || '!' AS w, CASE WHEN p.kind = 'WI' THEN s.amount ELSE -1 END AS b
        FROM db.sales s JOIN db.customer c ON s.cust_id = c.cust_id
        JOIN db.product p ON s.product_id = p.product_id WHERE s.amount > p.product_id OR p.kind IS NULL""",
    "means": """SELECT cust_id % 2 = 0 AS even, avg(amount) AS mean, sum(amount * amount) + 1 AS squares
        FROM db.sales GROUP BY cust_id % 2 = 0""".replace("cust_id % 2 = 0", "(cust_id = 2 OR cust_id = 4)"),
    "kinds": "SELECT DISTINCT kind FROM db.product",
    "lines": """SELECT s.cust_id, sum(l.quantity * s.amount) AS worth, min(l.quantity) AS least
        FROM db.sales s JOIN db.line l ON s.sale_id = l.sale_id GROUP BY s.cust_id""",
}
THEIRS = {
    "spread": VIEWS["spread"].replace("avg(s.amount)", "sum(s.amount) / nullif(count(s.amount), 0)::float8"),
    "means": VIEWS["means"].replace("avg(amount)", "sum(amount) / nullif(count(amount), 0)::float8"),
}
"""What the server is asked where it has another type for an average."""


class Kept:
    """A database with the shop's tables, some of them partitioned, and views that are kept there."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.source = PostgresSource("db", dsn)
        self.schema = self.source._address.delta_schema
        with psycopg.connect(dsn) as connection:
            for table, columns in TABLES.items():
                connection.execute(f"CREATE TABLE {table} ({columns})".encode())
            connection.execute("CREATE INDEX ON line (sale_id)")

    def view(self, name: str, sql: str) -> View:
        parsed = parse_view(sql, self.source.tables(), name)
        return replace(parsed, properties={"rollview.policy": "immediate"})

    def obstacle(self, name: str, sql: str) -> str:
        view = self.view(name, sql)
        if reason := applied_obstacle(view):
            return reason
        found = (
            self.source.delta_obstacle(definition_of(view, n, self.source)) for n in range(len(view.blocks))
        )
        return next((each for each in found if each), "")

    def keep(self, views: Mapping[str, str]) -> None:
        definitions = []
        for name, sql in views.items():
            assert self.obstacle(name, sql) == "", name
            view = self.view(name, sql)
            definitions += [definition_of(view, number, self.source) for number in range(len(view.blocks))]
        with self.source._connections.connection() as connection:
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{self.schema}"'.encode())
        assert self.source.add_deltas(definitions).needed == ()
        assert self.source.check_deltas(definitions).done == ()

    def check(self, views: Mapping[str, str]) -> None:
        """What is shown of each is what the server computes, in one snapshot."""
        with psycopg.connect(self.dsn) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            for name, sql in views.items():
                kept = connection.execute(f'SELECT * FROM "{self.schema}"."{name}"'.encode()).fetchall()
                theirs = connection.execute(THEIRS.get(name, sql).replace("db.", "").encode()).fetchall()
                assert Counter(kept) == Counter(theirs), name

    def traces(self) -> int:
        with psycopg.connect(self.dsn) as connection:
            (name,) = connection.execute(
                "SELECT relname FROM pg_class WHERE relname LIKE '%trace'"
            ).fetchone() or ("",)
            query = f'SELECT count(*) FROM "{self.schema}"."{name}" WHERE side >= 0'
            return int((connection.execute(query.encode()).fetchone() or (0,))[0])

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.dsn) as connection:
            for statement in statements:
                connection.execute(statement.encode())


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Writers that block each other both ways find out at once."""
    made = PostgresServer({"deadlock_timeout": "20ms"})
    made.start()
    yield made
    made.remove()


@pytest.fixture
def kept(server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[Kept]:
    name = request.node.name.partition("[")[0][:60]
    made = Kept(server.create_database(name))
    yield made
    made.source.close()
    server.drop_database(name)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_oracle_at_any_moment_at_every_level_of_isolation(kept: Kept, seed: int) -> None:
    chance = random.Random(seed)
    with psycopg.connect(kept.dsn) as connection:
        for _ in range(30):
            transact(connection, chance, unnoticed=0.0)
    kept.keep(VIEWS)
    kept.check(VIEWS)
    written: Counter[str] = Counter()

    def write(connection: psycopg.Connection[Any], chance: random.Random) -> None:
        transact(connection, chance, unnoticed=0.0)
        written["tried"] += 1

    with writing(kept.dsn, 4, write, seed):
        enough, latest = time.monotonic() + 4, time.monotonic() + 60
        while time.monotonic() < enough or (written["tried"] < 200 and time.monotonic() < latest):
            kept.check(VIEWS)
    kept.check(VIEWS)


def test_a_writer_with_an_older_snapshot_tries_again(kept: Kept) -> None:
    """At REPEATABLE READ and above: where somebody has changed what its own rows are joined with."""
    views = {
        "state_count": """SELECT c.state, count(*) AS n FROM db.sales s
            JOIN db.customer c ON s.cust_id = c.cust_id GROUP BY c.state""",
        "extremes": VIEWS["extremes"],
    }
    kept.run("INSERT INTO customer VALUES (1, 'WI'), (2, 'NV')")
    kept.keep(views)
    for level in (psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE):
        kept.run("DELETE FROM sales", "DELETE FROM customer WHERE cust_id > 2")
        with psycopg.connect(kept.dsn) as older:
            older.isolation_level = level
            # Nobody else writes.
            older.execute("INSERT INTO customer VALUES (3, 'CA')")
            older.execute("INSERT INTO sales VALUES (1, 3, 1, 5), (2, 1, 1, 3)")
            older.commit()
            kept.check(views)
            # A customer for its own sale, by somebody whom it does not see.
            older.execute("SELECT count(*) FROM customer")
            kept.run("INSERT INTO customer VALUES (4, 'OR')")
            with pytest.raises(psycopg.errors.SerializationFailure):
                older.execute("INSERT INTO sales VALUES (3, 4, 1, 9)")
            older.rollback()
            older.execute("INSERT INTO sales VALUES (3, 4, 1, 9)")
            older.commit()
            kept.check(views)
            # A sale for its own customer.
            older.execute("SELECT count(*) FROM customer")
            kept.run("INSERT INTO sales VALUES (4, 5, 1, NULL)")
            with pytest.raises(psycopg.errors.SerializationFailure):
                older.execute("INSERT INTO customer VALUES (5, 'ID')")
            older.rollback()
            # What is joined with other rows is none of its business.
            older.execute("SELECT count(*) FROM customer")
            kept.run("INSERT INTO customer VALUES (6, 'MT')")
            older.execute("UPDATE customer SET state = 'UT' WHERE cust_id = 2")
            older.commit()
            kept.check(views)


def test_an_extreme_goes_while_an_equal_one_came_unseen(kept: Kept) -> None:
    """No sum changes where one value replaces another one; an older snapshot must not overlook it."""
    views = {"least": "SELECT cust_id, min(product_id) AS least FROM db.sales GROUP BY cust_id"}
    kept.run("INSERT INTO sales VALUES (1, 1, 5, 0), (2, 1, 7, 0)")
    kept.keep(views)
    with psycopg.connect(kept.dsn) as older:
        older.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        older.execute("SELECT count(*) FROM sales")
        kept.run("UPDATE sales SET product_id = 6 WHERE sale_id = 2")
        with pytest.raises(psycopg.errors.SerializationFailure):
            older.execute("DELETE FROM sales WHERE sale_id = 1")
        older.rollback()
        older.execute("DELETE FROM sales WHERE sale_id = 1")
        older.commit()
    kept.check(views)


def test_traces_are_deleted_and_nobody_overlooks_it(kept: Kept) -> None:
    views = {
        "state_count": "SELECT s.sale_id, c.state FROM db.sales s JOIN db.customer c ON s.cust_id = c.cust_id"
    }
    kept.keep(views)
    with psycopg.connect(kept.dsn) as older:
        older.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        older.execute("SELECT count(*) FROM sales")
        kept.run("INSERT INTO customer VALUES (1, 'WI')")
        assert kept.traces() == 1
        kept.source._deltas.purge()
        assert kept.traces() == 0
        with pytest.raises(psycopg.errors.SerializationFailure):
            older.execute("INSERT INTO sales VALUES (1, 1, 1, 5)")
        older.rollback()
        older.execute("INSERT INTO sales VALUES (1, 1, 1, 5)")
        # While somebody relies on them, they stay.
        kept.source._deltas._purged_at = 0.0
        kept.source._deltas.purge()
        older.commit()
        assert kept.traces() == 1
    kept.check(views)


def test_rows_of_one_statement_join_each_other(kept: Kept) -> None:
    """One that inserts and updates, two in one, and an action of a foreign key of the table itself."""
    views = {name: VIEWS[name] for name in ("families", "grandparents", "mixed")}
    views["tree"] = "SELECT a.id, b.label, c.label AS top FROM db.tree a JOIN db.tree b ON a.up = b.id"
    views["tree"] += " JOIN db.tree c ON b.label = c.label"
    kept.run(
        "CREATE TABLE tree (id INT PRIMARY KEY, up INT REFERENCES tree ON DELETE CASCADE, label TEXT)",
        "INSERT INTO tree VALUES (1, NULL, 'a'), (2, 1, 'a'), (3, 2, 'b'), (4, 2, 'a'), (5, 4, 'b')",
        "INSERT INTO product VALUES (1, 'x', 2), (2, 'y', 1)",
    )
    kept.keep(views)
    for statement in (
        "INSERT INTO product VALUES (3, 'z', 1), (1, 'w', 3), (4, 'v', 3) ON CONFLICT (product_id)"
        " DO UPDATE SET kind = excluded.kind, parent_id = excluded.parent_id",
        "WITH gone AS (DELETE FROM product WHERE product_id = 2 RETURNING kind)"
        " INSERT INTO product SELECT 5, kind, 3 FROM gone",
        "WITH moved AS (UPDATE product SET parent_id = 5 WHERE product_id = 3 RETURNING 6)"
        " INSERT INTO product SELECT 6, 'u', 3 FROM moved",
        "INSERT INTO tree VALUES (6, 4, 'a'), (2, 1, 'b') ON CONFLICT (id)"
        " DO UPDATE SET label = excluded.label",
        "DELETE FROM tree WHERE id = 4",
        "DELETE FROM tree WHERE id = 1",
    ):
        kept.run(statement)
        kept.check(views)


def test_partitions(kept: Kept) -> None:
    """Whatever a statement names, the whole or a part; what comes and goes without a trigger is noticed."""
    kept.run(
        "CREATE TABLE parted (id INT, cust_id INT, amount INT) PARTITION BY RANGE (id)",
        "CREATE TABLE part_1 PARTITION OF parted FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE part_2 (amount INT, gone TEXT, cust_id INT, id INT)",
        "ALTER TABLE part_2 DROP COLUMN gone",
        "ALTER TABLE parted ATTACH PARTITION part_2 FOR VALUES FROM (10) TO (20)",
        "CREATE TABLE parts PARTITION OF parted FOR VALUES FROM (20) TO (40) PARTITION BY RANGE (id)",
        "CREATE TABLE part_3 PARTITION OF parts FOR VALUES FROM (20) TO (40)",
        "INSERT INTO parted SELECT n, n % 5, n FROM generate_series(1, 39, 2) n",
        "INSERT INTO customer VALUES (1, 'WI'), (2, 'NV'), (3, 'NV')",
    )
    views = {
        "joined": """SELECT c.state, count(*) AS n, sum(p.amount) AS total, max(p.amount) AS most
            FROM db.parted p JOIN db.customer c ON p.cust_id = c.cust_id GROUP BY c.state""",
        "single": "SELECT id, amount FROM db.parted WHERE amount > 3",
        "pairs": "SELECT a.id, b.amount FROM db.parted a JOIN db.parted b ON a.id = b.cust_id",
    }
    kept.keep(views)
    kept.check(views)
    for statement in (
        "INSERT INTO parted VALUES (2, 1, 100), (12, 2, 200), (22, 3, 300)",
        "INSERT INTO part_2 (id, cust_id, amount) VALUES (14, 3, 7)",
        "INSERT INTO parts VALUES (24, 1, 8), (26, 2, 9)",
        "UPDATE parted SET id = id + 10 WHERE id IN (2, 12)",
        "UPDATE part_3 SET amount = amount + 1, cust_id = 2",
        "UPDATE customer SET state = 'CA' WHERE cust_id = 2",
        "DELETE FROM part_1 WHERE id > 3",
        "DELETE FROM parted WHERE id % 3 = 0",
        "TRUNCATE part_2",
        "TRUNCATE parts, customer",
        "INSERT INTO customer VALUES (1, 'WI'), (2, 'NV')",
        "INSERT INTO parted VALUES (15, 1, 3), (25, 2, 300)",
    ):
        kept.run(statement)
        kept.check(views)
    kept.run("ALTER TABLE parted DETACH PARTITION part_2")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="partitions of parted"):
        kept.check(views)
    # It has its triggers still, and comes back with rows that it got meanwhile.
    kept.run("ALTER TABLE part_2 RENAME amount TO other", "INSERT INTO part_2 (id, cust_id) VALUES (16, 1)")
    kept.run("ALTER TABLE part_2 RENAME other TO amount")
    kept.run("ALTER TABLE parted ATTACH PARTITION part_2 FOR VALUES FROM (10) TO (20)")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="partitions of parted"):
        kept.check(views)
    kept.run("CREATE TABLE part_4 PARTITION OF parted FOR VALUES FROM (40) TO (50)")
    kept.keep(views)
    kept.run("INSERT INTO part_2 (id, cust_id, amount) VALUES (17, 1, 7)")
    kept.run("INSERT INTO part_4 VALUES (44, 1, 1)")
    kept.check(views)
    kept.run("CREATE TABLE above (LIKE parted) PARTITION BY RANGE (id)")
    kept.run("ALTER TABLE above ATTACH PARTITION parted FOR VALUES FROM (0) TO (60)")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="partitions of parted"):
        kept.check(views)


@pytest.mark.parametrize(
    "act",
    [
        """CREATE TABLE above (LIKE customer) PARTITION BY RANGE (cust_id);
        ALTER TABLE above ATTACH PARTITION customer FOR VALUES FROM (0) TO (1000)""",
        "CREATE TABLE above (LIKE customer); ALTER TABLE customer INHERIT above",
    ],
)
def test_a_table_that_becomes_a_part_of_another_one(kept: Kept, act: str) -> None:
    """What is written by the name of the other one fires no trigger of the table."""
    views = {"states": "SELECT state, count(*) AS n FROM db.customer GROUP BY state"}
    kept.keep(views)
    kept.run("INSERT INTO customer VALUES (1, 'WI'), (2, 'NV')")
    kept.check(views)
    kept.run(act, "UPDATE above SET state = 'CA'")
    with pytest.raises(
        psycopg.errors.ObjectNotInPrerequisiteState, match="customer is a part of another table"
    ):
        kept.check(views)


def test_values_that_spark_does_not_have_leave_no_trace(kept: Kept) -> None:
    """They stop the view in the lake; when they have gone, the view at the server is right again."""
    kept.run(
        "CREATE TABLE odd (id INT PRIMARY KEY, price NUMERIC, on_day DATE)", "INSERT INTO odd VALUES (1, 2)"
    )
    sql = "SELECT sum(price) AS total, max(price) AS most, min(on_day) AS first, count(*) AS n FROM db.odd"
    views = {"total": sql}
    kept.keep(views)
    kept.run("INSERT INTO odd VALUES (2, 'NaN', '-infinity'), (3, 1e50, 'infinity')")
    kept.run("DELETE FROM odd WHERE id > 1", "INSERT INTO odd VALUES (4, 3.5, '2024-01-01')")
    kept.check(views)


def test_refusals(kept: Kept) -> None:
    """A reason for each view that cannot be kept at the server."""
    kept.run(
        "CREATE TABLE odd (id INT PRIMARY KEY, price NUMERIC, code CHAR(3), fast FLOAT8, at TIMESTAMPTZ)",
    )
    wrong = {
        "SELECT id, fast FROM db.odd": "column fast of its column fast is left to Spark",
        "SELECT code, count(*) AS n FROM db.odd GROUP BY code": "column code",
        "SELECT price + 1 AS p FROM db.odd": "a decimal of 39 digits",
        "SELECT upper(kind) AS k FROM db.product": "UPPER",
        "SELECT kind FROM db.product WHERE kind LIKE 'W%'": "LIKE in a condition",
        "SELECT kind FROM db.product WHERE kind > 'W'": "order of values that are a string",
        "SELECT max(kind) AS k FROM db.product": "ordered otherwise",
        "SELECT count(DISTINCT kind) AS k FROM db.product": "left to Spark",
        "SELECT kind FROM db.product EXCEPT SELECT state FROM db.customer": "more than joins",
        "SELECT product_id / 2 AS h FROM db.product": "which are double",
        "SELECT product_id AS k FROM db.product UNION ALL SELECT id / 2 FROM db.odd": "double",
        "SELECT s.amount FROM db.sales s CROSS JOIN db.customer c": "not all others are reached",
    }
    for number, (sql, reason) in enumerate(wrong.items()):
        assert reason in kept.obstacle(f"v{number}", sql), sql

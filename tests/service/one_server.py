"""A shop in one PostgreSQL database, writers that run at the same time, and an oracle for every csn.

What a view must show at a csn is DuckDB's answer over the tables as they were when the project was set up,
with all changes up to there as the log had them.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
from oracle import Oracle
from shop import states_of
from threads import at_work

from rollview.project.project import Project

TABLES = {
    "customer": "cust_id INT PRIMARY KEY, state TEXT",
    "product": "product_id INT PRIMARY KEY, kind TEXT, parent_id INT",
    "sales": "sale_id INT PRIMARY KEY, cust_id INT, product_id INT, amount INT",
    "line": "sale_id INT REFERENCES sales ON DELETE CASCADE, item INT, quantity INT",
}
VIEWS = {
    "state_count": """SELECT c.state, count(*) AS n, sum(s.amount) AS total
        FROM db.sales s JOIN db.customer c ON s.cust_id = c.cust_id GROUP BY c.state""",
    "sold": """SELECT s.sale_id, c.state, p.kind, s.amount FROM db.sales s
        JOIN db.customer c ON s.cust_id = c.cust_id
        JOIN db.product p ON s.product_id = p.product_id WHERE s.amount > 2 AND c.state <> 'NV'""",
    "families": """SELECT a.kind AS kind, b.kind AS parent FROM db.product a
        JOIN db.product b ON a.parent_id = b.product_id""",
    "lines": """SELECT s.cust_id, l.item, l.quantity
        FROM db.sales s JOIN db.line l ON s.sale_id = l.sale_id""",
    "mixed": """SELECT s.sale_id AS id, c.state AS label FROM db.sales s
        JOIN db.customer c ON s.cust_id = c.cust_id
        UNION ALL SELECT product_id, kind FROM db.product""",
}


def with_policy(policy: str, views: Mapping[str, str] = VIEWS) -> dict[str, str]:
    """The same views with a policy."""
    said = f"TBLPROPERTIES ('rollview.policy' = '{policy}')"
    return {name: f"CREATE MATERIALIZED VIEW {name} {said} AS {sql}" for name, sql in views.items()}


class OneServer:
    """The database and the project over it."""

    def __init__(self, folder: Path, dsn: str, views: Mapping[str, str], options: str = "") -> None:
        self.folder, self.dsn, self.views = folder, dsn, dict(views)
        with psycopg.connect(dsn) as connection:
            for table, columns in TABLES.items():
                connection.execute(f"CREATE TABLE {table} ({columns})")
            connection.execute("CREATE INDEX ON line (sale_id)")
        folder.mkdir(parents=True)
        (folder / "views").mkdir()
        source = f'  db: {{type: postgres, dsn: "{dsn}"{options}}}'
        (folder / "rollview.yml").write_text(
            f"name: shop\nspark: {{master: 'local[2]'}}\nsources:\n{source}\n"
        )
        self.write_views(views)
        self._oracle: Oracle | None = None
        self.first: dict[str, Counter[tuple[Any, ...]]] = {}

    def write_views(self, views: Mapping[str, str]) -> None:
        """Rewrites the view files."""
        for file in (self.folder / "views").iterdir():
            file.unlink()
        self.views = dict(views)
        for name, sql in views.items():
            text = sql if sql.startswith("CREATE") else f"CREATE MATERIALIZED VIEW {name} AS {sql}"
            (self.folder / "views" / f"{name}.sql").write_text(text)

    def fill(self, chance: random.Random, number: int = 20) -> None:
        """Some rows to begin with."""
        with psycopg.connect(self.dsn) as connection:
            for _ in range(number):
                change(connection, chance)

    def copy(self) -> dict[str, Counter[tuple[Any, ...]]]:
        """The tables as they are now."""
        with psycopg.connect(self.dsn) as connection:
            found = {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}
        return {table: Counter(rows) for table, rows in found.items()}

    def begin(self) -> None:
        """The tables as they are now are those of the first csn; nobody writes."""
        self.first = self.copy()

    def check_every_csn(self, project: Project, most: int = 400) -> int:
        """Every view is right at every csn, and the tables come out as they are; how many csn those are.

        If they are more than `most`, it is checked at so many of them.
        """
        status = project.status()
        states = {each.name: states_of(project, each) for each in status.views}
        least = min(each.oldest for each in status.views)
        changes, step = self._changes(project), -(-(status.last_csn - least + 1) // most)
        tables = {name: self._captured(project, name, rows) for name, rows in self.first.items()}
        for csn in range(least, status.last_csn + 1):
            for table, row, count in changes.get(csn, ()):
                tables[table][row] += count
            if (csn - least) % step and csn < status.last_csn:
                continue
            expected = self._answers(tables)
            for view, found in states.items():
                if csn in found:
                    assert found[csn] == expected[view], (view, csn)
        now = {name: self._captured(project, name, rows) for name, rows in self.copy().items()}
        for name in TABLES:
            if f"db.{name}" in project._warehouse.catalog.captured.tables():
                assert +tables[name] == now[name], name
        return status.last_csn - least

    def _captured(
        self, project: Project, name: str, rows: Counter[tuple[Any, ...]]
    ) -> Counter[tuple[Any, ...]]:
        """Rows of a table without what is not captured of it."""
        table = project._warehouse.catalog.captured.tables().get(f"db.{name}")
        columns = [column.split()[0] for column in TABLES[name].split(", ")]
        known = [table is not None and column in table.columns for column in columns]
        found: Counter[tuple[Any, ...]] = Counter()
        for row, count in rows.items():
            found[tuple(v if is_known else None for v, is_known in zip(row, known, strict=True))] += count
        return found

    def _changes(self, project: Project) -> dict[int, list[tuple[str, tuple[Any, ...], int]]]:
        """What the log had, by csn."""
        found: dict[int, list[tuple[str, tuple[Any, ...], int]]] = {}
        captured = project._warehouse.catalog.captured.tables()
        for table, columns in TABLES.items():
            if f"db.{table}" not in captured:
                continue
            log = project._warehouse.tables.change_log(captured[f"db.{table}"])
            names = [column.split()[0] for column in columns.split(", ")]
            for row in log.load(log.files()).to_pylist():
                values = tuple(row.get(name) for name in names)
                found.setdefault(row["_csn"], []).append((table, values, row["_count"]))
        return found

    def _answers(self, tables: Mapping[str, Counter[tuple[Any, ...]]]) -> dict[str, Counter[tuple[Any, ...]]]:
        if self._oracle is None or self._oracle.views != self.views:
            self._oracle = Oracle(
                {f"db.{name}": _plain(columns) for name, columns in TABLES.items()}, self.views
            )
        return self._oracle.answers(
            self.views, {f"db.{name}": list(rows.elements()) for name, rows in tables.items()}
        )


def _plain(columns: str) -> str:
    """Without keys."""
    return re.sub(r" PRIMARY KEY| REFERENCES \w+ ON DELETE CASCADE", "", columns)


def change(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    """One random statement; some change two tables at once, or call each other."""
    pick = chance.randint
    kind, sale, customer, product = pick(1, 14), pick(1, 12), pick(1, 5), pick(1, 4)
    word = chance.choice(["CA", "NV", "WI", None])
    amount = chance.choice([None, pick(0, 9)])
    new_sale = "INSERT INTO sales VALUES (%s, %s, %s, %s) ON CONFLICT (sale_id) DO UPDATE SET"
    match kind:
        case 1 | 2 | 3:
            connection.execute(
                f"{new_sale} cust_id = excluded.cust_id, amount = excluded.amount",
                (sale, customer, product, amount),
            )
        case 4 | 5:
            connection.execute(
                "INSERT INTO customer VALUES (%s, %s)"
                " ON CONFLICT (cust_id) DO UPDATE SET state = excluded.state",
                (customer, word),
            )
        case 6:
            connection.execute("DELETE FROM customer WHERE cust_id = %s", (customer,))
        case 7:
            connection.execute("DELETE FROM sales WHERE sale_id >= %s AND sale_id < %s", (sale, sale + 2))
        case 8:
            connection.execute(
                "INSERT INTO product VALUES (%s, %s, %s) ON CONFLICT (product_id) DO UPDATE"
                " SET kind = excluded.kind, parent_id = excluded.parent_id",
                (product, word, chance.choice([None, pick(1, 4)])),
            )
        case 9:
            connection.execute("DELETE FROM product WHERE product_id = %s", (product,))
        case 10:
            connection.execute("UPDATE sales SET cust_id = %s WHERE sale_id > %s", (customer, sale))
        case 11:
            # Two tables in one statement: either trigger sees both changes.
            connection.execute(
                "WITH sold AS (INSERT INTO sales VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
                " RETURNING cust_id)"
                " INSERT INTO customer SELECT cust_id, %s FROM sold ON CONFLICT DO NOTHING",
                (sale, customer, product, amount, word),
            )
        case 12:
            connection.execute(
                "INSERT INTO line SELECT sale_id, %s, %s FROM sales WHERE sale_id >= %s LIMIT 2 FOR SHARE",
                (pick(1, 3), amount, sale),
            )
        case 13:
            connection.execute("UPDATE line SET quantity = %s WHERE item = %s", (amount, pick(1, 3)))
        case _:
            own_parent = "UPDATE product SET parent_id = product_id WHERE product_id <> %s"
            connection.execute(own_parent, (product,))


def transact(connection: psycopg.Connection[Any], chance: random.Random, unnoticed: float = 0.05) -> None:
    """One random transaction: some are rolled back, as a whole or in part, some do without triggers."""
    connection.autocommit = False
    level = chance.choice(list(psycopg.IsolationLevel)[1:])
    connection.isolation_level = level if chance.random() < 0.4 else psycopg.IsolationLevel.READ_COMMITTED
    try:
        if chance.random() < unnoticed:
            connection.execute("SET LOCAL session_replication_role = replica")
        for _ in range(chance.randint(1, 3)):
            if chance.random() < 0.15:
                with suppress(psycopg.errors.UniqueViolation), connection.transaction(force_rollback=True):
                    change(connection, chance)
            else:
                change(connection, chance)
        if chance.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()
    except (psycopg.errors.OperationalError, psycopg.errors.IntegrityError):
        # Deadlocks, serialization failures, keys that another one has taken.
        connection.rollback()


@contextmanager
def writing(
    dsn: str,
    writers: int,
    work: Callable[[psycopg.Connection[Any], random.Random], None],
    seed: int = 0,
    pause: float = 0.0,
) -> Iterator[None]:
    """Lets writers work at the same time, until this is left; each pauses for so many seconds in between."""

    def write(number: int, over: Event) -> None:
        chance = random.Random(seed * 100 + number)
        with psycopg.connect(dsn) as connection:
            while not over.wait(pause):
                work(connection, chance)

    with at_work([partial(write, number) for number in range(writers)]):
        yield

"""One definition under every algorithm, over a real PostgreSQL and SQLite with writers: what each one shows,
judged by recomputation, and what it costs.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat, takewhile
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
from shop import is_readable, states_of
from threads import at_work

from rollview.algorithms.algorithm import Level
from rollview.algorithms.registry import ALGORITHMS
from rollview.events import StepFinished
from rollview.project.project import Project

Row = tuple[Any, ...]
Tables = dict[str, Counter[Row]]

CRM = {
    "customer": "cust_id INT PRIMARY KEY, state TEXT",
    "product": "product_id INT PRIMARY KEY, kind TEXT",
}
SALES = "sale_id INTEGER PRIMARY KEY, cust_id INTEGER, product_id INTEGER, amount INTEGER"
SOLD = """SELECT s.sale_id, c.cust_id, p.product_id, c.state, p.kind, s.amount FROM shop.sales s
    JOIN crm.customer c ON s.cust_id = c.cust_id JOIN crm.product p ON s.product_id = p.product_id
    WHERE s.amount > 2"""
OF_ONE_SITE = """SELECT c.cust_id, p.product_id, c.state, p.kind FROM crm.customer c
    JOIN crm.product p ON c.cust_id = p.product_id"""
OF_ONE_TABLE = "SELECT sale_id, cust_id, product_id, amount FROM shop.sales WHERE amount > 2"
LIVE = tuple(name for name in ALGORITHMS if name not in ("ipda", "rolling-as-printed"))
"""All that maintain views here: `ipda` is a policy, and `rolling-as-printed` is wrong."""

QUERIES = dict.fromkeys(LIVE, SOLD) | {
    "eca": OF_ONE_SITE,
    "eca-key": OF_ONE_SITE,
    "conventional": OF_ONE_TABLE,
}
"""The query that each can maintain: the same join, unless it is for one site or for no join."""


def view_of(algorithm: str) -> str:
    """What the view is called that an algorithm maintains."""
    return f"by_{algorithm.replace('-', '_')}"


def definition(algorithm: str) -> str:
    """The view under an algorithm; it asks for the level that the algorithm reaches."""
    level = ALGORITHMS[algorithm].level
    said = f"'rollview.algorithm' = '{algorithm}', 'rollview.consistency' = '{level}'"
    return f"CREATE MATERIALIZED VIEW {view_of(algorithm)} TBLPROPERTIES ({said}) AS {QUERIES[algorithm]}"


@dataclass
class Cost:
    """What the steps of a view came to."""

    lookups: int = 0
    rows_found: int = 0
    seconds: float = 0.0

    def add(self, step: StepFinished) -> None:
        self.lookups += step.lookups
        self.rows_found += step.rows_found
        self.seconds += step.seconds


@dataclass
class LiveShop:
    """Customers and products in PostgreSQL, sales in SQLite, and the project with a view per algorithm."""

    folder: Path
    dsn: str
    first: Tables = field(default_factory=dict)
    costs: dict[str, Cost] = field(default_factory=lambda: defaultdict(Cost))

    def __post_init__(self) -> None:
        with psycopg.connect(self.dsn) as connection:
            for table, columns in CRM.items():
                connection.execute(f"CREATE TABLE {table} ({columns})")
            connection.execute("INSERT INTO customer SELECT n, 'CA' FROM generate_series(1, 6) n")
            connection.execute("INSERT INTO product SELECT n, 'tea' FROM generate_series(1, 4) n")
        (self.folder / "views").mkdir(parents=True)
        with self.connect() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"CREATE TABLE sales ({SALES})")
        (self.folder / "rollview.yml").write_text(
            f"name: live\nspark: {{master: 'local[2]'}}\nsources:\n"
            f'  crm: {{type: postgres, dsn: "{self.dsn}"}}\n  shop: {{type: sqlite, path: shop.db}}\n'
        )
        for algorithm in LIVE:
            (self.folder / "views" / f"{view_of(algorithm)}.sql").write_text(definition(algorithm))

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.folder / "shop.db", timeout=300, isolation_level=None)

    def begin(self) -> None:
        """The tables as they are now are those of the first csn; nobody writes."""
        self.first = self.copy()

    def copy(self) -> Tables:
        with psycopg.connect(self.dsn) as crm:
            found = {f"crm.{name}": Counter(crm.execute(f"SELECT * FROM {name}")) for name in CRM}
        shop = self.connect()
        found["shop.sales"] = Counter(shop.execute("SELECT * FROM sales"))
        shop.close()
        return found

    def counting(self, project: Project) -> None:
        """From now on the costs of every view are added up."""
        names = {view_of(algorithm): algorithm for algorithm in LIVE}

        def add(event: object) -> None:
            if isinstance(event, StepFinished) and event.kind == "propagate":
                self.costs[names[event.subject]].add(event)

        project.subscribe(add)

    @contextmanager
    def writing(
        self, pause: float, rest: float = 0.0, seed: int = 0, most: int | None = None
    ) -> Iterator[None]:
        """Two writers at PostgreSQL and one at SQLite, until this is left or each has written so often.

        All of them work for a second first, and rest for so many seconds after each second of work: some
        algorithms wait for that, and answers that never end make a step that never ends.
        """
        began = time.monotonic()

        def turns(over: Event, chance: random.Random) -> Iterator[int]:
            numbers = repeat(0) if most is None else repeat(0, most)
            return takewhile(lambda _: not wait(over, chance), numbers)

        def wait(over: Event, chance: random.Random) -> bool:
            is_over = over.wait(chance.uniform(0, 2 * pause))
            while rest and not is_over and (time.monotonic() - began) % (rest + 1.0) > 1.0:
                is_over = over.wait(0.05)
            return is_over

        def write_crm(number: int, over: Event) -> None:
            chance = random.Random(seed * 10 + number)
            with psycopg.connect(self.dsn) as crm:
                for _ in turns(over, chance):
                    _change_crm(crm, chance)

        def write_shop(over: Event) -> None:
            chance = random.Random(seed * 10 + 2)
            with closing(self.connect()) as shop:
                for _ in turns(over, chance):
                    _change_shop(shop, chance)

        with at_work([partial(write_crm, 0), partial(write_crm, 1), write_shop]):
            yield

    def judge(self, project: Project) -> dict[str, Level]:
        """The level that each algorithm has reached; a readable state that is wrong is an error."""
        names = {algorithm: view_of(algorithm) for algorithm in LIVE}
        levels = self.judge_views(project, {names[each]: QUERIES[each] for each in LIVE})
        return {algorithm: levels[name] for algorithm, name in names.items()}

    def judge_views(self, project: Project, queries: Mapping[str, str]) -> dict[str, Level]:
        """The same of views by name, each of one of the queries."""
        status, catalog = project.status(), project._warehouse.catalog
        expected = self._expected(project, status.last_csn)
        levels = {}
        for name, query in queries.items():
            view = next(each for each in status.views if each.name == name)
            condensed, refused = catalog.views.condensed(name), 0
            states = states_of(project, view)
            assert view.high_water == status.last_csn
            for csn in range(view.oldest, status.last_csn + 1):
                if not is_readable(csn, condensed):
                    refused += 1
                else:
                    assert states[csn] == expected[query][csn], (name, csn)
            levels[name] = Level.STRONG if refused else Level.COMPLETE
        return levels

    def replace_views(self, texts: Mapping[str, str]) -> None:
        """Gives the project these views instead."""
        for old in (self.folder / "views").iterdir():
            old.unlink()
        for name, text in texts.items():
            (self.folder / "views" / f"{name}.sql").write_text(text)

    def _expected(self, project: Project, last: int) -> dict[str, dict[int, Counter[Row]]]:
        """Each query at each csn."""
        tables = {name: Counter(rows) for name, rows in self.first.items()}
        changes: defaultdict[int, list[tuple[str, Row, int]]] = defaultdict(list)
        for name, table in project._warehouse.catalog.captured.tables().items():
            log = project._warehouse.tables.change_log(table)
            for row in log.load(log.files()).to_pylist():
                values = tuple(row[column] for column in table.columns)
                changes[row["_csn"]].append((name, values, row["_count"]))
        states: dict[str, dict[int, Counter[Row]]] = {SOLD: {}, OF_ONE_SITE: {}, OF_ONE_TABLE: {}}
        for csn in range(last + 1):
            for name, row, count in changes[csn]:
                tables[name][row] += count
            states[SOLD][csn] = _sold(tables)
            states[OF_ONE_SITE][csn] = _of_one_site(tables)
            states[OF_ONE_TABLE][csn] = Counter(_large_sales(tables))
        assert {name: +rows for name, rows in tables.items()} == self.copy(), "the log has all"
        return states


def _large_sales(tables: Mapping[str, Counter[Row]]) -> list[Row]:
    return [row for row in +tables["shop.sales"] if row[3] is not None and row[3] > 2]


def _of_one_site(tables: Mapping[str, Counter[Row]]) -> Counter[Row]:
    products = dict((+tables["crm.product"]).keys())
    return Counter(
        (number, number, state, products[number])
        for number, state in +tables["crm.customer"]
        if number in products
    )


def _sold(tables: Mapping[str, Counter[Row]]) -> Counter[Row]:
    """The view, computed by hand."""
    customers = dict((+tables["crm.customer"]).keys())
    products = dict((+tables["crm.product"]).keys())
    return Counter(
        (sale, customer, product, customers[customer], products[product], amount)
        for sale, customer, product, amount in _large_sales(tables)
        if customer in customers and product in products
    )


def _change_crm(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    """One random transaction of one or two statements."""
    try:
        with connection.transaction():
            for _ in range(chance.randint(1, 2)):
                table, key, column = chance.choice(
                    [("customer", "cust_id", "state"), ("product", "product_id", "kind")]
                )
                number, word = chance.randint(1, 6), chance.choice(["CA", "NV", "tea", None])
                if chance.random() < 0.3:
                    connection.execute(f"DELETE FROM {table} WHERE {key} = %s", (number,))
                else:
                    connection.execute(
                        f"INSERT INTO {table} VALUES (%s, %s)"
                        f" ON CONFLICT ({key}) DO UPDATE SET {column} = excluded.{column}",
                        (number, word),
                    )
    except psycopg.errors.DeadlockDetected:
        pass


def _change_shop(connection: sqlite3.Connection, chance: random.Random) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for _ in range(chance.randint(1, 2)):
        sale = chance.randint(1, 12)
        if chance.random() < 0.3:
            connection.execute("DELETE FROM sales WHERE sale_id = ?", (sale,))
        else:
            values = (sale, chance.randint(1, 6), chance.randint(1, 5), chance.choice([None, 1, 3, 5, 7]))
            connection.execute("INSERT OR REPLACE INTO sales VALUES (?, ?, ?, ?)", values)
    connection.execute("COMMIT")

"""A small shop over two SQLite databases, its random transactions, and an oracle that knows every state.

After every transaction the oracle keeps a copy of the database's tables. What a view must show at a csn is
then DuckDB's answer to the view's own text over the copies that the csn stands for; rollview is asked only
which source versions these are.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlglot
from oracle import Oracle, frozen, insert
from sqlglot import exp

from rollview.algebra.net_effect import Range
from rollview.errors import PointError
from rollview.observe.status import ViewStatus
from rollview.project.project import Project
from rollview.sql.dialect import DIALECT

SCHEMAS = {
    "crm": {"customer": "cust_id INTEGER PRIMARY KEY, state TEXT, segment TEXT"},
    "shop": {
        "sales": "sale_id INTEGER PRIMARY KEY, cust_id INTEGER, product_id INTEGER, amount INTEGER",
        "product": "product_id INTEGER PRIMARY KEY, kind TEXT, parent_id INTEGER",
    },
}
COLUMNS = {
    f"{name}.{table}": columns.replace(" PRIMARY KEY", "").replace("INTEGER", "BIGINT")
    for name, tables in SCHEMAS.items()
    for table, columns in tables.items()
}
"""Of the same tables in DuckDB."""
VIEWS = {
    "sales_by_state": """SELECT c.state, count(*) AS n, sum(s.amount) AS total, avg(s.amount) AS mean
        FROM shop.sales s JOIN crm.customer c ON s.cust_id = c.cust_id GROUP BY c.state""",
    "sold": """SELECT s.sale_id, c.state, p.kind, s.amount FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id
        JOIN shop.product p ON s.product_id = p.product_id WHERE s.amount > 2""",
}
MORE_VIEWS = {
    "families": """SELECT a.kind AS kind, b.kind AS parent FROM shop.product a
        JOIN shop.product b ON a.parent_id = b.product_id""",
    "everything": """SELECT cust_id AS id, segment AS label FROM crm.customer
        UNION ALL SELECT product_id, kind FROM shop.product""",
    "grand_total": "SELECT count(*) AS n, sum(amount) AS total FROM shop.sales",
    "states_of_size": "SELECT n, count(*) AS states FROM sales_by_state GROUP BY n",
    "kinds_in_big_states": """SELECT v.kind, t.total FROM sold v
        JOIN sales_by_state t ON v.state = t.state""",
}
# Operators below operators, which are maintained in stages.
DEEP_VIEWS = {
    "days_of_size": """SELECT n, count(*) AS states, sum(total) AS total FROM (
            SELECT c.state, count(*) AS n, sum(s.amount) AS total
            FROM shop.sales s JOIN crm.customer c ON s.cust_id = c.cust_id GROUP BY c.state) t
        WHERE n > 1 GROUP BY n""",
    "above_the_sum": """SELECT s.sale_id, s.amount, t.total, p.kind
        FROM (SELECT cust_id, sum(amount) AS total, count(*) AS n FROM shop.sales GROUP BY cust_id) t
        JOIN shop.sales s ON s.cust_id = t.cust_id JOIN shop.product p ON p.product_id = s.product_id
        WHERE s.amount + s.amount > t.total""",
    "three_deep": """SELECT u.k, count(*) AS c, sum(u.m) AS m FROM (
            SELECT t.n AS k, count(*) AS m FROM (
                SELECT cust_id, count(*) AS n FROM shop.sales GROUP BY cust_id) t GROUP BY t.n
            UNION ALL SELECT 0, count(*) FROM crm.customer
            UNION ALL SELECT product_id, parent_id FROM shop.product) u
        GROUP BY u.k""",
}

Rows = tuple[tuple[Any, ...], ...]


class Shop:
    """The databases, the project file and the oracle."""

    def __init__(self, folder: Path, views: dict[str, str] | None = None, wal: bool = True) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.views = dict(VIEWS if views is None else views)
        self.connections = {name: self.connect(name) for name in SCHEMAS}
        for name, connection in self.connections.items():
            if wal:
                connection.execute("PRAGMA journal_mode=WAL")
            for table, columns in SCHEMAS[name].items():
                connection.execute(f"CREATE TABLE {table} ({columns})")
        self.states: dict[str, list[dict[str, Rows]]] = {}
        self.captured: set[str] = set()
        self.first: dict[str, int] = {}
        self.random = random.Random(0)
        self._oracle: Oracle | None = None
        self.write_project()

    def connect(self, name: str) -> sqlite3.Connection:
        """A plain connection to one of the databases."""
        path = self.folder / f"{name}.db"
        return sqlite3.connect(path, isolation_level=None, timeout=30.0, check_same_thread=False)

    def write_project(self, **settings: str) -> None:
        """Writes the project file and the view files."""
        lines = ["name: shop", "spark: {master: 'local[2]'}", "sources:"]
        lines += [f"  {name}: {{type: sqlite, path: ./{name}.db}}" for name in SCHEMAS]
        lines += [f"{key}: {value}" for key, value in settings.items()]
        (self.folder / "rollview.yml").write_text("\n".join(lines) + "\n")
        (self.folder / "views").mkdir(exist_ok=True)
        for file in (self.folder / "views").iterdir():
            file.unlink()
        for name, sql in self.views.items():
            text = sql if sql.startswith("CREATE") else f"CREATE MATERIALIZED VIEW {name} AS {sql}"
            (self.folder / "views" / f"{name}.sql").write_text(text)

    def begin(self) -> None:
        """Says that capture of the views' tables begins here: the states of now are version 0."""
        self.states = {name: [self.copy(name)] for name in SCHEMAS}
        self.first = dict.fromkeys(SCHEMAS, 0)
        self.capture_views()

    def capture_views(self) -> None:
        """Says which tables are captured from now on: those that the views read."""
        self.captured = {
            f"{table.db}.{table.name}"
            for sql in self.views.values()
            for table in sqlglot.parse_one(sql, dialect=DIALECT).find_all(exp.Table)
            if table.db
        }

    def commits(self) -> int:
        """How many transactions have changed a captured table since `begin`."""
        return sum(len(states) - 1 for states in self.states.values())

    def match(self, project: Project) -> None:
        """Where capture may have begun at any transaction since `begin`: the newest version decides."""
        for name, site in project._warehouse.catalog.captured.sites().items():
            self.first[name] = len(self.states[name]) - 1 - site.version

    def transact(self, statements: int = 3) -> None:
        """One random transaction in one of the databases."""
        name = self.random.choice(list(SCHEMAS))
        connection = self.connections[name]
        connection.execute("BEGIN IMMEDIATE")
        number = self.random.randint(1, statements)
        changed = [change(name, connection, self.random) for _ in range(number)]
        connection.execute("COMMIT")
        if self.states and self.captured & set(changed):
            self.states[name].append(self.copy(name))

    def copy(self, name: str) -> dict[str, Rows]:
        """The tables of a database as they are now."""
        return copied(name, self.connections[name])

    def expected(self, project: Project, view: str, csn: int) -> Counter[tuple[Any, ...]]:
        """What the view must show at a csn."""
        return self.answer(view, self.states_at(project, csn))

    def states_at(self, project: Project, csn: int) -> dict[str, dict[str, Rows]]:
        """The tables at a csn."""
        catalog = project._warehouse.catalog
        sites = catalog.captured.sites()
        versions = {name: catalog.history.version_at(name, csn) if name in sites else -1 for name in SCHEMAS}
        return {name: self.states[name][self.first[name] + at] for name, at in versions.items()}

    def expected_now(self, view: str) -> Counter[tuple[Any, ...]]:
        """What the view must show when everything has been captured."""
        return self.answer(view, {name: self.copy(name) for name in SCHEMAS})

    def answer(self, view: str, states: dict[str, dict[str, Rows]]) -> Counter[tuple[Any, ...]]:
        """What DuckDB says to the view's own text over these states."""
        return self.answers([view], states)[view]

    def answers(
        self, views: Iterable[str], states: dict[str, dict[str, Rows]]
    ) -> dict[str, Counter[tuple[Any, ...]]]:
        """The same for several views."""
        if self._oracle is None or list(self._oracle.views.items()) != list(self.views.items()):
            self._oracle = Oracle(COLUMNS, self.views)
        rows = {f"{name}.{table}": states[name][table] for name in SCHEMAS for table in SCHEMAS[name]}
        return self._oracle.answers(views, rows)

    def fill(self, database: duckdb.DuckDBPyConnection, states: dict[str, dict[str, Rows]]) -> None:
        """Makes the tables in DuckDB, with these rows."""
        for name in SCHEMAS:
            database.execute(f"CREATE SCHEMA {name}")
        for table, columns in COLUMNS.items():
            database.execute(f"CREATE TABLE {table} ({columns})")
            source, _, own = table.partition(".")
            insert(database, table, states[source][own])

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()


def copied(name: str, connection: sqlite3.Connection) -> dict[str, Rows]:
    """The tables of a database as a connection sees them."""
    return {
        table: tuple(connection.execute(f"SELECT {_names(columns)} FROM {table}").fetchall())
        for table, columns in SCHEMAS[name].items()
    }


def _names(columns: str) -> str:
    return ", ".join(column.split()[0] for column in columns.split(", "))


def change(name: str, connection: sqlite3.Connection, chance: random.Random) -> str:
    """One random statement; the table that it changed."""
    pick = chance.randint
    table = chance.choice(list(SCHEMAS[name]))
    word = chance.choice(["a", "b", "c", None])
    if table == "customer":
        row: tuple[Any, ...] = (pick(1, 6), word, chance.choice(["x", "y"]))
    elif table == "product":
        row = (pick(1, 5), word, chance.choice([None, pick(1, 5)]))
    else:
        row = (pick(1, 25), pick(1, 6), pick(1, 5), chance.choice([None, pick(0, 9)]))
    key = next(iter(SCHEMAS[name][table].split()))
    before, kind = connection.total_changes, pick(1, 10)
    if kind <= 6:
        names, source_txids = _names(SCHEMAS[name][table]), ",".join("?" * len(row))
        connection.execute(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({source_txids})", row)
    elif kind <= 8:
        connection.execute(f"DELETE FROM {table} WHERE {key} = ?", row[:1])
    else:
        column = SCHEMAS[name][table].split(", ")[1].split()[0]
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {key} >= ?", (row[1], row[0]))
    return f"{name}.{table}" if connection.total_changes > before else ""


def shown(project: Project, view: str, as_of: int | None = None) -> Counter[tuple[Any, ...]]:
    """What rollview shows of a view."""
    return Counter(frozen(row) for row in project.read(view, as_of).collect())


def transact(shop: Shop, number: int = 3) -> None:
    """Some random transactions."""
    for _ in range(number):
        shop.transact()


def check_all(shop: Shop, project: Project) -> None:
    """Everything committed is captured and shown; older csn are right, too."""
    project.run(once=True)
    status = project.status()
    assert status.unfinished == ()
    assert {view.name for view in status.views} == set(shop.views)
    shop.match(project)
    for view in status.views:
        assert shown(project, view.name) == shop.expected_now(view.name), view.name
        for csn in {view.oldest, (view.oldest + view.high_water) // 2}:
            assert shown(project, view.name, csn) == shop.expected(project, view.name, csn), (view.name, csn)


def states_of(project: Project, view: ViewStatus) -> dict[int, Counter[tuple[Any, ...]]]:
    """A view at every csn that it covers: its oldest state, and what its deltas make of it."""
    state, states = shown(project, view.name, view.oldest), {}
    changes = iter(project.deltas(view.name).collect())
    change = next(changes, None)
    for csn in range(view.oldest, view.high_water + 1):
        while change is not None and change["_csn"] == csn:
            state[frozen(change)[:-2]] += change["_count"]
            change = next(changes, None)
        states[csn] = +state
        assert len(states[csn]) == sum(1 for count in state.values() if count), (
            "a row is there less than never"
        )
    assert change is None, change
    return states


def is_readable(csn: int, condensed: Iterable[Range]) -> bool:
    """Whether a csn is none of those that were given up when a stretch of the delta became one step."""
    return not any(each.after < csn < each.upto for each in condensed)


def check_readable_csns(shop: Shop, project: Project) -> tuple[int, int]:
    """Every view is right at every readable csn, and refuses the others; returns both numbers."""
    status, readable, refused = project.status(), 0, 0
    for view in status.views:
        states, condensed = states_of(project, view), project._warehouse.catalog.views.condensed(view.name)
        for csn in range(status.last_csn + 1):
            if is_readable(csn, condensed):
                readable += 1
                assert states[csn] == shop.expected(project, view.name, csn), (view.name, csn)
            else:
                refused += 1
                with pytest.raises(PointError, match="condensed or recomputed"):
                    project.read(view.name, csn)
    assert all(verdict.is_right for verdict in project.verify())
    for name in shop.views:
        assert shown(project, name) == shop.expected_now(name), name
    return readable, refused


def check_every_csn(shop: Shop, project: Project) -> None:
    """Every view is right at every csn, as its deltas say and as it is read; and it is verified."""
    status = project.status()
    last = status.last_csn
    found = {each.name: states_of(project, each) for each in status.views}
    for csn in range(last + 1):
        expected = shop.answers(project.views, shop.states_at(project, csn))
        for view, states in found.items():
            assert states[csn] == expected[view], (view, csn)
    now = shop.answers(project.views, {name: shop.copy(name) for name in SCHEMAS})
    for number, (view, states) in enumerate(found.items()):
        assert shown(project, view) == states[last] == now[view], view
        csn = (last // 3, last - 1)[number % 2]
        assert shown(project, view, csn) == states[csn], (view, csn)
    assert [verdict.view for verdict in project.verify() if not verdict.is_right] == []


def check_unharmed(shop: Shop, project: Project) -> None:
    """What is shown is right at the csn it claims, whatever has happened."""
    for view in project.status().views:
        expected = shop.expected(project, view.name, view.materialized)
        assert shown(project, view.name) == expected, view.name

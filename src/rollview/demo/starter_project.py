"""The project that `rollview init` writes and `rollview demo` uses: its files and its two databases.

The shop is a SQLite file; the customers are in a real PostgreSQL, which lives in a folder of the project and
runs while it is used.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

CRM = "crm"
"""The folder of the customers' server."""

PROJECT_FILE = """\
# A rollview project. Paths are relative to this file. ${NAME} stands for an environment variable.
name: shop

# Views, their deltas and the change logs: ordinary Delta tables, open to any Delta reader.
lake: ./lake

# Where Spark runs: local threads here; {remote: "sc://host:15002"} for a Spark Connect server.
spark: {master: "local[*]"}

# Databases that others write to. rollview locks nothing there and copies no table.
sources:
  shop: {type: sqlite, path: ./shop.db}
  CRM_ENTRY

# One view per file. `source.table` names a relation, a bare name another view.
views: ["views/*.sql"]
"""

CRM_IN_POSTGRES = """\
# A PostgreSQL in a folder, for trying things out. For a real one: {dsn: "postgresql://user:${PASSWORD}@host/db"}.
  crm: {type: postgres, path: ./crm}"""
CRM_IN_SQLITE = "crm: {type: sqlite, path: ./crm.db}"

VIEWS = {
    "sale_lines": """\
-- A join over two databases that know nothing of each other.
CREATE MATERIALIZED VIEW sale_lines
AS SELECT s.sale_id, s.amount, c.name, c.state
FROM shop.sales s JOIN crm.customers c ON s.customer_id = c.customer_id;
""",
    "sales_by_state": """\
-- An aggregate: maintained by adding what changed, never by recounting everything.
CREATE MATERIALIZED VIEW sales_by_state
TBLPROPERTIES ('rollview.policy' = 'deferred')
AS SELECT c.state, count(*) AS n, sum(s.amount) AS total
FROM shop.sales s JOIN crm.customers c ON s.customer_id = c.customer_id
GROUP BY c.state;
""",
    "large_sales": """\
-- A view over a view: the delta of one feeds the other.
CREATE MATERIALIZED VIEW large_sales
AS SELECT l.sale_id, l.name, l.amount
FROM sale_lines l
WHERE l.amount >= 100;
""",
}

SELL = '''\
"""A program that writes to both databases. Run it as often as you like."""

import random
import sqlite3
from contextlib import closing

CRM_IMPORT
with closing(sqlite3.connect("shop.db")) as shop, shop:
    for _ in range(3):
        sale = (random.randint(1, 5), random.randint(100, 30000) / 100)
        shop.execute("INSERT INTO sales (customer_id, amount) VALUES (?, ?)", sale)
        print("sold for %.2f to customer %d" % (sale[1], sale[0]))

with CRM_CONNECT:
    (state,) = crm.execute("SELECT state FROM customers WHERE customer_id = 1").fetchone()
    state = {"CA": "NY", "NY": "TX", "TX": "WA"}.get(state, "CA")
    crm.execute("UPDATE customers SET state = CRM_PLACE WHERE customer_id = 1", (state,))
    print("customer 1 moved to", state)
'''

SHOP_SCHEMA = """\
CREATE TABLE sales (
    sale_id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL,
    amount DECIMAL(10, 2) NOT NULL
);
"""

CRM_SCHEMA = """\
CREATE TABLE customers (
    customer_id BIGINT PRIMARY KEY,
    name TEXT NOT NULL,
    state TEXT NOT NULL
);
"""

CUSTOMERS = ((1, "Ada", "CA"), (2, "Grace", "NY"), (3, "Edgar", "CA"), (4, "Barbara", "TX"), (5, "Jim", "WA"))
SALES = ((1, 1, 19.9), (2, 2, 250), (3, 1, 120.5), (4, 3, 42), (5, 4, 99.99), (6, 5, 310), (7, 2, 8.25))

NEXT_COMMANDS = (
    ("rollview setup", "prepares both databases and loads the views"),
    ("rollview read sales_by_state", "what the view shows"),
    ("python3 sell.py", "another program writes to the databases"),
    ("rollview run --once", "the views follow"),
    ("rollview status", "the state of sources and views"),
    ("rollview deltas sales_by_state", "what each transaction did"),
    ("rollview read sales_by_state --as-of csn:1", "the view as it was"),
    ("rollview verify", "recomputes and compares"),
)
"""The next commands, each with its purpose."""


_IN_POSTGRES = {
    "CRM_ENTRY": CRM_IN_POSTGRES,
    "CRM_IMPORT": """\
import psycopg
from rollview.sources.postgres import EmbeddedPostgres

# The customers' server lives in a folder here; a real one would already be running.
crm_address = EmbeddedPostgres("crm").start()
""",
    "CRM_CONNECT": "psycopg.connect(crm_address) as crm",
    "CRM_PLACE": "%s",
}
_IN_SQLITE = {
    "CRM_ENTRY": CRM_IN_SQLITE,
    "CRM_IMPORT\n": "",
    "CRM_CONNECT": 'closing(sqlite3.connect("crm.db")) as crm, crm',
    "CRM_PLACE": "?",
}


def fill_in(text: str, sqlite: bool = False) -> str:
    """A file's text with the customers where they are."""
    for name, words in (_IN_SQLITE if sqlite else _IN_POSTGRES).items():
        text = text.replace(name, words)
    return text


def write_project(folder: Path, sqlite: bool = False) -> dict[str, str]:
    """Writes the whole project; returns each file with what it is. With `sqlite` no server is needed."""
    (folder / "views").mkdir(parents=True, exist_ok=True)
    (folder / "rollview.yml").write_text(fill_in(PROJECT_FILE, sqlite), encoding="utf-8")
    for name, sql in VIEWS.items():
        (folder / "views" / f"{name}.sql").write_text(sql, encoding="utf-8")
    (folder / "sell.py").write_text(fill_in(SELL, sqlite), encoding="utf-8")
    write_database(folder / "shop.db", SHOP_SCHEMA, "INSERT INTO sales VALUES (?, ?, ?)", SALES)
    if sqlite:
        write_database(folder / "crm.db", CRM_SCHEMA, "INSERT INTO customers VALUES (?, ?, ?)", CUSTOMERS)
        customers = {"crm.db": "another one with a few customers"}
    else:
        # Not at the top: a bare install has no driver for PostgreSQL.
        from rollview.sources.postgres import EmbeddedPostgres  # noqa: PLC0415

        server = EmbeddedPostgres(folder / CRM)
        write_customers(server.start(), CUSTOMERS)
        server.stop()
        customers = {"crm/": "a PostgreSQL with a few customers"}
    return {
        "rollview.yml": "the project file",
        "views/sale_lines.sql": "a join of both databases",
        "views/sales_by_state.sql": "an aggregate",
        "views/large_sales.sql": "a view over a view",
        "shop.db": "a SQLite database with a few sales",
        **customers,
        "sell.py": "a program that writes to both",
    }


def write_database(file: Path, schema: str, insert: str, rows: tuple[tuple[object, ...], ...]) -> None:
    """A SQLite database in WAL mode, in which single transactions can be captured."""
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(schema)
        database.executemany(insert, rows)
        database.commit()


def write_customers(address: str, rows: Iterable[tuple[int, str, str]]) -> None:
    """The customers' table in PostgreSQL."""
    import psycopg  # noqa: PLC0415 - not at the top, as above

    with psycopg.connect(address) as database, database.cursor() as cursor:
        cursor.execute(CRM_SCHEMA)
        cursor.executemany("INSERT INTO customers VALUES (%s, %s, %s)", rows)

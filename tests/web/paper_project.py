"""A project that exists in its catalog alone: as many views and transactions as one likes, without Spark.

Two sites, three tables; every view is one of a few queries over them. What each transaction and each refresh
left in the catalog is written there by SQL, as a project that has been running for long would have it.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rollview.algebra.relation import Table
from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import Catalog, LoadStep, ViewAdded, ViewRecord
from rollview.project.project import Project

TABLES = (
    Table("shop", "sales", ("id", "cust", "amount"), ("id",), types=("bigint", "bigint", "bigint")),
    Table("shop", "product", ("id", "kind"), ("id",), types=("bigint", "string")),
    Table("crm", "customer", ("cust", "state"), ("cust",), types=("bigint", "string")),
)
JOINED = (
    "SELECT s.id, c.state, s.amount FROM shop.sales s JOIN crm.customer c ON s.cust = c.cust"
    " WHERE s.amount > {number}"
)
OVER = "SELECT v.id, v.state FROM {below} v WHERE v.amount > {number}"


@dataclass(frozen=True)
class Size:
    """How many views, transactions, and refreshes of each view there are."""

    views: int = 4
    transactions: int = 100
    refreshes: int = 20
    seconds: float = 1.0
    """Between two transactions; a view shows each of them half a second later."""
    name: str = "view_{number:03}"


def project_file(folder: Path, crm: str = "{type: sqlite, path: ./crm.db}") -> Path:
    """Writes the project file, without views; `crm` is the entry of that source."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("shop", "id INTEGER"), ("crm", "cust INTEGER")):
        with closing(sqlite3.connect(folder / f"{name}.db")) as database:
            database.execute(f"CREATE TABLE IF NOT EXISTS t ({text})")
    sources = f"  shop: {{type: sqlite, path: ./shop.db}}\n  crm: {crm}\n"
    (folder / "rollview.yml").write_text(f"name: paper\nsources:\n{sources}")
    return folder / "rollview.yml"


def fill(path: Path, size: Size, now: float | None = None) -> None:
    """Writes the catalog as after a long time: the last transaction was committed `now`."""
    with Project.open(path) as project:
        # Opening it gives the lake its catalog.
        assert project.views == ()
    place = path.parent / "lake" / "catalog.db"
    catalog = Catalog.open(f"sqlite:///{place}")
    catalog.captured.register(TABLES, {"shop": ("shop", "0"), "crm": ("crm", "0")})
    last = size.transactions
    histories = {name: each.id for name, each in catalog.captured.histories().items()}
    with catalog.lease("load") as lease:
        step = catalog.steps.begin(lease, "all", LoadStep())
        added = [_added(number, size, histories) for number in range(size.views)]
        catalog.steps.finish(lease, step, *added)
    catalog.close()
    moment = time.time() if now is None else now
    with closing(sqlite3.connect(place)) as database:
        database.executescript(_filled(size, moment))
        database.execute("UPDATE site SET looked_at = ?, captured_at = ?", (moment, moment))
        database.execute("UPDATE materialized_view SET materialized_csn = ?", (last,))
        database.commit()


def _added(number: int, size: Size, histories: dict[str, str]) -> ViewAdded:
    # Every fourth view reads the one before it.
    over = number % 4 == 3
    name, below = (size.name.format(number=each) for each in (number, number - 1))
    sql = OVER.format(below=below, number=number) if over else JOINED.format(number=number)
    columns = (("id", "bigint"), ("state", "string"), *(() if over else (("amount", "bigint"),)))
    tables = () if over else (TABLES[0], TABLES[2])
    known = {below: "1"} if over else {name: histories[name] for name in ("shop.sales", "crm.customer")}
    record = ViewRecord(
        name=name,
        sql=f"CREATE MATERIALIZED VIEW {name} AS {sql}",
        digest=f"{number}",
        columns=columns,
        stored=columns,
        loaded_csn=0,
        oldest_csn=0,
        materialized_csn=0,
        lake_version=0,
        state_version=0,
        policy="deferred",
        tables=tables,
        histories=known,
    )
    queries = [ForwardQuery(name, 0, place) for place in range(1 if over else 2)]
    return ViewAdded(record, dict.fromkeys(queries, size.transactions))


def _filled(size: Size, now: float) -> str:
    number, start = size.transactions, now - size.transactions * size.seconds
    kept = max(1, number - size.refreshes)
    return f"""
    CREATE TEMP TABLE n AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {number})
        SELECT i FROM n;
    INSERT INTO unit_of_work SELECT i, {start} + i * {size.seconds} FROM n;
    INSERT INTO part SELECT 'shop', i - i / 4, i, i, 'tx' || i, '', FALSE, i FROM n WHERE i % 4 > 0;
    INSERT INTO part SELECT 'crm', i / 4, i, i, '', '', FALSE, i FROM n WHERE i % 4 = 0;
    INSERT INTO touch SELECT 'shop.sales', i, 2, 2 * (i - i / 4) FROM n WHERE i % 4 > 0;
    INSERT INTO touch SELECT 'crm.customer', i, 1, i / 4 FROM n WHERE i % 4 = 0;
    INSERT INTO refresh SELECT i, v.rowid, v.name, 'incremental', i - 1, i, 3, 0.25, 'run',
        {start} + i * {size.seconds} + 0.5 FROM n, materialized_view v WHERE i >= {kept};
    INSERT INTO propagated_interval SELECT view_name, block, relation, i - 5, i, {now}
        FROM forward_position, n
        WHERE i > {number} - 60 AND i % 5 = 0;
    UPDATE site SET version = {number} - {number} / 4 WHERE name = 'shop';
    UPDATE site SET version = {number} / 4 WHERE name = 'crm';
    """

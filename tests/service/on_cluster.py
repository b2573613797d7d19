"""A project on a Spark cluster as a program of its own: python on_cluster.py FOLDER CLUSTER WORKER….

Its lake is all that the driver and the executors share. Sizes from which rows are not kept in memory are
small, so that every kind of reading happens. Prints one JSON document.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).parents[1]))

from oracle import Oracle
from shop import shown, states_of

from rollview import Project
from rollview.bags import placed_bag
from rollview.errors import InputError
from rollview.sources import changed_rows
from rollview.sources.postgres.read import load, lookup
from rollview.sources.postgres.source import PostgresSource
from rollview.spark.session import tasks_running
from rollview.spark.workers import SparkWorkers, check_executors
from rollview.storage import lake_rows
from servers.processes import descendants

COLUMNS = {"crm.customer": "cust_id INT, state TEXT", "shop.sales": "sale_id INT, cust_id INT, amount INT"}
VIEWS = {
    "sold": """SELECT s.sale_id, c.state, s.amount FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id""",
    "by_state": """SELECT c.state, count(*) AS n, sum(s.amount) AS total FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id GROUP BY c.state""",
}
_SALES = "WITH RECURSIVE n(i) AS (VALUES (?) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)"

State = dict[str, list[tuple[Any, ...]]]


class World:
    """The databases, what they held at each csn, and the project."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.crm = psycopg.connect(dsn, autocommit=True)
        self.shop = sqlite3.connect(folder / "shop.db", isolation_level=None)
        self.oracle = Oracle(COLUMNS, VIEWS)
        self.states: dict[int, State] = {}

    def fill(self) -> None:
        self.crm.execute("CREATE TABLE customer (cust_id INT PRIMARY KEY, state TEXT)")
        self.crm.execute("INSERT INTO customer SELECT i, 's' || i % 7 FROM generate_series(1, 600) i")
        self.shop.execute("PRAGMA journal_mode=WAL")
        self.shop.execute("CREATE TABLE sales (sale_id INTEGER PRIMARY KEY, cust_id INT, amount INT)")
        self.sell(1, 500)

    def sell(self, first: int, upto: int) -> None:
        """One transaction of so many sales."""
        self.shop.execute(f"{_SALES} INSERT INTO sales SELECT i, i % 610, i % 11 FROM n", (first, upto))

    def note(self, csn: int) -> None:
        """Says that the databases are now as they are at a csn."""
        self.states[csn] = {
            "crm.customer": self.crm.execute("SELECT * FROM customer").fetchall(),
            "shop.sales": self.shop.execute("SELECT * FROM sales").fetchall(),
        }

    def captured(self, project: Project) -> None:
        """Captures the transaction that was just made."""
        project.capture()
        csn = project.status().last_csn
        assert csn == max(self.states) + 1, csn
        self.note(csn)

    def check_every_csn(self, project: Project) -> int:
        """Compares every view at every csn with DuckDB; how many states those are."""
        checked = 0
        for view in project.status().views:
            found = states_of(project, view)
            assert view.high_water == max(self.states), view
            for csn, state in found.items():
                assert state == self.oracle.answers(VIEWS, self.states[csn])[view.name], (view.name, csn)
                checked += bool(state)
            assert shown(project, view.name) == found[view.high_water], view.name
        return checked


def rows_at_driver(most: int) -> None:
    """Computes on executors what has more rows."""
    placed_bag.DRIVER_ROWS = lake_rows.DRIVER_ROWS = lake_rows._SEARCHED_ROWS = most


@contextmanager
def killing(project: Project, victims: list[int]) -> Iterator[None]:
    """Kills these processes as soon as executors compute what is done inside."""
    over, killed = threading.Event(), []

    def kill() -> None:
        while not over.is_set():
            if tasks_running(project.spark):
                for victim in victims:
                    os.kill(victim, signal.SIGKILL)
                killed.extend(victims)
                return
            time.sleep(0.002)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert killed, "nothing ran on executors"


def refused(project: Project, folder: Path, module: str) -> str:
    """What `setup` would say of executors that need a folder and a module."""
    folder.mkdir(parents=True)
    try:
        check_executors(project.spark, folder, [module])
    except InputError as error:
        return f"{error} {error.hint}"
    return ""


def places_of(secret: str, folders: list[Path]) -> list[str]:
    """Files and command lines that have it."""
    found = []
    for file in [file for folder in folders for file in folder.rglob("*") if file.is_file()]:
        with suppress(FileNotFoundError):
            if secret.encode() in file.read_bytes():
                found.append(str(file))
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if secret.encode() in (process / "cmdline").read_bytes():
                found.append((process / "cmdline").read_text())
    return found


def executors(worker: int) -> list[int]:
    """Those of a worker."""
    found = []
    for each in descendants(worker):
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{each}/cmdline").read_bytes():
                found.append(each)
    return found


def main(folder: Path, dsn: str, cluster: Path, workers: list[int]) -> None:
    """Sets up, changes, kills, and compares."""
    own = Path(gettempdir())
    load.LARGE_BYTES, lookup.SPLIT_KEYS, changed_rows.SPILL_ROWS = 0, 50, 200
    world = World(folder, dsn)
    world.fill()
    ran = Counter[str]()
    run = SparkWorkers.run

    def counted(self: SparkWorkers, tasks: Any, shared: Any) -> list[bytes]:
        ran[type(tasks[0]).__name__] += 1
        return run(self, tasks, shared)

    SparkWorkers.run = counted  # type: ignore[method-assign]
    seconds: dict[str, float] = {}
    began = time.monotonic()

    def took(what: str) -> None:
        seconds[what] = round(time.monotonic() - began, 1)

    with Project.open(folder) as project:
        project.setup()
        took("set up")
        world.note(0)
        world.crm.execute("UPDATE customer SET state = 'x' || cust_id % 3 WHERE cust_id < 300")
        world.captured(project)
        world.sell(500, 900)
        world.captured(project)
        project.run(once=True)
        took("large transactions")
        rows_at_driver(0)
        world.crm.execute("UPDATE customer SET state = 'k' WHERE cust_id % 5 = 0")
        world.captured(project)
        with killing(project, executors(workers[0])):
            project.run(once=True)
        took("an executor killed")
        world.shop.execute("DELETE FROM sales WHERE sale_id % 7 = 0")
        world.captured(project)
        with killing(project, [*executors(workers[1]), workers[1]]):
            project.run(once=True)
        took("a worker killed")
        rows_at_driver(1_000_000)
        secret = str(psycopg.conninfo.conninfo_to_dict(dsn)["password"])
        record = {
            "states": world.check_every_csn(project),
            "verified": all(verdict.is_right for verdict in project.verify()),
            "master": project.spark.sparkContext.master,
            "spread": ran,
            "refused": [
                refused(project, own / "lake" / "scratch" / "own", "rollview"),
                refused(project, folder / "tried" / "scratch" / "own", "sqlalchemy"),
                refused(project, folder / "again" / "scratch" / "own", PostgresSource.worker_module),
            ],
            "secret": places_of(secret, [folder, cluster, own]),
        }
        took("all")
    record["left"] = [each.name for each in (folder / "lake" / "scratch").iterdir() if each.is_dir()]
    sys.stdout.write(json.dumps({**record, "seconds": seconds}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), os.environ["CRM_DSN"], Path(sys.argv[2]), [int(each) for each in sys.argv[3:]])

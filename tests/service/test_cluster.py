"""Spark on a cluster of real processes that share nothing with the driver but the lake.

The second test, of real sizes and the commands as users type them, is for `make test-cluster`.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from on_cluster import VIEWS, executors

from rollview.project.project import Project
from servers.cluster import Cluster, spark_cluster
from servers.postgres import shared_server

pytestmark = pytest.mark.slow

_PROGRAM = Path(__file__).with_name("on_cluster.py")
_PASSWORD = "hunter2-of-the-crm"
_ROLLVIEW = [sys.executable, "-c", "from rollview.cli import main; main()"]
_CUSTOMERS, _SALES = 300_000, 100_000


@pytest.fixture
def driver_files(tmp_path: Path) -> Path:
    """Where the driver has its temporary files; no worker sees what is in it."""
    folder = tmp_path / "driver"
    folder.mkdir()
    return folder


@pytest.fixture
def cluster(tmp_path: Path, driver_files: Path) -> Iterator[Cluster]:
    with spark_cluster(tmp_path / "cluster", hidden=[driver_files]) as started:
        yield started


@pytest.fixture
def dsn() -> Iterator[str]:
    server = shared_server()
    server.create_database("on_cluster")
    yield server.dsn("on_cluster", password=_PASSWORD)
    server.drop_database("on_cluster")


def write_project(folder: Path, spark: Mapping[str, str]) -> None:
    settings = json.dumps(dict(spark))
    folder.mkdir()
    (folder / "views").mkdir()
    (folder / "rollview.yml").write_text(
        f"name: shop\nspark: {settings}\nsources:\n  shop: {{type: sqlite, path: ./shop.db}}\n"
        '  crm: {type: postgres, dsn: "${CRM_DSN}"}\n'
    )
    for name, sql in VIEWS.items():
        (folder / "views" / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {sql}")


def test_oracle_a_project_on_a_cluster_whose_workers_are_killed(
    tmp_path: Path, cluster: Cluster, driver_files: Path, dsn: str
) -> None:
    folder, events = tmp_path / "project", driver_files / "events"
    events.mkdir()
    # Secrets could be read in what Spark writes: it is not compressed here.
    plain = {f"spark.{each}.compress": "false" for each in ("shuffle", "broadcast", "rdd", "eventLog")}
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
    write_project(folder, {**cluster.settings(), **plain, **log})
    pids = [str(each.pid) for each in cluster.workers]
    environment = os.environ | {"TMPDIR": str(driver_files), "PYTHONWARNINGS": "ignore", "CRM_DSN": dsn}
    result = subprocess.run(
        [sys.executable, str(_PROGRAM), str(folder), str(cluster.folder), *pids],
        capture_output=True,
        text=True,
        timeout=500,
        env=environment,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-6000:]
    record = json.loads(result.stdout.strip().splitlines()[-1])
    assert record["master"] == cluster.url
    assert record["states"] == 10 and record["verified"], record
    assert record["spread"].keys() == {"_Part", "_KeyLookup"}, record
    elsewhere, lacking, right = record["refused"]
    assert "cannot read and write the lake" in elsewhere and "under this path" in elsewhere
    assert "cannot import" in lacking and "No module named 'sqlalchemy'" in lacking and not right
    assert record["secret"] == [], "the password of a source"
    assert record["left"] == []


class Machines:
    """`rollview run` as a process, and what it works on."""

    def __init__(self, folder: Path, environment: Mapping[str, str], dsn: str) -> None:
        self.folder, self.environment, self.dsn = folder, environment, dsn
        self.transactions = 0
        self.process: subprocess.Popen[bytes] | None = None

    def command(self, *words: str) -> str:
        """What a command prints."""
        done = subprocess.run(
            [*_ROLLVIEW, *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self) -> None:
        """Starts `rollview run`."""
        log = ["--log-file", str(self.folder / "log")]
        self.process = subprocess.Popen(
            [*_ROLLVIEW, "run", *log],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def end(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(300)

    def move(self, state: str) -> None:
        """One transaction that changes every customer."""
        with psycopg.connect(self.dsn) as connection:
            connection.execute("UPDATE customer SET state = %s || cust_id %% 7", (state,))
        self.transactions += 1

    def await_rows(self, where: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 900
        while not where():
            assert self.process is None or self.process.poll() is None, (self.folder / "log").read_text()[
                -3000:
            ]
            assert time.monotonic() < deadline, (self.folder / "log").read_text()[-3000:]
            time.sleep(0.1)

    def spilled(self) -> list[Path]:
        """Rows of a large transaction on their way."""
        return list((self.folder / "lake" / "scratch").rglob("*.parquet"))

    def is_shown(self) -> bool:
        """Whether all views show all transactions."""
        with Project.open(self.folder) as project:
            status = project.status()
        return {view.materialized for view in status.views} == {status.last_csn} == {self.transactions}


@pytest.mark.soak
def test_a_large_transaction_while_machines_and_the_driver_are_killed(
    tmp_path: Path, cluster: Cluster, driver_files: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project"
    monkeypatch.setenv("CRM_DSN", dsn)
    write_project(folder, cluster.settings())
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE customer (cust_id INT PRIMARY KEY, state TEXT)")
        connection.execute(f"INSERT INTO customer SELECT i, 's' FROM generate_series(1, {_CUSTOMERS}) i")
    with closing(sqlite3.connect(folder / "shop.db", isolation_level=None)) as shop:
        shop.execute("PRAGMA journal_mode=WAL")
        shop.execute("CREATE TABLE sales (sale_id INTEGER PRIMARY KEY, cust_id INT, amount INT)")
        shop.execute(
            f"WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {_SALES})"
            f" INSERT INTO sales SELECT i, i * 7 % {_CUSTOMERS}, i % 11 FROM n"
        )
    machines = Machines(folder, os.environ | {"TMPDIR": str(driver_files), "PYTHONWARNINGS": "ignore"}, dsn)
    machines.command("setup")
    machines.run()
    try:
        machines.move("a")
        machines.await_rows(machines.spilled)
        for victim in executors(cluster.workers[0].pid):
            os.kill(victim, signal.SIGKILL)
        machines.await_rows(machines.is_shown)
        machines.move("b")
        machines.await_rows(machines.spilled)
        cluster.kill_worker(1)
        cluster.start_worker()
        machines.await_rows(machines.is_shown)
        found = json.loads(machines.command("query", "SELECT sum(n) AS n FROM by_state", "--json"))
        assert found["rows"] == [{"n": _SALES}], found
        machines.move("c")
        machines.await_rows(machines.spilled)
        machines.end(signal.SIGKILL)
        assert machines.spilled()
        machines.run()
        machines.await_rows(machines.is_shown)
    finally:
        machines.end(signal.SIGTERM)
    assert machines.spilled() == []
    machines.command("verify")
    with psycopg.connect(dsn) as connection, closing(sqlite3.connect(folder / "shop.db")) as shop:
        rows = {
            "crm.customer": connection.execute("SELECT * FROM customer").fetchall(),
            "shop.sales": shop.execute("SELECT * FROM sales").fetchall(),
        }
    states = dict(rows["crm.customer"])
    expected = Counter(states[customer] for _, customer, _ in rows["shop.sales"] if customer in states)
    with Project.open(folder) as project:
        shown = project.read_stored("by_state")
    assert shown is not None and {row["state"]: row["n"] for row in shown.rows.to_pylist()} == expected

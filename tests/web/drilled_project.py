"""A project for an operator's drill: a real server that asks for a password, a lake on a small disk, a `run`
with page, log and metrics, and a clock that can be set.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import psycopg
from click.testing import CliRunner, Result
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from rollview.cli import main
from servers.postgres import PostgresServer

PASSWORD = "correct-horse-battery"
DATABASE = "crm"
VIEWS = {
    "sold": """SELECT s.sale_id, c.state, s.amount FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id""",
    # Its text is computed by Spark, so that there is one to kill.
    "states": "SELECT DISTINCT regexp_replace(state, '^s', '') AS state FROM crm.customer",
    "by_state": "SELECT state, count(*) AS n, sum(amount) AS total FROM sold GROUP BY state",
}
ROLLVIEW = """
import time
from pathlib import Path

shift, real = Path("shift"), time.time

def shifted():
    try:
        return real() + float(shift.read_text() or 0)
    except OSError:
        return real()

time.time = shifted
from rollview.catalog import database
from rollview.cli import main

database._BUSY_SECONDS = 3
main()
"""
"""The command, with a clock that is off by what the file `shift` says, and little patience with a lock."""
PATIENCE_SECONDS = 120.0


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A file system of 64 megabytes, where that can be had; whether it is one."""
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    is_small = mount is not None and not subprocess.run(command, capture_output=True, check=False).returncode
    try:
        yield is_small
    finally:
        if is_small:
            subprocess.run(["umount", str(folder)], check=True)


class DrilledProject:
    """The sources, the project's files, and the process that maintains it."""

    def __init__(self, folder: Path, server: PostgresServer, spark: SparkSession) -> None:
        self.folder, self.server, self.spark = folder, server, spark
        self.disk = folder / "disk"
        self.log = folder / "run.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self._sale = 0
        self._make_server()
        self.shop = sqlite3.connect(folder / "shop.db", isolation_level=None)
        self.shop.execute("PRAGMA journal_mode = WAL")
        self.shop.execute("CREATE TABLE sales (sale_id INTEGER PRIMARY KEY, cust_id INTEGER, amount INTEGER)")
        (folder / "views").mkdir()
        for name, text in VIEWS.items():
            self.view_file(name).write_text(text)
        dsn = f"postgresql://reader:${{CRM_PASSWORD}}@127.0.0.1:{server.port}/{DATABASE}"
        (folder / "rollview.yml").write_text(
            "name: drill\nspark: {master: 'local[2]', spark.sql.shuffle.partitions: '1'}\n"
            "lake: ./disk/lake\ncatalog: sqlite:///./catalog.db\n"
            f'sources:\n  crm: {{type: postgres, dsn: "{dsn}"}}\n  shop: {{type: sqlite, path: shop.db}}\n'
        )

    def _make_server(self) -> None:
        self.server.create_database(DATABASE)
        rules = self.server.folder / "data" / "pg_hba.conf"
        asked = "host all reader 127.0.0.1/32 scram-sha-256\n"
        rules.write_text(asked + rules.read_text())
        self.server.execute("SELECT pg_reload_conf()")
        self.server.execute(f"CREATE ROLE reader SUPERUSER LOGIN PASSWORD '{PASSWORD}'")
        self.server.execute("CREATE TABLE customer (cust_id INT PRIMARY KEY, state TEXT)", DATABASE)

    def view_file(self, name: str) -> Path:
        return self.folder / "views" / f"{name}.sql"

    def write(self) -> None:
        """A transaction at each source; each view shows both."""
        self._sale += 1
        self.shop.execute("INSERT INTO sales VALUES (?, ?, ?)", (self._sale, self._sale % 3, self._sale))
        change = (
            f"INSERT INTO customer VALUES ({self._sale % 3}, 's{self._sale}')"
            " ON CONFLICT (cust_id) DO UPDATE SET state = excluded.state"
        )
        self.server.execute(change, DATABASE)

    def sell(self) -> None:
        """A transaction at the file alone, for when the server is away."""
        self._sale += 1
        self.shop.execute("INSERT INTO sales VALUES (?, ?, ?)", (self._sale, self._sale % 3, self._sale))

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", ROLLVIEW, *arguments]

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a command beside `run`."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def type(self, *arguments: str) -> Result:
        """The same in this process, with a Spark that is there; the clock is right."""
        runner = CliRunner(env={"CRM_PASSWORD": PASSWORD})
        return runner.invoke(main, [*arguments, "--project", str(self.folder)], obj=self.spark)

    @contextmanager
    def running(self) -> Iterator[None]:
        """`rollview run` with page, metrics and log, until this is left; then it must end as it should."""
        said = self.folder / "said"
        arguments = ("run", "--ui", "0", "--log-format", "json", "--log-file", str(self.log))
        with said.open("wb") as stream:
            self.process = subprocess.Popen(
                self.command(*arguments), cwd=self.folder, env=_environment(), stdout=stream, stderr=stream
            )
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not (found := re.search(r"http://\S+", said.read_text())):
                assert time.monotonic() < deadline, said.read_text()
                assert self.process.poll() is None, said.read_text()
                time.sleep(0.1)
            self.url = found[0].rstrip("/")
            yield
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(60) == 0, said.read_text()
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()

    # What an operator sees

    def page(self) -> str:
        """What the first page says needs attention, as a reader sees it."""
        with urlopen(f"{self.url}/", timeout=30) as answer:
            text = answer.read().decode()
        (section,) = re.findall(r'<section id="matters".*?</section>', text, re.DOTALL)
        return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", section))).strip()

    def logged(self) -> list[dict[str, Any]]:
        """The lines of the log."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def metrics(self) -> dict[tuple[str, str], float]:
        """Samples by name and view, source or kind."""
        try:
            with urlopen(f"{self.url}/metrics", timeout=30) as answer:
                text = answer.read().decode()
        except URLError:
            return {}
        return {
            (each.name, next((each.labels[n] for n in ("view", "source", "kind") if n in each.labels), "")): (
                each.value
            )
            for family in text_string_to_metric_families(text)
            for each in family.samples
        }

    # What is right

    def expected(self) -> dict[str, list[tuple[Any, ...]]]:
        """The views, computed by hand from what the sources have."""
        with psycopg.connect(self.server.dsn(DATABASE)) as connection:
            states = dict(connection.execute("SELECT cust_id, state FROM customer").fetchall())
        sales = self.shop.execute("SELECT sale_id, cust_id, amount FROM sales").fetchall()
        sold = [(sale, states[who], amount) for sale, who, amount in sales if who in states]
        groups = {
            state: [amount for _, its, amount in sold if its == state] for state in {each[1] for each in sold}
        }
        by_state = [(state, len(amounts), sum(amounts)) for state, amounts in groups.items()]
        spelled = sorted({(state.removeprefix("s"),) for state in states.values()})
        return {"sold": sorted(sold), "states": spelled, "by_state": sorted(by_state)}

    def shown(self, view: str) -> list[tuple[Any, ...]]:
        """A view as `rollview read` gives it, in this process: it is asked for again and again."""
        # No Java: a read that starts a Spark of its own would say nothing about the process that runs.
        runner = CliRunner(env={"CRM_PASSWORD": PASSWORD, "JAVA_HOME": "/no/such/java"})
        read = runner.invoke(main, ["read", view, "--json", "--project", str(self.folder)])
        rows = json.loads(read.stdout)["rows"] if read.exit_code == 0 else []
        return sorted(tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in rows)


def _environment() -> dict[str, str]:
    return {**os.environ, "CRM_PASSWORD": PASSWORD}

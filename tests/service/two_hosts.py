"""Two hosts with one catalog on PostgreSQL and one lake, and a bank whose money is never more or less.

Each host is a pid namespace, so that neither sees whether the process of the other lives; it reaches the
catalog by a network of its own, which can fail.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from rollview.catalog import Catalog
from rollview.errors import LeaseHeld
from rollview.project.project import Project
from servers.postgres import PostgresServer
from servers.relay import Relay

ACCOUNTS = 50
PATIENCE_SECONDS = 120.0
VIEWS = {
    "total": "SELECT sum(a.balance) AS total, count(*) AS n FROM bank.account a",
    "accounts": """SELECT a.id, a.balance, a.moves, o.name FROM bank.account a
        JOIN bank.owner o ON o.id = a.owner_id""",
}

_AS_ROOT = ["--map-root-user"] if os.getuid() else []
NAMESPACE = ["unshare", *_AS_ROOT, "--pid", "--fork", "--kill-child", "--mount-proc"]
"""Runs a command where no other process is seen."""


class Host:
    """A host that runs `rollview run --standby`; `start` it again after a kill."""

    def __init__(self, name: str, folder: Path, catalog: str, port: int) -> None:
        self.name, self._folder = name, folder
        self.network = Relay(port)
        self._environment = {**os.environ, "CATALOG": self.network.address(catalog)}
        self._log = folder / f"{name}.log"
        self._seen = 0

    def start(self) -> None:
        """A new process."""
        command = [
            sys.executable,
            "-c",
            "from rollview.cli import main; main()",
            "run",
            "--standby",
            "--json",
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*NAMESPACE, *command],
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """As by a power cut."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """As a service is stopped."""
        os.kill(self._pid, signal.SIGTERM)
        self._process.wait()

    def pause(self) -> None:
        """It does nothing, and nobody is told."""
        os.kill(self._pid, signal.SIGSTOP)

    def resume(self) -> None:
        """It continues where it was paused."""
        os.kill(self._pid, signal.SIGCONT)

    def wait_for(self, *names: str) -> str:
        """The first of these events since the last that was waited for."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            lines = self._log.read_text(errors="replace").splitlines()
            for number, line in enumerate(lines[self._seen :], self._seen + 1):
                if line.startswith("{") and (event := json.loads(line)["event"]) in names:
                    self._seen = number
                    return str(event)
            assert self._process.poll() is None, self.said()
            time.sleep(0.05)
        raise AssertionError(f"{self.name} did not say any of {names}: {self.said()}")

    def said(self) -> str:
        """The end of what it said."""
        return self._log.read_text(errors="replace")[-3000:]

    def close(self) -> None:
        """Ends it."""
        self.kill()
        self.network.close()

    @property
    def _pid(self) -> int:
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return int(children.read_text().split()[0])


class Bank:
    """The database, those who transfer money, and what the views must show."""

    def __init__(self, folder: Path, server: PostgresServer, name: str) -> None:
        self.folder, self.dsn = folder, server.create_database(name)
        self.catalog_url = server.create_database(f"{name}_catalog")
        self._stopped = threading.Event()
        self._failures: list[BaseException] = []
        self.committed = 0
        with psycopg.connect(self.dsn) as connection:
            connection.execute("CREATE TABLE owner (id INT PRIMARY KEY, name TEXT)")
            connection.execute(
                "CREATE TABLE account (id INT PRIMARY KEY, owner_id INT, balance BIGINT, moves BIGINT)"
            )
            connection.execute("INSERT INTO owner SELECT i, 'owner ' || i FROM generate_series(0, 9) i")
            connection.execute(
                f"INSERT INTO account SELECT i, i % 10, 0, 0 FROM generate_series(0, {ACCOUNTS - 1}) i"
            )
        (folder / "views").mkdir(parents=True)
        for view, sql in VIEWS.items():
            (folder / "views" / f"{view}.sql").write_text(f"CREATE MATERIALIZED VIEW {view} AS {sql}")
        (folder / "rollview.yml").write_text(
            f"name: bank\ncatalog: ${{CATALOG}}\nspark: {{master: 'local[1]'}}\nsources:\n"
            f'  bank: {{type: postgres, dsn: "{self.dsn}", slot: {name}}}\n'
        )

    @contextmanager
    def busy(self, tellers: int) -> Iterator[None]:
        """Money is transferred while the context lasts."""
        threads = [threading.Thread(target=self._transfer, args=(seed,)) for seed in range(tellers)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            for thread in threads:
                thread.join()
        assert not self._failures, self._failures

    def _transfer(self, seed: int) -> None:
        chance = random.Random(seed)
        try:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                while not self._stopped.wait(chance.random() / 10):
                    one, other = sorted(chance.sample(range(ACCOUNTS), 2))
                    amount = chance.randint(-50, 50)
                    move = "UPDATE account SET balance = balance + %s, moves = moves + 1 WHERE id = %s"
                    with connection.transaction():
                        connection.execute(move, (amount, one))
                        connection.execute(move, (-amount, other))
                    self.committed += 1
        except BaseException as failure:
            self._failures.append(failure)

    def _take_in(self, project: Project) -> None:
        """Captures all, once the leases of those that were killed last are free."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                project.capture()
                return
            except LeaseHeld:
                assert time.monotonic() < deadline

    def judge(self, project: Project) -> None:
        """Every csn shows the same sum, and the last one what the database holds."""
        self._take_in(project)
        project.refresh(*VIEWS)
        shown = {(row["total"], row["n"]) for row in project.deltas("total").collect()}
        assert shown <= {(0, ACCOUNTS)}, shown
        with psycopg.connect(self.dsn) as connection:
            moved = connection.execute("SELECT id, balance, moves FROM account ORDER BY id").fetchall()
        held = project.read("accounts").select("id", "balance", "moves").orderBy("id").collect()
        assert [tuple(row) for row in held] == moved
        last = project.status().last_csn
        assert all(not each.different for each in project.verify())
        for csn in range(0, last + 1, max(1, last // 10)):
            assert sum(row["balance"] for row in project.read("accounts", as_of=csn).collect()) == 0


@contextmanager
def two_hosts(bank: Bank, server: PostgresServer) -> Iterator[tuple[Host, Host]]:
    """The one that works, and the one that stands by."""
    with ExitStack() as stack:
        hosts = tuple(Host(name, bank.folder, bank.catalog_url, server.port) for name in ("one", "other"))
        for host, first in zip(hosts, ("started", "standing_by"), strict=True):
            host.start()
            stack.callback(host.close)
            host.wait_for(first)
        yield hosts[0], hosts[1]


def kill(worker: Host) -> Callable[[], None]:
    """The holder is killed; the result has it come back."""
    worker.kill()
    return worker.start


def freeze(worker: Host) -> Callable[[], None]:
    """The holder is cut off the catalog, and nobody is told."""
    worker.network.freeze()
    return worker.network.cut


def pause(worker: Host) -> Callable[[], None]:
    """The holder is paused wherever it is."""
    worker.pause()
    return worker.resume


def stop(worker: Host) -> Callable[[], None]:
    """The holder is asked to stop, as for an update."""
    worker.stop()
    return worker.start


WAYS = (kill, pause, freeze, stop)


def take_over(
    worker: Host,
    standby: Host,
    way: Callable[[Host], Callable[[], None]],
    catalog: Catalog,
    is_last: bool = False,
) -> float:
    """Seconds from the failure of the one that works until the next csn is shown; then it stands by."""
    come_back = way(worker)
    shown, started = catalog.views.get("total").materialized_csn, time.monotonic()
    while catalog.views.get("total").materialized_csn == shown:
        assert time.monotonic() - started < PATIENCE_SECONDS, standby.said()
        time.sleep(0.02)
    seconds = time.monotonic() - started
    standby.wait_for("started")
    if not is_last:
        come_back()
        worker.wait_for("standing_by")
    return seconds

"""The stress test: writers on a PostgreSQL and a MariaDB, `rollview run` beside them, then a judgement.

    python benchmarks/stress.py --seconds 60
    python benchmarks/stress.py --seconds 60 --kills 3 --restarts 2
    python benchmarks/stress.py --seconds 60 --bank

`--kills` ends `rollview run` with SIGKILL that often, each time after it has done some work, and starts it
again; `--restarts` ends and starts each
server, half of the times with SIGKILL (a MariaDB with prepared transactions never). `--bank` moves money
between accounts in the two servers by global transactions; whatever any view ever showed, the sum must be
zero. Exit code 1 on any difference. The seed fixes what writers do, not how they interleave.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from stress_bank import Bank
from stress_shop import ShopOnServers
from stress_world import Oracle, Servers, Writers

from rollview import Project
from rollview.catalog import Catalog

WRITERS = 8
PATIENCE_SECONDS = 300.0
WRITERS_REST_AFTER_SECONDS = 20.0


class Stress:
    """One run: set up, write while `rollview run` works, judge."""

    def __init__(self, folder: Path, options: argparse.Namespace, seed: int) -> None:
        self.folder, self.options = folder, options
        self.chance = random.Random(seed)
        self.servers = Servers()
        self.world = (
            Bank(self.servers, seed, options.restarts > 0)
            if options.bank
            else ShopOnServers(self.servers, seed)
        )
        folder.mkdir()
        (folder / "views").mkdir()
        (folder / "rollview.yml").write_text(_PROJECT)
        for name, sql in self.world.views.items():
            # A step that is computed as a whole has no states in between to compare.
            kept = "TBLPROPERTIES ('rollview.refresh' = 'incremental')"
            text = f"CREATE MATERIALIZED VIEW {name} {kept} AS {sql}"
            (folder / "views" / f"{name}.sql").write_text(text)
        os.environ |= {"CRM_DSN": self.servers.dsns["crm"], "SHOP_DSN": self.servers.dsns["shop"]}
        first = {name: self._rows(name) for name in self.world.tables}
        self.oracle = Oracle(self.world.tables, self.world.views, first)
        self.log = (folder / "run.log").open("w+")

    def run(self) -> list[str]:
        """Everything; what is wrong."""
        with Project.open(self.folder) as project:
            project.setup()
        writers = Writers(self.world.works(WRITERS), self.options.pause)
        daemon = self._start_daemon()
        writers.start()
        try:
            daemon = self._disturb(daemon, writers)
        finally:
            writers.stop()
            daemon.terminate()
            try:
                daemon.wait(PATIENCE_SECONDS)
            finally:
                daemon.kill()
        report(f"{writers.committed} transactions in {self.options.seconds:g} s")
        with Project.open(self.folder) as project:
            return self._judge(project, writers.committed)

    def _disturb(self, daemon: subprocess.Popen[bytes], writers: Writers) -> subprocess.Popen[bytes]:
        """Lets the time pass, with kills and restarts spread over it."""
        ends = time.monotonic() + self.options.seconds
        disturbances = ["kill"] * self.options.kills
        disturbances += ["postgres", "mariadb"] * self.options.restarts
        self.chance.shuffle(disturbances)
        gap = self.options.seconds / (len(disturbances) + 1)
        for what in disturbances:
            time.sleep(gap * (0.5 + self.chance.random()))
            report(f"  {what}")
            if what == "kill":
                self._wait_for_work(daemon, writers)
                daemon.kill()
                daemon.wait()
                daemon = self._start_daemon()
            elif what == "postgres":
                self.servers.postgres.kill() if self.chance.random() < 0.5 else self.servers.postgres.stop()
                self.servers.postgres.start()
            else:
                # MariaDB 10.11 may lose a prepared XA transaction from its log when it is killed.
                is_kind = self.options.bank or self.chance.random() < 0.5
                self.servers.mariadb.stop() if is_kind else self.servers.mariadb.kill()
                self.servers.mariadb.start()
        while time.monotonic() < ends:
            self._check_alive(daemon)
            time.sleep(0.2)
        return daemon

    def _wait_for_work(self, daemon: subprocess.Popen[bytes], writers: Writers) -> None:
        """A process that is killed while Spark is still starting has nothing to lose.

        On a slow machine that takes long. Writers rest then, or the backlog would grow with every kill.
        """
        began = time.monotonic()
        while self._applied() == self.applied_at_start and time.monotonic() < began + PATIENCE_SECONDS:
            if time.monotonic() > began + WRITERS_REST_AFTER_SECONDS:
                writers.rest()
            self._check_alive(daemon)
            time.sleep(0.2)
        writers.go_on()

    def _applied(self) -> dict[str, int]:
        """The csn that each view shows."""
        catalog = Catalog.open(f"sqlite:///{self.folder / 'lake' / 'catalog.db'}")
        try:
            return {name: view.materialized_csn for name, view in catalog.views.all().items()}
        finally:
            catalog.close()

    def _check_alive(self, daemon: subprocess.Popen[bytes]) -> None:
        if daemon.poll() is not None:
            raise SystemExit(f"rollview ended unexpectedly:\n{Path(self.log.name).read_text()[-3000:]}")

    def _start_daemon(self) -> subprocess.Popen[bytes]:
        self.applied_at_start = self._applied()
        command = [str(Path(sys.executable).parent / "rollview"), "run", "--project", str(self.folder)]
        return subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def _judge(self, project: Project, committed: int) -> list[str]:
        shown = min(view.materialized for view in project.status().views)
        project.capture()
        last = project.refresh().csn
        status = project.status()
        report(f"csn {last}; the daemon had come to csn {shown}")
        wrong = [f"waits: {each}" for each in status.waiting]
        wrong += [f"verify: {verdict}" for verdict in project.verify() if not verdict.is_right]
        database = self.oracle.database(self.folder / "lake")
        wrong += [f"{name} has less than nothing" for name in self.oracle.negative(database, last)]
        self.oracle.show(database, last)
        for name in self.world.tables:
            names = ", ".join(self.oracle.columns(name))
            source, table = name.split(".")
            held = self.servers.rows(source, table, names)
            if Counter(database.execute(f"SELECT {names} FROM {name}").fetchall()) != held:
                wrong.append(f"the captured history of {name} does not add up to what the server holds")
        oldest = max(view.oldest for view in status.views)
        csns = self.chance.sample(range(oldest, last + 1), min(self.options.states, last + 1 - oldest))
        for csn in csns:
            self.oracle.show(database, csn)
            for view in self.world.views:
                expected = Counter(database.execute(f"SELECT * FROM {view}").fetchall())
                if _shown(project, view, csn) != expected:
                    wrong.append(f"{view} is wrong as of csn {csn}")
        if isinstance(self.world, Bank):
            wrong += self.world.judge(project, oldest, last)
        report(f"{committed} committed, {len(csns)} states compared")
        return wrong

    def _rows(self, name: str) -> Counter[Any]:
        source, table = name.split(".")
        columns = ", ".join(column.split()[0] for column in self.world.tables[name].split(", "))
        return self.servers.rows(source, table, columns)


def _shown(project: Project, view: str, csn: int) -> Counter[Any]:
    return Counter(tuple(row) for row in project.read(view, as_of=csn).collect())


_PROJECT = """name: stress
spark: {master: 'local[2]'}
sources:
  crm: {type: postgres, dsn: "${CRM_DSN}", slot: stress_crm, coordinators: [postgres]}
  shop: {type: mariadb, dsn: "${SHOP_DSN}"}
"""


def report(line: str) -> None:
    """One line for whoever watches."""
    print(line, flush=True)


def main() -> int:
    """Parses the arguments and runs; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--restarts", type=int, default=0)
    parser.add_argument("--bank", action="store_true")
    parser.add_argument("--states", type=int, default=50, help="how many states of every view are compared")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between a writer's transactions")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    report(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="rollview-stress-") as folder:
        stress = Stress(Path(folder) / "project", options, seed)
        try:
            wrong = stress.run()
        finally:
            stress.servers.close()
    for line in wrong:
        report(f"WRONG: {line}")
    report("views, history and verify agree" if not wrong else f"{len(wrong)} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Real kills: a process that maintains views is killed with SIGKILL at random moments, again and again.

Writers keep writing all the time, with plain sqlite3. The processes that are killed do different things: the
first load, `rollview run` with much compaction and pruning, reloads, refreshes, condensing. The next one
has started Spark already and continues where the killed one stopped. At the end everything is captured and
refreshed, and every view is compared with DuckDB at the csn it shows and at older ones. Every transaction
that was committed must have been captured on its own, but for those that are marked as merged.

    python benchmarks/kills.py --kills 200

Exit code 1 on any difference. The seed is printed; it fixes what is written and how long processes live, but
not where they are when they are killed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections import defaultdict
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "service"))

from shop import SCHEMAS, Shop, change, copied, shown  # noqa: E402

from rollview.catalog import Catalog  # noqa: E402
from rollview.project.project import Project  # noqa: E402

VIEWS = {
    "sales_by_state": """SELECT c.state, count(*) AS n, sum(s.amount) AS total FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id GROUP BY c.state""",
    "sold": """SELECT s.sale_id, c.state, p.kind, s.amount FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id JOIN shop.product p ON s.product_id = p.product_id""",
    "states_of_size": "SELECT n, count(*) AS states FROM sales_by_state GROUP BY n",
    "ranges": """SELECT c.state, min(s.amount) AS lo, max(s.amount) AS hi,
            count(DISTINCT s.product_id) AS kinds
        FROM crm.customer c LEFT JOIN shop.sales s ON s.cust_id = c.cust_id GROUP BY c.state""",
    "newest": """SELECT c.state, s.sale_id, s.amount FROM shop.sales s
            JOIN crm.customer c ON s.cust_id = c.cust_id
        QUALIFY row_number() OVER (PARTITION BY c.state ORDER BY s.sale_id DESC) <= 2""",
}
RETENTION = "{changes: 5s, deltas: 40s, files: 5s}"
LONGEST_LIFE_SECONDS = 6.0
PATIENCE_SECONDS = 180.0
READY, BEGUN = "ready", "begun"

Captured = dict[int, tuple[int, bool]]
"""By version the source txid of a captured transaction, and whether it may stand for several."""


class Writers:
    """A thread per database. Before each commit it keeps the state under the transaction's source txid."""

    def __init__(self, shop: Shop, seed: int, pause_seconds: float = 0.15) -> None:
        self.shop = shop
        self.pause_seconds = pause_seconds
        self.states: dict[str, dict[int, Any]] = {name: {} for name in SCHEMAS}
        self.troubles: list[Exception] = []
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(name, random.Random(f"{seed} {name}")))
            for name in SCHEMAS
        ]

    def start(self) -> None:
        """Begins to write."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends writing; a writer that met trouble says so."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        if self.troubles:
            raise self.troubles[0]

    def _write(self, name: str, chance: random.Random) -> None:
        try:
            connection = self.shop.connect(name)
            # Where transactions end is read from the WAL, which must last while nobody watches it.
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            while not self._stopped.wait(chance.random() * 2 * self.pause_seconds):
                connection.execute("BEGIN IMMEDIATE")
                for _ in range(chance.randint(1, 4)):
                    change(name, connection, chance)
                self.states[name][_counter(connection)] = copied(name, connection)
                connection.execute("COMMIT")
            connection.close()
        except Exception as trouble:
            self.troubles.append(trouble)


def _counter(connection: sqlite3.Connection) -> int:
    """The triggers' count: the source txid of the transaction that is about to commit; 0 before set-up."""
    with suppress(sqlite3.OperationalError):
        return int(connection.execute("SELECT version FROM _rollview_version").fetchone()[0])
    return 0


class Victim:
    """A process that waits, with Spark started, for its deed, and then to be killed."""

    def __init__(self, folder: Path, seed: int) -> None:
        command = [sys.executable, __file__, "--victim", str(folder), "--seed", str(seed)]
        self.log = (folder / f"victim-{seed}.log").open("w+")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=self.log,
            text=True,
            start_new_session=True,
        )

    def begin(self, deed: str) -> None:
        """Waits for Spark, then lets the process begin, and waits until it has."""
        self._wait_for(READY)
        assert self.process.stdin is not None
        self.process.stdin.write(f"{deed}\n")
        self.process.stdin.flush()
        self._wait_for(BEGUN)

    def _wait_for(self, word: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while word not in self.output():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"a process is not {word}:\n{self.output()}")
            time.sleep(0.05)

    def output(self) -> str:
        """All that the process has said."""
        return Path(self.log.name).read_text(encoding="utf-8")

    def kill(self, with_spark: bool) -> str:
        """Kills it, with or without its JVM; what it said, if it had ended before in trouble."""
        ended = self.process.poll() is not None
        if with_spark:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait()
        self.log.close()
        return self.output() if ended else ""


def victim(folder: Path, seed: int) -> None:
    """What the killed processes do, until they are killed."""
    from rollview.lake import maintenance as files  # noqa: PLC0415
    from rollview.maintain import retry  # noqa: PLC0415
    from rollview.run import run  # noqa: PLC0415
    from rollview.sources.sqlite.watch import CommitWatch  # noqa: PLC0415
    from rollview.upkeep import maintenance  # noqa: PLC0415

    run.MAINTAIN_SECONDS, retry.POLL_SECONDS, maintenance.MANY_FILES, files._FEWEST = 0.5, 0.05, 4, 2
    # WALs start over many times, so that what is known of their transactions has to last.
    CommitWatch.__init__.__defaults__ = (600.0, 1.0, 200, 800)  # type: ignore[attr-defined]
    chance = random.Random(seed)
    with Project.open(folder) as project:
        project.spark.range(10).count()
        report(READY)
        deed = sys.stdin.readline().strip()
        if deed != "load" and set(project.views) != VIEWS.keys():
            project.setup()
        report(BEGUN)
        while deed == "load":
            project.setup([chance.choice(list(VIEWS))] if project.views else None)
        if deed == "run":
            project.run()
        while True:
            _roll_about(project, chance)


def _roll_about(project: Project, chance: random.Random) -> None:
    """Refreshes to some time, condenses what lies behind, tidies up."""
    project.capture()
    status = project.status()
    shown_now = max(view.materialized for view in status.views)
    project.refresh(to=chance.randint(shown_now, status.last_csn))
    view = next(view for view in project.status().views if view.name == "states_of_size")
    start, end = sorted(chance.choices(range(view.oldest, view.materialized + 1), k=2))
    with suppress(Exception):
        project.condense(view.name, start, end)
    project.maintain()


class Campaign:
    """Kills, then judges."""

    def __init__(self, folder: Path, kills: int, seed: int) -> None:
        self.folder, self.kills, self.seed = folder, kills, seed
        self.chance = random.Random(seed)
        self.shop = Shop(folder, VIEWS)
        self.shop.write_project(retention=RETENTION)
        for _ in range(20):
            self.shop.transact()
        self.writers = Writers(self.shop, seed)
        self.captured: defaultdict[tuple[str, str], Captured] = defaultdict(dict)

    def run(self) -> list[str]:
        """All kills, then what is wrong."""
        self.writers.start()
        try:
            waiting = Victim(self.folder, self.seed * 1000)
            for number in range(self.kills):
                present, deed = waiting, self._deed(number)
                present.begin(deed)
                died_at = time.monotonic() + self.chance.random() * LONGEST_LIFE_SECONDS
                waiting = Victim(self.folder, self.seed * 1000 + number + 1)
                time.sleep(max(0.0, died_at - time.monotonic()))
                trouble = present.kill(with_spark=self.chance.random() < 0.7)
                self._note_captured()
                report(f"kill {number + 1:3} of {self.kills}: {deed:8} csn {self._csn()}")
                if trouble:
                    return [f"a process ended unexpectedly ({deed}):\n{trouble}"]
            waiting.kill(with_spark=True)
        finally:
            self.writers.stop()
        with Project.open(self.folder) as project:
            return self._judge(project)

    def _deed(self, number: int) -> str:
        return "load" if number < 3 else self.chance.choice(["run", "run", "refresh", "load"])

    def _csn(self) -> int:
        file = self.folder / "lake" / "catalog.db"
        if not file.exists():
            return 0
        catalog = Catalog.open(f"sqlite:///{file}")
        try:
            return catalog.history.last_csn()
        finally:
            catalog.close()

    def _note_captured(self) -> None:
        """What has been captured since the last look, before maintenance forgets it."""
        file = self.folder / "lake" / "catalog.db"
        if not file.exists():
            return
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True)) as catalog:
            tables = {name for (name,) in catalog.execute("SELECT name FROM sqlite_schema")}
            if "part" not in tables:
                return
            histories = dict(catalog.execute("SELECT site, min(history) FROM captured_table GROUP BY site"))
            for site, *part in catalog.execute("SELECT site, version, source_txid, is_merged FROM part"):
                version, source_txid, is_merged = part
                self.captured[site, histories.get(site, "")][version] = (source_txid, bool(is_merged))

    def _judge(self, project: Project) -> list[str]:
        """Everything that is not as it should be."""
        project.setup()
        project.capture()
        self._note_captured()
        last = project.refresh().csn
        wrong = [f"{site}: {why}" for site in SCHEMAS if (why := self._miscounted(project, site))]
        wrong += [f"unfinished: {what}" for what in project.status().unfinished]
        compared = 0
        for view in project.status().views:
            if view.materialized != last:
                wrong.append(f"{view.name} shows csn {view.materialized}, not {last}")
            if shown(project, view.name) != self.shop.expected_now(view.name):
                wrong.append(f"{view.name} is wrong at csn {last}, the present")
            readable = _readable(project, view.name, view.oldest, last)
            for csn in self.chance.sample(readable, min(8, len(readable))):
                if (states := self._states(project, csn)) is None:
                    continue
                compared += 1
                if shown(project, view.name, csn) != self.shop.answer(view.name, states):
                    wrong.append(f"{view.name} is wrong as of csn {csn}")
        wrong += [f"verify: {verdict}" for verdict in project.verify() if not verdict.is_right]
        report(f"{last} transactions captured, {compared} older states compared")
        return wrong

    def _miscounted(self, project: Project, site: str) -> str:
        """Why what was captured cannot be what was committed; empty if it can."""
        catalog = project._warehouse.catalog
        site_now, history = (
            catalog.captured.sites()[site],
            min(
                catalog.captured.histories()[name].id
                for name, table in catalog.captured.tables().items()
                if table.site == site
            ),
        )
        found = self.shop.connections[site].execute(
            "SELECT version FROM _rollview_cuts WHERE typeof(origin) = 'text'"
        )
        captured = self.captured[site, history]
        unseen = site_now.merged - sum(is_merged for _, is_merged in captured.values())
        commits = sorted(source_txid for source_txid in self.writers.states[site] if source_txid)
        if not commits:
            # Every kill came before capture was set up for the first time.
            return f"{site_now.version} captured, none committed since setup" if site_now.version else ""
        reasons = [_wrong_count(captured, commits, start, unseen) for (start,) in found]
        if int(site_now.log_position.partition("@")[0]) != commits[-1]:
            return f"captured up to {site_now.log_position}, committed up to {commits[-1]}"
        if max(captured) != site_now.version:
            return f"{site_now.version} captured, the last one that is known is {max(captured)}"
        marked = f"{site_now.merged} of {site_now.version} captured transactions may stand for several"
        report(f"{site}: {marked}")
        return "" if "" in reasons else f"{marked}; {'; or '.join(reasons)}"

    def _states(self, project: Project, csn: int) -> dict[str, Any] | None:
        """The state of every site at a csn, by the captured source txids; None where one has none yet."""
        catalog = project._warehouse.catalog
        states = {}
        for site in SCHEMAS:
            version = catalog.history.version_at(site, csn)
            source_txids = {
                at: source_txid
                for source_txid, at in catalog.history.source_txids(site)
                .versions(self.writers.states[site])
                .items()
            }
            if version not in source_txids:
                return None
            states[site] = self.writers.states[site][source_txids[version]]
        return states


def _wrong_count(captured: Captured, commits: list[int], start: int, unseen: int) -> str:
    """Why captured transactions are not those that were committed after a start; empty if they are.

    One that is marked stands for one or several, every other one for exactly one. Those that were forgotten
    before anybody saw them are counted together, where none of them can be marked.
    """
    before, before_txid = 0, start
    for version, (source_txid, is_merged) in sorted(captured.items()):
        committed = bisect_right(commits, source_txid) - bisect_right(commits, before_txid)
        number = version - before
        may_be_more = is_merged or (number > 1 and unseen > 0)
        if committed < number or (committed > number and not may_be_more):
            return f"from {start}: {number} captured up to {source_txid}, but {committed} committed"
        before, before_txid = version, source_txid
    return ""


def _readable(project: Project, view: str, oldest: int, last: int) -> list[int]:
    condensed = project._warehouse.catalog.views.condensed(view)
    return [
        csn for csn in range(oldest, last + 1) if not any(each.after < csn < each.upto for each in condensed)
    ]


def report(line: str) -> None:
    """One line for whoever watches."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Parses the arguments and runs the campaign; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(
        description="Kills a maintaining process many times and judges the views."
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--victim", type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    if options.victim is not None:
        victim(options.victim, seed)
    report(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="rollview-kills-") as folder:
        wrong = Campaign(Path(folder) / "shop", options.kills, seed).run()
    for line in wrong:
        report(f"WRONG: {line}")
    report("views, counts and verify agree" if not wrong else f"{len(wrong)} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

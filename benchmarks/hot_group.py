"""Eight writers that all change one group of a view, under each policy: what the view costs them.

    python benchmarks/hot_group.py --seconds 10 --work 5

Every transaction adds a sale for a customer of one state, does something else for a while (`--work`, in
milliseconds, as a program does that talks to others before it commits), and commits, on a server that waits
for its disk. The policies take turns, `--rounds` times, so that a busy machine is unfair to none. Nobody
reads the log meanwhile: what is measured is what writers wait for, not what a busy machine has left for them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import threading
import time
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import psycopg

from rollview import Project

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from servers.postgres import PostgresServer

POLICIES = ("none", "deferred", "ipda", "immediate")
VIEW = """SELECT c.state, count(*) AS n, sum(s.amount) AS total
    FROM db.sales s JOIN db.customer c ON s.cust_id = c.cust_id GROUP BY c.state"""
CUSTOMERS = 10_000
WRITERS = 8


class HotGroup:
    """A database per policy, all on one server, each with its project."""

    def __init__(self, folder: Path, server: PostgresServer, work: float) -> None:
        self.work = work
        self.numbers = itertools.count(1)
        self.dsns: dict[str, str] = {}
        for policy in POLICIES:
            self.dsns[policy] = dsn = server.create_database(f"hot_{policy}")
            with psycopg.connect(dsn) as connection:
                connection.execute("CREATE TABLE customer (cust_id INT PRIMARY KEY, state TEXT)")
                connection.execute("CREATE TABLE sales (sale_id INT PRIMARY KEY, cust_id INT, amount INT)")
                connection.execute("CREATE INDEX ON sales (cust_id)")
                connection.execute(
                    "INSERT INTO customer SELECT n, 'WI' FROM generate_series(1, %s) n", (CUSTOMERS,)
                )
            if policy != "none":
                self._set_up(folder / policy, dsn, policy)

    def _set_up(self, folder: Path, dsn: str, policy: str) -> None:
        (folder / "views").mkdir(parents=True)
        (folder / "rollview.yml").write_text(
            f'name: hot\nspark: {{master: "local[2]"}}\nsources:\n  db: {{type: postgres, dsn: "{dsn}"}}\n'
        )
        (folder / "views" / "state_count.sql").write_text(
            f"CREATE MATERIALIZED VIEW state_count TBLPROPERTIES ('rollview.policy' = '{policy}') AS {VIEW}"
        )
        with Project.open(folder) as project:
            project.setup()

    def run(self, policy: str, seconds: float) -> list[float]:
        """Lets the writers work for a while; how long each transaction took."""
        end, found = time.monotonic() + seconds, list[float]()

        def write() -> None:
            with psycopg.connect(self.dsns[policy]) as connection:
                while time.monotonic() < end:
                    number, began = next(self.numbers), time.monotonic()
                    connection.execute(
                        "INSERT INTO sales VALUES (%s, %s, 1)", (number, 1 + number % CUSTOMERS)
                    )
                    time.sleep(self.work / 1000)
                    connection.commit()
                    found.append(time.monotonic() - began)

        threads = [threading.Thread(target=write) for _ in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found


def main() -> int:
    """Measures, prints a table, and keeps the figures if asked to; 1 if ipda is not worth it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each policy in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=float, default=5.0, help="milliseconds between INSERT and COMMIT")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    taken: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    server = PostgresServer(durable=True)
    server.start()
    try:
        with TemporaryDirectory() as folder:
            hot = HotGroup(Path(folder), server, options.work)
            for policy in POLICIES:
                hot.run(policy, 1.0)
            for _ in range(options.rounds):
                for policy in POLICIES:
                    taken[policy] += hot.run(policy, options.seconds)
    finally:
        server.remove()
    seconds = options.seconds * options.rounds
    rates = {policy: len(each) / seconds for policy, each in taken.items()}
    print(f"{WRITERS} writers, one group, {options.work:g} ms of other work in each transaction")
    print(f"{'policy':<10} {'tx/s':>8} {'of none':>8} {'median ms':>10} {'p95 ms':>8}")
    for policy, each in taken.items():
        late = quantiles(each, n=20)[-1]
        share = rates[policy] / rates["none"]
        print(
            f"{policy:<10} {rates[policy]:>8.0f} {share:>7.0%} {1e3 * median(each):>10.1f} {1e3 * late:>8.1f}"
        )
    ratio = rates["ipda"] / rates["immediate"]
    print(f"ipda lets {ratio:.1f} times as many through as immediate")
    if options.json:
        options.json.write_text(json.dumps({"work_ms": options.work, "tx_per_second": rates}, indent=2))
    return 0 if ratio >= 3 else 1


if __name__ == "__main__":
    sys.exit(main())

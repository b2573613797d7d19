"""A PostgreSQL under load: how fresh a view is, what it costs the source, and what `REFRESH` would cost.

    python benchmarks/live_postgres.py --scale 1 --rate 100 --seconds 60

TPC-H is loaded into a PostgreSQL of our own. Writers commit new, changed and cancelled orders at a fixed
rate, alone and with `rollview run` maintaining a join-aggregate view, in turn; once rollview runs at low
priority, as if it had a machine of its own. Measured
are the writers' latencies, how far the view is behind (sampled), rows that the server read per changed row,
how fast a backlog is worked off, and `REFRESH MATERIALIZED VIEW` of the same view.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import random
import re
import subprocess
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path
from statistics import mean, median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import psycopg
from tpch_data import generate

from rollview import Project

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from servers.postgres import PostgresServer

TABLES = {
    "customer": "c_custkey BIGINT PRIMARY KEY, c_nationkey BIGINT, c_mktsegment TEXT",
    "nation": "n_nationkey BIGINT PRIMARY KEY, n_name TEXT",
    "orders": "o_orderkey BIGINT PRIMARY KEY, o_custkey BIGINT, o_orderdate DATE",
    "lineitem": """l_orderkey BIGINT, l_linenumber BIGINT, l_extendedprice NUMERIC(15,2),
        l_discount NUMERIC(15,2), PRIMARY KEY (l_orderkey, l_linenumber)""",
}
VIEW = """SELECT n.n_name, count(*) AS n, sum(l.l_extendedprice * (1 - l.l_discount)) AS revenue
    FROM tpch.customer c JOIN tpch.orders o ON c.c_custkey = o.o_custkey
    JOIN tpch.lineitem l ON l.l_orderkey = o.o_orderkey
    JOIN tpch.nation n ON c.c_nationkey = n.n_nationkey
    WHERE o.o_orderdate >= DATE '1994-01-01' AND o.o_orderdate < DATE '1996-01-01' GROUP BY n.n_name"""
READ = "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables"
WRITERS = 4
LINES = 4


class Writers:
    """Commits at a fixed rate and measures how long each transaction took."""

    def __init__(self, dsn: str, rate: float, customers: int, last_key: int) -> None:
        self.dsn, self.rate, self.customers, self.last_key = dsn, rate, customers, last_key
        self.latencies: list[float] = []
        self.changed = 0
        self.new_keys = itertools.count(1)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begins a new measurement."""
        self.latencies, self.changed = [], 0
        self._stop.clear()
        self._threads = [threading.Thread(target=self._write, args=(each,)) for each in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends it."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self, number: int) -> None:
        chance = random.Random(number)
        every, due = WRITERS / self.rate, time.monotonic()
        with psycopg.connect(self.dsn) as connection:
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                due += every * 2 * chance.random()
                started = time.perf_counter()
                self.changed += self._transaction(connection, chance, number)
                connection.commit()
                self.latencies.append(time.perf_counter() - started)

    def _transaction(self, connection: psycopg.Connection[Any], chance: random.Random, number: int) -> int:
        kind, key = chance.random(), chance.randrange(1, self.last_key)
        if kind < 0.5:
            key = self.last_key + next(self.new_keys) * WRITERS + number
            connection.execute(
                "INSERT INTO orders VALUES (%s, %s, DATE '1994-01-01' + %s::int)",
                (key, chance.randint(1, self.customers), chance.randint(0, 900)),
            )
            for line in range(LINES):
                values = (key, line, chance.randint(100, 90000), chance.choice([0, 0.05, 0.1]))
                connection.execute("INSERT INTO lineitem VALUES (%s, %s, %s, %s)", values)
            return LINES + 1
        if kind < 0.8:
            statement = "UPDATE lineitem SET l_discount = 0.07 WHERE l_orderkey = %s"
            return max(0, connection.execute(statement, (key,)).rowcount)
        if kind < 0.95:
            lines = connection.execute("DELETE FROM lineitem WHERE l_orderkey = %s", (key,)).rowcount
            return lines + connection.execute("DELETE FROM orders WHERE o_orderkey = %s", (key,)).rowcount
        values = (chance.randint(0, 24), chance.randint(1, self.customers))
        return connection.execute(
            "UPDATE customer SET c_nationkey = %s WHERE c_custkey = %s", values
        ).rowcount


class Bench:
    """One server, one project, the phases."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.options = folder, options
        self.server = PostgresServer({"shared_buffers": "1GB", "max_wal_size": "8GB"}, durable=True)
        self.server.start()
        self.dsn = self.server.create_database("tpch")
        self._load(options.data, options.scale)
        (folder / "views").mkdir()
        (folder / "views" / "revenue.sql").write_text(f"CREATE MATERIALIZED VIEW revenue AS {VIEW}")
        (folder / "rollview.yml").write_text(
            "name: tpch\nspark: {master: 'local[2]'}\nsources:\n"
            '  tpch: {type: postgres, dsn: "${TPCH_DSN}"}\n'
        )
        os.environ["TPCH_DSN"] = self.dsn
        customers, last_key = round(150_000 * options.scale), round(6_000_000 * options.scale)
        self.writers = Writers(self.dsn, options.rate, customers, last_key)

    def _load(self, data: Path, scale: float) -> None:
        files = generate(data, scale, tuple(TABLES))
        with psycopg.connect(self.dsn) as connection:
            for table, columns in TABLES.items():
                connection.execute(f"CREATE TABLE {table} ({columns})")
                names = re.findall(r"([a-z]_\w+) [A-Z]", columns)
                several = (files / table).is_dir()
                where = f"{files}/{table}/*.parquet" if several else f"{files}/{table}.parquet"
                rows = duckdb.sql(f"SELECT {', '.join(names)} FROM read_parquet('{where}')")
                with TemporaryDirectory() as scratch:
                    rows.write_csv(f"{scratch}/rows.csv", header=False)
                    with (
                        Path(f"{scratch}/rows.csv").open("rb") as source,
                        connection.cursor().copy(f"COPY {table} ({', '.join(names)}) FROM STDIN CSV") as copy,
                    ):
                        while chunk := source.read(1 << 20):
                            copy.write(chunk)
            connection.execute("CREATE INDEX ON orders (o_custkey)")
            connection.commit()
            connection.autocommit = True
            connection.execute("VACUUM ANALYZE")

    def run(self) -> dict[str, Any]:
        """All phases; what was measured."""
        result: dict[str, Any] = {"scale": self.options.scale, "rate": self.options.rate}
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE MATERIALIZED VIEW revenue AS {VIEW.replace('tpch.', '')}")
            started = time.perf_counter()
            connection.execute("REFRESH MATERIALIZED VIEW revenue")
            result["refresh_materialized_view_seconds"] = round(time.perf_counter() - started, 3)
        self._alone()
        with Project.open(self.folder) as project:
            started = time.perf_counter()
            project.setup()
            result["first_load_seconds"] = round(time.perf_counter() - started, 1)
        alone = [self._alone()]
        result["together"] = self._together(0)
        alone.append(self._alone(captured=True))
        result["together_at_low_priority"] = self._together(19)
        alone.append(self._alone(captured=True))
        result["alone"] = alone
        for measure in ("mean_ms", "median_ms"):
            before = mean(each[measure] for each in alone)
            for phase in ("together", "together_at_low_priority"):
                percent = round(100 * (result[phase][measure] / before - 1), 1)
                result[phase][f"slow_down_of_{measure[:-3]}_percent"] = percent
        result["backlog"] = self._backlog()
        return result

    def _alone(self, captured: bool = False) -> dict[str, Any]:
        """Only the writers. A slot keeps the log for a daemon that is not there."""
        self.writers.start()
        time.sleep(self.options.seconds / 2)
        self.writers.stop()
        return {"captured_later": captured, **self._latencies()}

    def _latencies(self) -> dict[str, Any]:
        taken = self.writers.latencies
        cuts = quantiles(taken, n=100)
        return {
            "transactions": len(taken),
            "mean_ms": round(1000 * mean(taken), 3),
            "median_ms": round(1000 * median(taken), 3),
            "p99_ms": round(1000 * cuts[98], 3),
        }

    def _together(self, nice: int) -> dict[str, Any]:
        """With the daemon; it shares two cores with server and writers, unless it gives way to both."""
        program = str(Path(sys.executable).parent / "rollview")
        command = ["nice", "-n", str(nice), program, "run", "--project", str(self.folder)]
        with (self.folder / "run.log").open("w") as log:
            daemon = subprocess.Popen(command, stdout=log, stderr=log)
        behind: list[float] = []
        with Project.open(self.folder) as project:
            self._caught_up(project)
            read_before, csn_before = self._rows_read(), project.status().views[0].materialized
            self.writers.start()
            ends = time.monotonic() + self.options.seconds
            time.sleep(2)
            while time.monotonic() < ends:
                behind.append(project.status().views[0].lag_seconds)
                time.sleep(0.25)
            status = project.status()
            self.writers.stop()
            result = self._latencies()
            result["propagated_per_second"] = round(
                (status.views[0].materialized - csn_before) / self.options.seconds, 1
            )
            self._caught_up(project)
        read = self._rows_read() - read_before
        daemon.terminate()
        daemon.wait(60)
        cuts = quantiles(behind, n=100)
        return result | {
            "staleness_p50_seconds": round(median(behind), 2),
            "staleness_p99_seconds": round(cuts[98], 2),
            "changed_rows": self.writers.changed,
            "rows_read_per_changed_row": round(read / self.writers.changed, 2),
        }

    def _caught_up(self, project: Project) -> None:
        """Until the view shows a transaction that is made here, and nothing else is left."""
        before = project.status().last_csn
        with psycopg.connect(self.dsn) as connection:
            connection.execute("UPDATE customer SET c_nationkey = (c_nationkey + 1) % 25 WHERE c_custkey = 1")
        calm, deadline = 0, time.monotonic() + 300
        while calm < 4 and time.monotonic() < deadline:
            status = project.status()
            is_calm = status.last_csn > before and status.views[0].behind_csn == 0
            calm = calm + 1 if is_calm else 0
            time.sleep(0.5)

    def _rows_read(self) -> int:
        with psycopg.connect(self.dsn) as connection:
            time.sleep(1.5)  # The server gathers its statistics once a second.
            row = connection.execute(READ).fetchone()
            return int(row[0]) if row else 0

    def _backlog(self) -> dict[str, Any]:
        """The writers' last half minute is still to be captured; then everything must agree."""
        with Project.open(self.folder) as project:
            project.spark.range(1).collect()
            before, started = project.status().views[0].materialized, time.perf_counter()
            project.run(once=True)
            seconds = time.perf_counter() - started
            csn = project.status().views[0].materialized
            assert all(verdict.is_right for verdict in project.verify())
        return {
            "transactions": csn - before,
            "seconds": round(seconds, 2),
            "transactions_per_second": round((csn - before) / seconds, 1),
        }


def main() -> None:
    """Runs, prints and writes the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rate", type=float, default=100.0, help="transactions a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--data", type=Path, default=Path("benchmarks/data"), help="for TPC-H files")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/live_postgres.json"))
    options = parser.parse_args()
    options.data = options.data.absolute()
    with TemporaryDirectory(prefix="rollview-live-") as folder:
        bench = Bench(Path(folder), options)
        try:
            result = bench.run()
            with psycopg.connect(bench.dsn) as connection:
                result["server"] = f"PostgreSQL {connection.info.parameter_status('server_version')}"
        finally:
            bench.server.remove()
    result |= {
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("pyspark", "deltalake", "psycopg")},
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

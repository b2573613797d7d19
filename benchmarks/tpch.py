"""The benchmark of the main job: propagate and apply against recomputing, on TPC-H.

    python benchmarks/tpch.py --scale 1 --scale 10

Per batch of 0.01 %, 0.1 % and 1 % of orders and line items, three views are maintained by rollview,
recomputed and written by Spark in the same session, and recomputed by DuckDB from the same Parquet files.
Every state is compared with DuckDB's. The result, with a profile per phase, goes to a file beside the
printed table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from tpch_data import Refresh, as_delta, files_of, generate

from rollview import Project
from rollview.bags import PlacedBag
from rollview.lake import LakeTable
from rollview.sources.delta import DeltaSource

VIEWS = {
    "q3": """SELECT l.l_orderkey, sum(l.l_extendedprice * (1 - l.l_discount)) AS revenue,
          o.o_orderdate, o.o_shippriority
        FROM tpch.customer c
        JOIN tpch.orders o ON c.c_custkey = o.o_custkey
        JOIN tpch.lineitem l ON l.l_orderkey = o.o_orderkey
        WHERE c.c_mktsegment = 'BUILDING' AND o.o_orderdate < DATE '1995-03-15'
          AND l.l_shipdate > DATE '1995-03-15'
        GROUP BY l.l_orderkey, o.o_orderdate, o.o_shippriority""",
    "q5": """SELECT n.n_name, sum(l.l_extendedprice * (1 - l.l_discount)) AS revenue
        FROM tpch.customer c
        JOIN tpch.orders o ON c.c_custkey = o.o_custkey
        JOIN tpch.lineitem l ON l.l_orderkey = o.o_orderkey
        JOIN tpch.nation n ON c.c_nationkey = n.n_nationkey
        WHERE o.o_orderdate >= DATE '1994-01-01' AND o.o_orderdate < DATE '1995-01-01'
        GROUP BY n.n_name""",
    "q1": """SELECT l.l_returnflag, l.l_linestatus, sum(l.l_quantity) AS sum_qty,
          sum(l.l_extendedprice) AS sum_base_price,
          sum(l.l_extendedprice * (1 - l.l_discount)) AS sum_disc_price,
          avg(l.l_quantity) AS avg_qty, count(*) AS count_order
        FROM tpch.lineitem l WHERE l.l_shipdate <= DATE '1998-09-02'
        GROUP BY l.l_returnflag, l.l_linestatus""",
}
TABLES = ("customer", "nation", "orders", "lineitem")
SHARES = (0.0001, 0.001, 0.01)
REPEATS = 3
PROFILE: dict[str, float] = {}
"""Where time goes, in seconds added up over all threads: asking sources, Spark jobs, reading, writing."""


def _profiled(owner: type, method: str, label: str) -> None:
    original = getattr(owner, method)

    def measured(*arguments: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return original(*arguments, **options)
        finally:
            PROFILE[label] = PROFILE.get(label, 0.0) + time.perf_counter() - started

    setattr(owner, method, measured)


_profiled(DeltaSource, "lookup", "ask sources")
_profiled(PlacedBag, "collect_if_small", "Spark jobs")
_profiled(LakeTable, "load", "read lake")
_profiled(LakeTable, "append", "write deltas")
_profiled(LakeTable, "replace", "write views")


class Bench:
    """One scale: its tables, its project, its measurements."""

    def __init__(self, folder: Path, scale: float) -> None:
        self.scale = scale
        self.folder = folder / f"work-{scale:g}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.tables = as_delta(generate(folder, scale, TABLES), self.folder / "tables", {"tpch": TABLES})
        self.seconds: dict[str, float] = {}
        lines = ["name: tpch", "spark: {master: 'local[2]', spark.driver.memory: 8g}"]
        lines += ["sources:", "  tpch: {type: delta, path: ./tables/tpch}", "views: ['views/*.sql']"]
        (self.folder / "rollview.yml").write_text("\n".join(lines) + "\n")
        (self.folder / "views").mkdir()
        for name, sql in VIEWS.items():
            (self.folder / "views" / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {sql}")

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measures a phase."""
        started = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def run(self, shares: tuple[float, ...]) -> list[dict[str, Any]]:
        """All batches, the smallest first; one more at the beginning that is not counted warms up."""
        results = []
        with Project.open(self.folder) as project:
            with self.phase("first load"):
                project.setup()
            first_load = self.seconds["first load"]
            print(f"scale {self.scale:g}: first load {first_load:.1f} s", file=sys.stderr, flush=True)
            refresh = Refresh(self.tables, self.scale)
            refresh.batch(shares[0])
            self._maintain(project)
            fixed = self._fixed_cost(project, refresh)
            print(f"scale {self.scale:g}: {json.dumps(fixed)}", file=sys.stderr, flush=True)
            for share in shares:
                result = self._measure(project, share, refresh)
                result |= {"first_load_seconds": round(first_load, 2), **fixed}
                results.append(result)
                print(json.dumps(result), file=sys.stderr, flush=True)
        return results

    def _fixed_cost(self, project: Project, refresh: Refresh) -> dict[str, float]:
        """What a step costs that changes next to nothing, in jobs that do nothing."""
        trivial, steps = [], []
        for _ in range(20):
            started = time.perf_counter()
            project.spark.range(1).collect()
            trivial.append(time.perf_counter() - started)
        for _ in range(5):
            refresh.batch(0.0)
            self._maintain(project)
            steps.append(self.seconds["propagate"])
        job, step = median(trivial), median(steps)
        return {
            "trivial_job_seconds": round(job, 4),
            "smallest_propagate_seconds": round(step, 3),
            "smallest_propagate_in_trivial_jobs_per_view": round(step / job / len(VIEWS), 1),
        }

    def _maintain(self, project: Project) -> dict[str, int]:
        """Captures, propagates and applies all there is; the phases' seconds are in `seconds`."""
        self.seconds = {}
        jobs = _job_counter(project)
        PROFILE.clear()
        with self.phase("capture"):
            captured = project.capture().transactions
        before = jobs()
        with self.phase("propagate"):
            project._drivers.propagate.run_all(project.views, None, 0.0)
        propagate_jobs = jobs() - before
        before = jobs()
        with self.phase("apply"):
            targets = dict.fromkeys(project.views, project.status().last_csn)
            project._drivers.apply.run(targets, "benchmark")
        apply_jobs = jobs() - before
        return {"transactions": captured, "propagate_jobs": propagate_jobs, "apply_jobs": apply_jobs}

    def _measure(self, project: Project, share: float, refresh: Refresh) -> dict[str, Any]:
        """The batch in the middle of three; recomputed is once, behind the last."""
        runs = []
        for _ in range(REPEATS):
            orders = refresh.batch(share)
            counts = self._maintain(project)
            ours = sum(value for name, value in self.seconds.items() if name != "capture")
            phases = {name: round(value, 3) for name, value in self.seconds.items()}
            profile = {name: round(value, 3) for name, value in sorted(PROFILE.items())}
            runs.append((ours, phases, profile))
        ours, phases, profile = sorted(runs, key=lambda run: run[0])[REPEATS // 2]
        spark_seconds = self._recompute_with_spark(project)
        duckdb_seconds, expected = self._recompute_with_duckdb()
        for view, table in expected.items():
            _same(project.read(view).toArrow(), table, view)
        return {
            "scale": self.scale,
            "share": share,
            "orders": orders,
            "seconds": round(ours, 3),
            "all_seconds": [round(run[0], 3) for run in runs],
            "with_capture_seconds": round(ours + phases["capture"], 3),
            "spark_recompute_seconds": round(spark_seconds, 3),
            "duckdb_recompute_seconds": round(duckdb_seconds, 3),
            "times_faster_than_spark": round(spark_seconds / ours, 2),
            "times_faster_than_duckdb": round(duckdb_seconds / ours, 2),
            **counts,
            "phases": phases,
            "profile": profile,
        }

    def _recompute_with_spark(self, project: Project) -> float:
        started = time.perf_counter()
        for table in TABLES:
            files = DeltaTable(str(self.tables[table])).file_uris()
            project.spark.read.parquet(*files).createOrReplaceTempView(table)
        for name, sql in VIEWS.items():
            target = str(self.folder / "recomputed" / name)
            project.spark.sql(sql.replace("tpch.", "")).write.mode("overwrite").parquet(target)
        return time.perf_counter() - started

    def _recompute_with_duckdb(self) -> tuple[float, dict[str, pa.Table]]:
        with duckdb.connect() as database:
            database.execute(f"SET threads TO {os.cpu_count()}")
            database.execute("CREATE SCHEMA tpch")
            for table in TABLES:
                database.execute(f"CREATE VIEW tpch.{table} AS SELECT * FROM {files_of(self.tables[table])}")
            started = time.perf_counter()
            results = {}
            for name, sql in VIEWS.items():
                target = self.folder / f"duckdb-{name}.parquet"
                database.execute(f"COPY ({sql}) TO '{target}' (FORMAT parquet)")
            seconds = time.perf_counter() - started
            for name in VIEWS:
                results[name] = database.sql(
                    f"SELECT * FROM read_parquet('{self.folder / f'duckdb-{name}.parquet'}')"
                ).to_arrow_table()
            return seconds, results


def _job_counter(project: Project) -> Callable[[], int]:
    tracker = project.spark.sparkContext.statusTracker()
    return lambda: len(tracker.getJobIdsForGroup(None))


def _same(found: pa.Table, expected: pa.Table, view: str) -> None:
    """Both tables hold the same rows; averages are compared to six digits."""
    with duckdb.connect() as database:
        columns = [
            f"round({name}::DOUBLE, 6)" if name.startswith("avg") else name for name in expected.column_names
        ]
        database.register("found", found)
        database.register("expected", expected)
        chosen = ", ".join(columns)
        query = "SELECT count(*) FROM (SELECT {} FROM {} EXCEPT ALL SELECT {} FROM {})"
        more = database.sql(query.format(chosen, "found", chosen, "expected")).fetchall()[0]
        less = database.sql(query.format(chosen, "expected", chosen, "found")).fetchall()[0]
    assert more == (0,) and less == (0,), f"{view}: {more} rows too many, {less} missing"


def main() -> None:
    """Runs the scales that were asked for, and writes the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, action="append", help="scale factor; may be repeated")
    parser.add_argument(
        "--share", type=float, action="append", help="share of orders per batch; may be repeated"
    )
    parser.add_argument("--folder", type=Path, default=Path("benchmarks/data"), help="for data and work")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/tpch.json"))
    arguments = parser.parse_args()
    results = []
    for scale in arguments.scale or [1.0]:
        results += Bench(arguments.folder.absolute(), scale).run(tuple(arguments.share or SHARES))
    names = ("pyspark", "deltalake", "pyarrow", "duckdb")
    machine = {
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        **{name: version(name) for name in names},
    }
    growth = _growth(results)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    written = {"machine": machine, "results": results, "growth": growth}
    arguments.output.write_text(json.dumps(written, indent=1) + "\n")
    _show(results, growth)


def _growth(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same number of changed orders at another scale: how many times as long it took."""
    return [
        {
            "orders": one["orders"],
            "scales": [one["scale"], other["scale"]],
            "times": round(other["seconds"] / one["seconds"], 2),
        }
        for one in results
        for other in results
        if one["scale"] < other["scale"] and abs(one["orders"] - other["orders"]) <= 2
    ]


def _show(results: list[dict[str, Any]], growth: list[dict[str, Any]]) -> None:
    print(" scale   share  rollview    Spark   DuckDB  ×Spark  ×DuckDB  jobs")
    for each in results:
        print(
            f"{each['scale']:>6g} {each['share']:>7.2%} {each['seconds']:>8.2f}s"
            f" {each['spark_recompute_seconds']:>7.1f}s {each['duckdb_recompute_seconds']:>7.2f}s"
            f" {each['times_faster_than_spark']:>7.1f} {each['times_faster_than_duckdb']:>8.2f}"
            f" {each['propagate_jobs'] + each['apply_jobs']:>5}"
        )
    for each in growth:
        smaller, larger = each["scales"]
        print(f"{each['orders']} changed orders: scale {larger:g} takes {each['times']}× scale {smaller:g}")
    for scale, fixed in {each["scale"]: each for each in results}.items():
        print(
            f"scale {scale:g}: a step of two orders propagates in {fixed['smallest_propagate_seconds']} s,"
            f" per view {fixed['smallest_propagate_in_trivial_jobs_per_view']} jobs that do nothing"
            f" ({fixed['trivial_job_seconds'] * 1000:.0f} ms each)"
        )


if __name__ == "__main__":
    main()

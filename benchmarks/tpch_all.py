"""All 22 queries of TPC-H as views of one project, over tables in two sources.

    python benchmarks/tpch_all.py --check --scale 0.01
    python benchmarks/tpch_all.py --scale 1 --share 0.001

With `--check`, a few transactions change every table, all are propagated at once, and each view is compared
with DuckDB at every one of them. Otherwise batches of the refresh functions are propagated and applied view
by view, against Spark recomputing and writing the same queries in the same session; the views are compared
with DuckDB at the end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from tpch_data import KEYS, Refresh, as_delta, files_of, generate

from rollview import Project
from rollview.observe.explain_parts import Part

SOURCES = {
    "sales": ("customer", "orders", "lineitem", "nation", "region"),
    "stock": ("part", "supplier", "partsupp"),
}
TEXT = (Path(__file__).parent / "tpch.sql").read_text("utf-8")
QUERIES = {
    name: text.strip() for name, text in (each.split("\n", 1) for each in TEXT.split("-- query: ")[1:])
}
Row = tuple[Any, ...]
DIGITS = 1e-9
"""So much, of a number, two results may differ."""


class World:
    """The tables of one scale, and a project with the views."""

    def __init__(self, folder: Path, scale: float, names: list[str]) -> None:
        self.scale, self.names = scale, names
        self.folder = folder / f"all-{scale:g}"
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "views").mkdir(parents=True)
        self.places = as_delta(generate(folder, scale, tuple(KEYS)), self.folder / "tables", SOURCES)
        lines = ["name: tpch", "spark: {master: 'local[2]', spark.driver.memory: 8g}", "sources:"]
        for source, tables in SOURCES.items():
            keys = "".join(f", key.{table}: '{','.join(KEYS[table])}'" for table in tables)
            lines.append(f"  {source}: {{type: delta, path: ./tables/{source}{keys}}}")
        (self.folder / "rollview.yml").write_text("\n".join([*lines, "views: ['views/*.sql']"]) + "\n")
        for name in names:
            file = self.folder / "views" / f"{name}.sql"
            file.write_text(f"CREATE MATERIALIZED VIEW {name} AS {QUERIES[name]}")
        self.refresh = Refresh(self.places, scale)

    def by_duckdb(self) -> dict[str, pa.Table]:
        """The answers of all queries, from the tables as they are now."""
        with duckdb.connect() as database:
            for source, tables in SOURCES.items():
                database.execute(f"CREATE SCHEMA {source}")
                for table in tables:
                    query = f"SELECT * FROM {files_of(self.places[table])}"
                    database.execute(f"CREATE VIEW {source}.{table} AS {query}")
            return {name: database.sql(QUERIES[name]).to_arrow_table() for name in self.names}

    def acts(self) -> Iterator[Callable[[], None]]:
        """Transactions that change every table; each is one commit of one table."""
        do, keys = self.refresh, {"orders": (1, 400), "lineitem": (1, 400)}
        for name in ("orders", "lineitem"):
            yield lambda name=name: do.insert(name, *keys[name])  # type: ignore[misc]
        yield lambda: do.update("part", "p_partkey % 7 = 0", p_size="p_size % 50 + 1", p_brand="'Brand#23'")
        yield lambda: do.update("lineitem", "l_orderkey % 50 = 1", l_quantity="l_quantity + 60")
        yield lambda: do.delete("lineitem", 801, 1200)
        yield lambda: do.update("partsupp", "ps_partkey % 5 = 0", ps_supplycost="ps_supplycost / 2")
        yield lambda: do.update("customer", "c_custkey % 9 = 0", c_nationkey="(c_nationkey + 1) % 25")
        yield lambda: do.update("supplier", "s_suppkey % 4 = 0", s_nationkey="(s_nationkey + 3) % 25")
        yield lambda: do.delete("orders", 801, 1600)
        yield lambda: do.update("nation", "n_nationkey IN (6, 7)", n_regionkey="(n_regionkey + 1) % 5")
        yield lambda: do.delete("supplier", 3, 5)
        yield lambda: do.update("orders", "o_orderkey % 32 = 2", o_custkey="o_custkey + 1")
        yield lambda: do.delete("part", 40, 60)
        yield lambda: do.delete("partsupp", 1, 30)
        yield lambda: do.update("region", "r_name = 'AFRICA'", r_name="'EUROPE'")

    def check(self) -> int:
        """Compares each view with DuckDB at every transaction; how many states that were."""
        with Project.open(self.folder) as project:
            _timed("first load", project.setup)
            expected = {project.status().last_csn: self.by_duckdb()}
            for act in self.acts():
                act()
                project.capture()
                expected[project.status().last_csn] = self.by_duckdb()
            _timed("refresh", project.refresh)
            wrong = []
            for csn, answers in expected.items():
                for name, answer in answers.items():
                    difference = different(project.read(name, as_of=csn).toArrow(), answer)
                    if difference:
                        wrong.append(f"{name} at csn {csn}: {difference}")
                print(f"csn {csn}: {len(wrong)} wrong so far", file=sys.stderr, flush=True)
        assert not wrong, "\n".join(wrong)
        return len(expected) * len(self.names)

    def measure(self, share: float, repeats: int) -> dict[str, Any]:
        """What maintaining costs, and what recomputing does."""
        with Project.open(self.folder) as project:
            load = _timed("first load", project.setup)
            self.refresh.batch(share)
            _timed("one batch to warm up", project.refresh)
            views: dict[str, dict[str, list[float]]] = {name: {} for name in self.names}
            captures = []
            for _ in range(repeats):
                orders = self.refresh.batch(share)
                captures.append(_timed("capture", project.capture))
                for name in self.names:
                    for phase, action in (("propagate", project.propagate), ("apply", project.apply)):
                        seconds = _timed(f"{phase} {name}", lambda do=action, view=name: do(view))  # type: ignore[misc]
                        views[name].setdefault(phase, []).append(seconds)
            for name, seconds in self._by_spark(project).items():
                views[name]["recompute"] = [seconds]
            for name, answer in self.by_duckdb().items():
                difference = different(project.read(name).toArrow(), answer)
                assert not difference, f"{name}: {difference}"
            how = {name: _how(project.explain(name).parts) for name in self.names}
            middle = {
                name: {phase: round(median(seconds), 3) for phase, seconds in phases.items()}
                for name, phases in views.items()
            }
        ours = sum(each["propagate"] + each["apply"] for each in middle.values())
        spark = sum(each["recompute"] for each in middle.values())
        return {
            "scale": self.scale,
            "share": share,
            "orders": orders,
            "first_load_seconds": round(load, 1),
            "capture_seconds": round(median(captures), 2),
            "seconds": round(ours, 2),
            "spark_recompute_seconds": round(spark, 2),
            "share_of_recompute": round(ours / spark, 3),
            "views": {name: each | how[name] for name, each in middle.items()},
        }

    def _by_spark(self, project: Project) -> dict[str, float]:
        for table, place in self.places.items():
            files = DeltaTable(str(place)).file_uris()
            project.spark.read.parquet(*files).createOrReplaceTempView(table)
        found = {}
        for name in self.names:
            sql, target = QUERIES[name], str(self.folder / "recomputed" / name)
            for source in SOURCES:
                sql = sql.replace(f"{source}.", "")
            query = project.spark.sql(sql)
            found[name] = _timed(
                f"recompute {name}",
                lambda query=query, target=target: query.write.mode("overwrite").parquet(target),  # type: ignore[misc]
            )
        return found


def different(found: pa.Table, expected: pa.Table) -> str:
    """How two results differ; nothing if they have the same rows."""
    return different_rows(_rows(found), _rows(expected))


def different_rows(found: Iterable[Row], expected: Iterable[Row]) -> str:
    """How two bags of rows differ."""
    ours, theirs = _sorted(found), _sorted(expected)
    if len(ours) != len(theirs):
        return f"{len(ours)} rows instead of {len(theirs)}"
    for one, other in zip(ours, theirs, strict=True):
        if not all(map(_equal, one, other)):
            return f"{one} instead of {other}"
    return ""


def _rows(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _sorted(rows: Iterable[Row]) -> list[Row]:
    # Numbers last: those that differ in the last digit must not change places.
    return sorted(rows, key=lambda row: (str([v for v in row if isinstance(v, str)]), _rounded(row)))


def _rounded(row: Row) -> str:
    return str(
        [v if v is None or isinstance(v, str) or not _is_number(v) else f"{float(v):.4f}" for v in row]
    )


def _is_number(value: Any) -> bool:
    return hasattr(value, "__float__")


def _equal(one: Any, other: Any) -> bool:
    if one is None or other is None or not (_is_number(one) and _is_number(other)):
        return bool(one == other)
    # Spark's averages of decimals have as many digits as their type, DuckDB's are doubles.
    digit = 10.0 ** one.as_tuple().exponent if isinstance(one, Decimal) and isinstance(other, float) else 0.0
    return abs(float(one) - float(other)) <= max(digit, DIGITS * max(1.0, abs(float(other))))


def _timed(what: str, action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    seconds = time.perf_counter() - started
    print(f"{what}: {seconds:.1f} s", file=sys.stderr, flush=True)
    return seconds


def _how(parts: Sequence[Part]) -> dict[str, Any]:
    """How a view is maintained: its operators and their methods, what it asks, and what it stores."""
    kinds = Counter(f"{each.operator} ({each.method})" for each in parts)
    return {
        "operators": [f"{number} × {kind}" if number > 1 else kind for kind, number in kinds.items()],
        "asks": sorted({source for each in parts for source in each.asks}),
        "stored_rows": sum(each.stored.rows for each in parts if each.stored),
        "stored_bytes": sum(each.stored.bytes for each in parts if each.stored),
    }


def _show(result: Mapping[str, Any]) -> None:
    """A table in Markdown."""
    print("| query | maintained by | reads | stored | propagate | apply | recompute |")
    print("|---|---|---|---:|---:|---:|---:|")
    for name, each in result["views"].items():
        stored = f"{each['stored_rows']:,} rows, {each['stored_bytes'] / 1e6:.1f} MB"
        seconds = " | ".join(f"{each[phase]:.2f} s" for phase in ("propagate", "apply", "recompute"))
        operators, asks = ", ".join(each["operators"]), ", ".join(each["asks"]) or "none"
        print(f"| {name} | {operators} | {asks} | {stored} | {seconds} |")
    print(
        f"\nAll: {result['seconds']:.1f} s against {result['spark_recompute_seconds']:.1f} s,"
        f" {result['share_of_recompute']:.2f} of recomputing; capture {result['capture_seconds']} s."
    )


def main() -> None:
    """Checks or measures, as asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1.0, help="scale factor")
    parser.add_argument("--share", type=float, default=0.001, help="share of orders per batch")
    parser.add_argument("--repeats", type=int, default=3, help="batches that are measured")
    parser.add_argument("--view", action="append", choices=tuple(QUERIES), help="only these; may be repeated")
    parser.add_argument("--check", action="store_true", help="compare every view at every transaction")
    parser.add_argument("--folder", type=Path, default=Path("benchmarks/data"), help="for data and work")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/tpch_all.json"))
    arguments = parser.parse_args()
    world = World(arguments.folder.absolute(), arguments.scale, arguments.view or list(QUERIES))
    if arguments.check:
        print(f"{world.check()} states agree")
        return
    result = world.measure(arguments.share, arguments.repeats)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    _show(result)


if __name__ == "__main__":
    main()

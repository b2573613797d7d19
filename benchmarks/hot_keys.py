"""One group that changes often in one step: what each further change of it costs.

    python benchmarks/hot_keys.py
    python benchmarks/hot_keys.py --values 100000 --changes 1000

A SQLite table has one group with many values. So many transactions change it, all of them are propagated in
one step, through an aggregate that keeps its values and through the first rows of an order, to views above
these; every state of a view is compared with what SQLite says. It ends with the seconds of the steps.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

from rollview import Project

VIEWS = {
    "extremes": """SELECT e.k, e.low, e.high, e.n, g.name FROM (
        SELECT k, min(x) AS low, max(x) AS high, count(*) AS n FROM shop.t GROUP BY k) e
        JOIN shop.g ON g.k = e.k""",
    "newest": """SELECT n.k, n.x, g.name FROM (
        SELECT k, x, row_number() OVER (PARTITION BY k ORDER BY id DESC) AS place FROM shop.t
        QUALIFY place <= 3) n JOIN shop.g ON g.k = n.k""",
}
BY_SQLITE = {
    "extremes": "SELECT k, min(x), max(x), count(*), 'one' FROM t GROUP BY k",
    "newest": "SELECT k, x, 'one' FROM (SELECT * FROM t ORDER BY id DESC LIMIT 3)",
}


def measure(folder: Path, values: int, changes: int) -> dict[str, Any]:
    """Seconds of one step per view."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "views").mkdir(parents=True)
    chance = random.Random(changes)
    shop = sqlite3.connect(folder / "shop.db", isolation_level=None)
    shop.execute("PRAGMA journal_mode = WAL")
    shop.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, k INTEGER, x INTEGER)")
    shop.execute("CREATE TABLE g (k INTEGER PRIMARY KEY, name TEXT)")
    shop.execute("INSERT INTO g VALUES (1, 'one')")
    shop.executemany("INSERT INTO t VALUES (?, 1, ?)", ((n, chance.randrange(10**9)) for n in range(values)))
    lines = ["name: hot", "spark: {master: 'local[2]'}", "sources:", "  shop: {type: sqlite, path: shop.db}"]
    (folder / "rollview.yml").write_text("\n".join([*lines, "views: ['views/*.sql']"]) + "\n")
    for name, sql in VIEWS.items():
        (folder / "views" / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
    with Project.open(folder) as project:
        project.setup()
        # The first step of a process is slower than all others.
        shop.execute("INSERT INTO t VALUES (-1, 1, 5)")
        project.refresh()
        states = []
        for number in range(changes):
            if number % 3:
                shop.execute("INSERT INTO t VALUES (?, 1, ?)", (values + number, chance.randrange(10**9)))
            else:
                shop.execute("DELETE FROM t WHERE id = (SELECT max(id) FROM t)")
            if number % max(1, changes // 20) == 0:
                project.capture()
                csn = project.status().last_csn
                states.append((csn, {name: set(shop.execute(sql)) for name, sql in BY_SQLITE.items()}))
        project.capture()
        seconds = {}
        for name in VIEWS:
            started = time.perf_counter()
            project.propagate(name)
            seconds[name] = round(time.perf_counter() - started, 2)
        for csn, expected in states:
            for name, rows in expected.items():
                found = {tuple(row) for row in project.read(name, as_of=csn).collect()}
                assert found == rows, (name, csn, found, rows)
    shop.close()
    return {"values": values, "changes": changes, "seconds": seconds, "states_compared": len(states)}


def main() -> None:
    """Measures, and prints a line for each number of changes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--values", type=int, default=100_000, help="values in the group")
    parser.add_argument("--changes", type=int, action="append", help="transactions in the step; repeatable")
    parser.add_argument("--folder", type=Path, default=Path("benchmarks/data/hot_keys"))
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/hot_keys.json"))
    arguments = parser.parse_args()
    results = []
    for changes in arguments.changes or [10, 100, 1000, 5000]:
        results.append(measure(arguments.folder.absolute(), arguments.values, changes))
        print(results[-1], file=sys.stderr, flush=True)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""How long short commands about a tiny view take: alone, and beside a running process.

Each command is a process of its own, as a user starts it. Alone, `query` starts Spark; all else does without.
Times are the median and the least of some runs, in seconds, and the median of the processor's seconds in the
command itself, which say more on a machine that is busy.

    python benchmarks/quick_answers.py --runs 5
"""

from __future__ import annotations

import argparse
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

ROLLVIEW = [sys.executable, "-c", "from rollview.cli import main; main()"]
QUERY = ("query", "SELECT sum(total) AS total FROM by_customer")
COMMANDS = {
    "--help": ("--help",),
    "status": ("status",),
    "read": ("read", "by_customer"),
    "read --as-of": ("read", "by_customer", "--as-of", "csn:1"),
    "deltas": ("deltas", "by_customer"),
    "explain": ("explain", "by_customer"),
    "query": QUERY,
}
PROJECT = """name: quick
spark: {master: "local[2]"}
sources:
  shop: {type: sqlite, path: ./shop.db}
views: ["views/*.sql"]
"""
VIEW = """SELECT cust_id, count(*) AS n, sum(amount) AS total, avg(amount) AS mean
    FROM shop.sales GROUP BY cust_id"""


def main() -> None:
    """Makes a project, measures, prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _make(folder)
        alone = {each: _times(folder, words, runs) for each, words in COMMANDS.items()}
        with _running(folder):
            beside = {each: _times(folder, words, runs) for each, words in COMMANDS.items()}
    print(f"{'command':14}{'alone':>8}{'least':>8}{'cpu':>8}{'beside run':>12}{'least':>8}{'cpu':>8}")
    for each in COMMANDS:
        line = f"{each:14}"
        for times, width in ((alone[each], 8), (beside[each], 12)):
            clock, processor = zip(*times, strict=True)
            line += f"{statistics.median(clock):>{width}.2f}{min(clock):>8.2f}"
            line += f"{statistics.median(processor):>8.2f}"
        print(line)


def _make(folder: Path) -> None:
    """Ten customers, a hundred sales, and two transactions after the first load."""
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        database.execute("CREATE TABLE sales (id INTEGER PRIMARY KEY, cust_id INTEGER, amount INTEGER)")
        rows = [(number, number % 10, number * 7 % 90) for number in range(100)]
        database.executemany("INSERT INTO sales VALUES (?, ?, ?)", rows)
        database.commit()
        (folder / "rollview.yml").write_text(PROJECT)
        (folder / "views").mkdir()
        (folder / "views" / "by_customer.sql").write_text(VIEW)
        _run(folder, "setup")
        for number in range(2):
            database.execute("UPDATE sales SET amount = amount + 1 WHERE id = ?", (number,))
            database.commit()
            _run(folder, "capture")
        _run(folder, "run", "--once")


def _run(folder: Path, *words: str) -> None:
    subprocess.run([*ROLLVIEW, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def _times(folder: Path, words: tuple[str, ...], runs: int) -> list[tuple[float, float]]:
    """The seconds of the clock, and of the processor, of each run."""
    found = []
    for _ in range(runs):
        started, used = time.monotonic(), _processor()
        _run(folder, *words)
        found.append((time.monotonic() - started, _processor() - used))
    return found


def _processor() -> float:
    """The seconds that children which have ended took of the processor."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def _running(folder: Path) -> Iterator[None]:
    """`rollview run`, once it answers queries."""
    with subprocess.Popen([*ROLLVIEW, "run"], cwd=folder, stdout=subprocess.DEVNULL) as process:
        try:
            while not list((folder / "lake" / ".answers").glob("*")):
                time.sleep(0.1)
            for _ in range(3):
                _run(folder, *QUERY)
            yield
        finally:
            process.terminate()


if __name__ == "__main__":
    main()

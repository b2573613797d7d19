"""Every algorithm on one live project: a PostgreSQL and a SQLite database with writers.

    python benchmarks/algorithms.py --seconds 60 --write docs/reference/algorithms.md

Each algorithm maintains a view of its own of the same join. While three writers commit, `run` goes round;
then every state at which a view can be read is judged by recomputation, and what its steps came to is printed
per transaction. With `--write`, the page's section on live servers is replaced.

    python benchmarks/algorithms.py --seconds 120 --levels

The same join at every level of consistency, each with `rollview.algorithm = auto`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rollview import Project

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "service"))

from live_algorithms import LIVE as MAINTAINED
from live_algorithms import SOLD, LiveShop

from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.tables.report import LIVE
from servers.postgres import PostgresServer

PAUSE_SECONDS, REST_SECONDS = 0.3, 12.0
"""Between two transactions of a writer, and after a second of work: Strobe shows views when all is quiet."""


def _measure(seconds: float) -> list[str]:
    server = PostgresServer()
    server.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            shop = LiveShop(Path(folder) / "live", server.create_database("algorithms"))
            shop.begin()
            with Project.open(shop.folder) as project:
                project.setup()
                project.run(once=True)
                before = project.status().last_csn
                shop.counting(project)
                began, rounds = time.monotonic(), 0
                with shop.writing(PAUSE_SECONDS, REST_SECONDS):
                    while time.monotonic() - began < seconds:
                        project.run(once=True)
                        rounds += 1
                project.run(once=True)
                transactions = project.status().last_csn - before
                reached = shop.judge(project)
            return _page(shop, reached, transactions, rounds)
    finally:
        server.remove()


def _page(shop: LiveShop, reached: dict[str, object], transactions: int, rounds: int) -> list[str]:
    lines = [
        "",
        "Written by `python benchmarks/algorithms.py`. One project, one join of two tables in PostgreSQL and",
        f"one in SQLite, kept by each algorithm as its own view; three writers committed {transactions:,}",
        f"transactions in {rounds} rounds of `run`. Every state that a view shows was recomputed, and is",
        "right. *Reached*: complete if every csn can be read, strong if some are given up. Per transaction:",
        "look-ups (sub-queries sent), rows found, milliseconds of propagation; all views shared two cores.",
        "",
        "| algorithm | claims | reached | look-ups | rows found | ms |",
        "|---|---|---|--:|--:|--:|",
    ]
    for name in MAINTAINED:
        cost = shop.costs[name]
        figures = (cost.lookups, cost.rows_found, 1000 * cost.seconds)
        shown = " | ".join(f"{value / transactions:.2f}" for value in figures)
        lines.append(f"| {name} | {ALGORITHMS[name].level} | {reached[name]} | {shown} |")
        assert reached[name] >= ALGORITHMS[name].level, name
    return [*lines, ""]


LEVELS = ("complete", "strong", "weak", "convergence")


def _measure_levels(seconds: float) -> list[str]:
    """One join at every level, each with `rollview.algorithm = auto`: what its algorithms came to."""
    server = PostgresServer()
    server.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            shop = LiveShop(Path(folder) / "live", server.create_database("levels"))
            said = "TBLPROPERTIES ('rollview.algorithm' = 'auto', 'rollview.consistency' = '{}')"
            texts = {level: f"CREATE MATERIALIZED VIEW {level}_sold {said.format(level)}" for level in LEVELS}
            shop.replace_views({f"{level}_sold": f"{text} AS {SOLD}" for level, text in texts.items()})
            with Project.open(shop.folder) as project:
                project.setup()
                began = time.monotonic()
                with shop.writing(PAUSE_SECONDS, REST_SECONDS):
                    while time.monotonic() - began < seconds:
                        project.run(once=True)
                project.run(once=True)
                assert all(each.is_right for each in project.verify())
                return list(_levels(project))
    finally:
        server.remove()


def _levels(project: Project) -> Iterator[str]:
    """For each level the algorithm in use and the least of the others, as `explain` has them."""
    yield "| level | algorithm | look-ups | rows found | ms | ms beside the others |"
    yield "|---|---|--:|--:|--:|--:|"
    for level in LEVELS:
        (part,) = project.explain(f"{level}_sold").measured
        compared = [cost for cost in part.costs if cost.recent]
        for cost in sorted(compared, key=lambda each: each.compared_seconds):
            figures = (cost.lookups, cost.rows_found, 1000 * cost.seconds)
            shown = " | ".join(f"{value / cost.transactions:.2f}" for value in figures)
            name = f"**{cost.algorithm}**" if cost.algorithm == part.algorithm else cost.algorithm
            yield f"| {level} | {name} | {shown} | {1000 * cost.compared_seconds:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--levels", action="store_true", help="one join at every level, by measured costs")
    options = parser.parse_args()
    if options.levels:
        print("\n".join(_measure_levels(options.seconds)))
        return
    lines = _measure(options.seconds)
    print("\n".join(lines))
    if options.write is not None:
        page = options.write.read_text(encoding="utf-8").partition(LIVE)[0]
        options.write.write_text(page + LIVE + "\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()

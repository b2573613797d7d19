"""A drill: the one that works fails again and again, and the other one takes over. `--take-overs 20`

Two hosts, one catalog on PostgreSQL, one lake, and a bank whose tellers never rest. In turn the one that
works is killed, paused (and resumed when it was overtaken), cut off the catalog, and stopped in order. At the
end every csn must have shown the same sum, and the last one what the database holds. What is printed is how
long nothing new was shown.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "service"))

from two_hosts import WAYS, Bank, take_over, two_hosts

from rollview.catalog import Catalog
from rollview.project.project import Project
from servers.postgres import PostgresServer


def main() -> None:
    """Runs the drill and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--take-overs", type=int, default=20)
    parser.add_argument("--tellers", type=int, default=3)
    parser.add_argument("--limit-seconds", type=float, default=15.0)
    arguments = parser.parse_args()
    server = PostgresServer(durable=True)
    server.start()
    seconds: dict[str, list[float]] = {way.__name__: [] for way in WAYS}
    with tempfile.TemporaryDirectory(prefix="rollview-take-overs-") as folder:
        bank = Bank(Path(folder) / "bank", server, "bank")
        os.environ["CATALOG"] = bank.catalog_url
        with Project.open(bank.folder) as project:
            project.setup()
        catalog = Catalog.open(bank.catalog_url)
        with two_hosts(bank, server) as hosts, bank.busy(arguments.tellers):
            for number in range(arguments.take_overs):
                way = WAYS[number % len(WAYS)]
                worker, standby = hosts[number % 2], hosts[1 - number % 2]
                seconds[way.__name__].append(take_over(worker, standby, way, catalog))
                print(f"{number + 1}: {way.__name__}, {seconds[way.__name__][-1]:.1f} s", flush=True)
        catalog.close()
        with Project.open(bank.folder) as project:
            bank.judge(project)
    server.remove()
    print(f"{bank.committed:,} transfers, the sum zero at every csn, nothing lost or doubled")
    print("| the one that works was | take-overs | median s | worst s |\n|---|---|---|---|")
    for name, found in seconds.items():
        if found:
            print(f"| {name} | {len(found)} | {statistics.median(found):.1f} | {max(found):.1f} |")
    if max(each for found in seconds.values() for each in found) > arguments.limit_seconds:
        sys.exit(f"a take-over took longer than {arguments.limit_seconds:.0f} s")


if __name__ == "__main__":
    main()

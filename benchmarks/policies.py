"""One definition under three policies on one PostgreSQL, with eight writers and kills: all must agree.

    python benchmarks/policies.py --seconds 60 --kills 5

`rollview run` is ended with SIGKILL that often, and started again. At `--samples` csn spread over the run,
the views under immediate, ipda and deferred are compared with each other and with DuckDB's answer over the
tables as the log had them; what is kept at the server is compared with the server's own answer all along.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import psycopg

from rollview import Project

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "service"))

from one_server import VIEWS, OneServer, transact, with_policy, writing

from servers.postgres import PostgresServer

WRITERS = 8
POLICIES = ("immediate", "ipda", "deferred")
KEPT = ("state_count", "lines")


def _views() -> dict[str, str]:
    found = {}
    for policy in POLICIES:
        found |= with_policy(policy, {f"{name}_{policy}": VIEWS[name] for name in KEPT})
    return found


def _look(dsn: str) -> None:
    """What is kept at the server is what the server computes."""
    with psycopg.connect(dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        (schema,) = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'rollview%'"
        ).fetchone() or ("",)
        for name in KEPT:
            kept = Counter(connection.execute(f'SELECT * FROM {schema}."{name}_immediate"').fetchall())
            computed = Counter(connection.execute(VIEWS[name].replace("db.", "")).fetchall())
            assert kept == computed, f"{name} is kept wrong at the server"


def _start(folder: Path) -> subprocess.Popen[bytes]:
    command = [str(Path(sys.executable).parent / "rollview"), "run", "--project", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> int:
    """Runs it; 1 on any difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    server = PostgresServer({"deadlock_timeout": "20ms"})
    server.start()
    looks = 0
    try:
        with tempfile.TemporaryDirectory() as place:
            dsn = server.create_database("policies")
            world = OneServer(Path(place) / "project", dsn, _views())
            world.fill(random.Random(options.seed))
            world.begin()
            with Project.open(world.folder) as project:
                project.setup()
            running, began = _start(world.folder), time.monotonic()
            with writing(dsn, WRITERS, partial(transact, unnoticed=0.0), options.seed, pause=0.02):
                for number in range(options.kills + 1):
                    until = began + options.seconds * (number + 1) / (options.kills + 1)
                    while time.monotonic() < until:
                        _look(dsn)
                        looks += 1
                        time.sleep(0.05)
                    running.send_signal(signal.SIGKILL)
                    running.wait()
                    if number < options.kills:
                        running = _start(world.folder)
            _look(dsn)
            with Project.open(world.folder) as project:
                project.run(once=True)
                number = world.check_every_csn(project, options.samples)
    finally:
        server.remove()
    print(
        f"{number} transactions in {options.seconds:g} s by {WRITERS} writers, {options.kills} kills:"
        f" at {options.samples} csn all policies agree with the oracle; at {looks} moments the server did"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

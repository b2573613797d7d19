"""Random histories of a MariaDB database, compared with the server itself after each batch of statements.

Random schemas and statements in MariaDB's own language (tests/sources/mariadb/mariadb_fuzz.py), captured by
its source, without Spark. The rows that follow from what was captured must be the server's; losses must have
a reason, by which they are counted.

    python benchmarks/fuzz_mariadb.py --histories 2000 --seed 1
    python benchmarks/fuzz_mariadb.py --minutes 60
    python benchmarks/fuzz_mariadb.py --seed 1 --only 137

Exit code 1 if any history is wrong, with its seed and its statements.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "sources" / "mariadb"), str(ROOT / "tests")]

from mariadb_fuzz import Fuzzed, Tally, Wrong  # noqa: E402

from servers.mariadb import MariaDBServer  # noqa: E402

_MOST_SHOWN = 5
_ENOUGH_HISTORIES = 1_000_000


def main() -> int:
    """Runs the histories; 1 if any is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--histories", type=int, default=0, help="how many; default 200, or as many as fit")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after this time")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--only", type=int, default=None, help="the number of one history of the seed")
    options = parser.parse_args()
    most = options.histories or (_ENOUGH_HISTORIES if options.minutes else 200)
    numbers = range(most) if options.only is None else [options.only]
    until = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
    # Whoever ends it does not leave a server behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    tally, wrong, done, began = Tally(), 0, 0, time.monotonic()
    with closing(MariaDBServer().start()) as server:
        for number in numbers:
            if time.monotonic() > until:
                break
            with closing(Fuzzed(server, f"{options.seed}:{number}", tally)) as history:
                try:
                    history.run()
                except Wrong as error:
                    wrong += 1
                    if wrong <= _MOST_SHOWN:
                        print(f"WRONG: --seed {options.seed} --only {number}: {error}", flush=True)
            done += 1
            if done % 100 == 0:
                print(f"{done} histories, {wrong} wrong, {time.monotonic() - began:.0f} s", flush=True)
    print(
        f"seed {options.seed}: {done} histories, {tally.done.total()} statements, {tally.compared} tables"
        f" compared with {tally.rows} rows, {wrong} wrong"
    )
    for title, counts in (("losses", tally.losses), ("refused at setup", tally.refused)):
        print(f"{title}: {counts.total()}")
        for reason, times in counts.most_common():
            print(f"  {times:6} {reason}")
    print(f"statements {dict(tally.done.most_common())}")
    print(f"refused by the server {dict(tally.failed.most_common(12))}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""What the tests run in processes of their own: `catalog_worker.py WHAT URL …`, driven by lines of input."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

from rollview.catalog import (
    ApplyStep,
    Catalog,
    CsnRange,
    Materialized,
    Moved,
    Part,
    Refresh,
    Refreshed,
    Sequenced,
    Step,
    StepBounds,
    Unit,
)
from rollview.errors import LeaseHeld


def say(*words: object) -> None:
    """One line of output, at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def open_catalog(url: str) -> None:
    """Waits for a line, opens the catalog, says its identity."""
    say("ready")
    sys.stdin.readline()
    catalog = Catalog.open(url)
    say(catalog.identity)
    catalog.close()


def race(url: str) -> None:
    """For each line: tries for the lease, says whether it won, and holds it until the next line."""
    catalog = Catalog.open(url)
    say("ready")
    while sys.stdin.readline():
        try:
            with catalog.lease("prize") as lease:
                say("won", lease.epoch)
                sys.stdin.readline()
        except LeaseHeld:
            say("held", 0)
            sys.stdin.readline()
        say("over")


def hold(url: str, seconds: str) -> None:
    """Takes the lease and keeps it for ever."""
    with Catalog.open(url, lease_seconds=float(seconds)).lease("prize") as lease:
        say("won", lease.epoch)
        threading.Event().wait()


def count(url: str, counter: str, rounds: str) -> None:
    """Adds to a number in a plain file, which only goes well while no one else does."""
    catalog, file = Catalog.open(url), Path(counter)
    say("ready")
    for _ in range(int(rounds)):
        with catalog.lease("counter", wait_seconds=60):
            value = int(file.read_text(encoding="ascii"))
            file.write_text(str(value + 1), encoding="ascii")
    catalog.close()


def burst(url: str) -> None:
    """Captures, propagates and applies one unit after the other until killed; says each step's id."""
    catalog = Catalog.open(url)
    with catalog.lease("burst") as lease:
        while True:
            pending = catalog.steps.pending(ApplyStep, "v")
            if pending:
                step = pending[0]
            else:
                last = catalog.history.last_csn()
                step = catalog.steps.begin(lease, "v", ApplyStep({"v": CsnRange(last, last + 1)}, "burst"))
                say("begun", step.id)
            csn = step.bounds.views["v"].upto
            every: Step[StepBounds[Any]] = step
            catalog.steps.finish(
                lease,
                every,
                Sequenced((Unit(csn, float(csn), (Part("x", csn, csn),), {"x.r": 2}),), {"x": str(csn)}),
                Moved("v", tuple((query, csn) for query in catalog.views.positions("v"))),
                Materialized("v", csn, step.id, step.id),
                Refreshed(Refresh("v", "incremental", csn - 1, csn, 2, 0.0, "burst", float(csn))),
            )
            say("finished", step.id)


if __name__ == "__main__":
    {"open": open_catalog, "race": race, "hold": hold, "count": count, "burst": burst}[sys.argv[1]](
        *sys.argv[2:]
    )

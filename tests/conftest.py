"""For all tests: Hypothesis has no deadline, as a busy machine is not a failing test; Spark starts quickly.

The JVM options are set before anything starts Spark, so that processes which tests start have them, too.

What takes a minute or more comes first, so that no process is left with it when the others are done; other
campaigns come last. Where a run has to end in time whatever the machine, ROLLVIEW_CAMPAIGNS_END and
ROLLVIEW_TESTS_END say when (seconds since 1970): no campaign, and no other slow test, begins after that. What
was left out is skipped, and says so.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from hypothesis import settings

from rollview.sql import errors
from servers.jvm import start_quickly

settings.register_profile("rollview", deadline=None)
settings.load_profile("rollview")
# In tests a mistake of the translation is a failure, and no reason to leave the query to Spark.
errors.OWN_MISTAKES = ()
start_quickly()
# Whoever runs the tests may ignore these, as nohup and `&` do; what tests start must not inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_ENDS = {
    "campaign": float(os.environ.get("ROLLVIEW_CAMPAIGNS_END", "inf")),
    "slow": float(os.environ.get("ROLLVIEW_TESTS_END", "inf")),
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests first, campaigns last, for every worker.

    Each begins with a part of the list, and takes from the ends of the others.
    """
    workers = int(getattr(config, "workerinput", {}).get("workercount", 1))
    long = [item for item in items if item.get_closest_marker("long")]
    campaigns = [item for item in items if item.get_closest_marker("campaign") and item not in long]
    others = [item for item in items if item not in long and item not in campaigns]
    items[:] = [
        item
        for worker in range(workers)
        for kind in (long, others, campaigns)
        for item in kind[worker * len(kind) // workers : (worker + 1) * len(kind) // workers]
    ]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A slow test begins only while there is time."""
    for mark, end in _ENDS.items():
        if item.get_closest_marker(mark) and time.time() > end:
            pytest.skip(f"LEFT OUT: the time for {mark} tests was over; `make test` has no such limit")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Ends what the tests of this process shared. Only who has imported it can have started it."""
    if (shared := sys.modules.get("servers.spark")) is not None:
        shared.stop_shared()

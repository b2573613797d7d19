"""For all tests: Hypothesis has no deadline, as a busy machine is not a failing test; Spark starts quickly.

The JVM options are set before anything starts Spark, so that processes which tests start have them, too.

Campaigns come last. On a machine that is so slow that ROLLVIEW_CAMPAIGN_MINUTES are over before they begin,
they are skipped, and say so; `make soak` runs all of them.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from hypothesis import settings

from servers.jvm import start_quickly

settings.register_profile("rollview", deadline=None)
settings.load_profile("rollview")
start_quickly()
# Whoever runs the tests may ignore these, as nohup and `&` do; what tests start must not inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_MINUTES = float(os.environ.get("ROLLVIEW_CAMPAIGN_MINUTES", "inf"))
_STARTED = time.monotonic()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Campaigns last, for every worker: each begins with a part of the list, and takes from others' ends."""
    workers = int(getattr(config, "workerinput", {}).get("workercount", 1))
    campaigns = [item for item in items if item.get_closest_marker("campaign")]
    others = [item for item in items if not item.get_closest_marker("campaign")]
    items[:] = [
        item
        for worker in range(workers)
        for kind in (others, campaigns)
        for item in kind[worker * len(kind) // workers : (worker + 1) * len(kind) // workers]
    ]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A campaign begins only while there is time."""
    if item.get_closest_marker("campaign") and time.monotonic() - _STARTED > 60 * _MINUTES:
        pytest.skip(f"{_MINUTES:g} minutes are over, and this is a campaign: `make soak` runs it")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Ends what the tests of this process shared. Only who has imported it can have started it."""
    if (shared := sys.modules.get("servers.spark")) is not None:
        shared.stop_shared()

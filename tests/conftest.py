"""For all tests: Hypothesis has no deadline, as a busy machine is not a failing test; Spark starts quickly.

The JVM options are set before anything starts Spark, so that processes which tests start have them, too.
"""

from __future__ import annotations

import signal
import sys

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


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Ends what the tests of this process shared. Only who has imported it can have started it."""
    if (shared := sys.modules.get("servers.spark")) is not None:
        shared.stop_shared()

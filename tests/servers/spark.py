"""One Spark for all tests of a process; every folder takes a session of its own from it.

A JVM takes seconds to start, and its caches are warm only after the first few queries, so tests that need no
process of their own share one. Sessions of one JVM have their own settings and temporary views.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from pyspark.sql import SparkSession

from rollview.spark.session import open_session

_SETTINGS = {
    "master": "local[2]",
    "spark.driver.memory": "2g",
    # Tests count the jobs of a step: none may be forgotten while the JVM lives.
    "spark.ui.retainedJobs": "1000000",
}


def shared_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """A new session of the shared Spark: the product's settings, with these on top."""
    session = _shared().newSession()
    for name, value in (settings or {}).items():
        session.conf.set(name, value)
    return session


@cache
def _shared() -> SparkSession:
    return open_session("tests", _SETTINGS)


def stop_shared() -> None:
    """Ends the shared Spark, if it was ever started."""
    if _shared.cache_info().currsize:
        _shared().stop()
        _shared.cache_clear()

"""How every JVM of the tests starts: here, and in the processes that tests start.

What Spark compiles in a test runs a few times and is thrown away. The JVM's optimizing compiler takes half of
all processor time of such a run and never earns it back, so it is left out; nothing else about Spark changes.
"""

from __future__ import annotations

import os
import sys

_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def start_quickly() -> None:
    """Sets what Spark's launcher and Spark itself read when they start."""
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _OPTIONS)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", _OPTIONS)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

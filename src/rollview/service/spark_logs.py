"""The loggers by which PySpark writes each exception of a query to stderr, beside raising it.

PySpark must make them: a logger of the standard class would refuse the arguments that PySpark gives it.
"""

from __future__ import annotations

import logging

from pyspark.logger import PySparkLogger


def query_loggers() -> list[logging.Logger]:
    """These loggers, so that their level can be set."""
    return [
        PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
    ]

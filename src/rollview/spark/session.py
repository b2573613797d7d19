"""The Spark session of a project: local threads, a cluster, or a Connect server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rollview.deferred_import import deferred
from rollview.errors import InputError

if TYPE_CHECKING:
    import pyspark as spark_core
    from pyspark import sql as spark_sql
    from pyspark.sql import SparkSession
else:
    spark_core, spark_sql = deferred("pyspark"), deferred("pyspark.sql")

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Steps are small: few tasks, rows passed whole, no job only to list files.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.sql.autoBroadcastJoinThreshold": str(64 * 1024 * 1024),
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_AT_START = {
    # A view has some ten pieces of generated code, the same in every step. Spark would keep a hundred: those
    # of ten views, which push each other out.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # Or every column that is named costs eight calls to say where in our code that was.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""What can only be chosen when Spark is started."""


_REQUIRED = {"spark.sql.session.timeZone": ("UTC", "Etc/UTC"), "spark.sql.ansi.enabled": ("true",)}
"""What a view's values depend on: all processes of a project must agree about it."""


def check_session(session: SparkSession) -> None:
    """Refuses a session in which the same SQL could mean something else."""
    for key, allowed in _REQUIRED.items():
        found = session.conf.get(key)
        if found not in allowed:
            message = f"the Spark session has {key} = {found}, but views are maintained with {allowed[0]}"
            hint = f'session.conf.set("{key}", "{allowed[0]}"), or let rollview start its own session'
            raise InputError(message, subject=key, hint=hint)


def session_beside(session: SparkSession) -> SparkSession:
    """Another session in the same Spark, with the same settings: its jobs can be interrupted by themselves.

    Where Spark has no such thing, the session itself.
    """
    try:
        other = session.newSession()
    except Exception:  # Spark Connect may not have it.
        return session
    for key, value in session.conf.getAll.items():
        is_other = key.startswith("spark.sql.") and other.conf.get(key, None) != value
        if is_other and other.conf.isModifiable(key):
            other.conf.set(key, value)
    return other


def open_session(name: str, settings: Mapping[str, str]) -> SparkSession:
    """A session as the project file describes it: `master` or `remote`, and any `spark.*` setting."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = spark_sql.SparkSession.builder.appName(f"rollview: {name}")
    remote = settings.get("remote")
    builder = builder.remote(remote) if remote else builder.master(settings.get("master", "local[*]"))
    chosen = {key: value for key, value in settings.items() if key.startswith("spark.")}
    for key, value in ({} if remote else _DEFAULTS | _AT_START | chosen).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if remote:
        for key, value in (_DEFAULTS | chosen).items():
            if key.startswith("spark.sql."):
                session.conf.set(key, value)
    return session


def jobs_begun(session: SparkSession) -> int | None:
    """How many jobs a Spark that runs here has begun; None if it is elsewhere, or does not say."""
    context = getattr(session, "_sc", None)
    try:
        return None if context is None else int(context._jsc.sc().dagScheduler().numTotalJobs())
    except Exception:  # It has ended, or is a release that does not have it.
        return None


def java_process() -> subprocess.Popen[bytes] | None:
    """The Java process that PySpark has started; None if Spark is elsewhere."""
    gateway = spark_core.SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return process


def forget_process() -> None:
    """Lets PySpark forget a Java process that has ended: the next session starts another one."""
    spark_core.SparkContext._gateway = None
    spark_core.SparkContext._jvm = None
    spark_core.SparkContext._active_spark_context = None
    spark_sql.SparkSession._instantiatedSession = None

"""The Spark session of a project: local threads, a cluster, or a Connect server."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rollview.errors import AnswerRefused, InputError
from rollview.imports import deferred
from rollview.spark.workers import is_on_this_machine

if TYPE_CHECKING:
    import pyarrow as pa
    import pyspark as spark_core
    from pyspark import errors as spark_errors
    from pyspark import java_gateway
    from pyspark import sql as spark_sql
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import functions as f
    from pyspark.sql import types as t
else:
    spark_core, spark_sql = deferred("pyspark"), deferred("pyspark.sql")
    java_gateway = deferred("pyspark.java_gateway")
    spark_errors = deferred("pyspark.errors")
    f, t = deferred("pyspark.sql.functions"), deferred("pyspark.sql.types")

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "4g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Steps are small: few tasks, rows passed whole, no job only to list files.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.sql.autoBroadcastJoinThreshold": str(64 * 1024 * 1024),
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # No text may name files, or read settings or the environment.
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.variable.substitute": "false",
}
_ON_THIS_MACHINE = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Executors elsewhere must reach the driver."""

_AT_START = {
    # A view has some ten pieces of generated code, the same in every step. Spark would keep a hundred: those
    # of ten views, which push each other out.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # Or every column that is named costs eight calls to say where in our code that was.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""Settings that can only be chosen when Spark is started."""


_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_PYTHON = "PYSPARK_PYTHON"
_OPTIONS_OF_JAVA = {"spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"}
_ESCAPES = {each: f"\\{each}" for each in "\\=:#! "} | {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}

_REQUIRED = {"spark.sql.session.timeZone": ("UTC", "Etc/UTC"), "spark.sql.ansi.enabled": ("true",)}
"""Settings that a view's values depend on: all processes of a project must agree about them."""


def check_session(session: SparkSession) -> None:
    """Refuses a session in which the same SQL could mean something else."""
    for key, allowed in _REQUIRED.items():
        found = session.conf.get(key)
        if found not in allowed:
            message = f"the Spark session has {key} = {found}, but views are maintained with {allowed[0]}"
            hint = f'session.conf.set("{key}", "{allowed[0]}"), or let rollview start its own session'
            raise InputError(message, subject=key, hint=hint)


def session_beside(session: SparkSession) -> SparkSession:
    """Another session in the same Spark, with the same settings: its jobs can be interrupted separately.

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
    builder = spark_sql.SparkSession.builder.appName(f"rollview: {name}")
    remote = settings.get("remote")
    master = settings.get("master", "local[*]")
    builder = builder.remote(remote) if remote else builder.master(master)
    chosen = {key: value for key, value in settings.items() if key.startswith("spark.")}
    is_here = is_on_this_machine(master)
    # PySpark itself does not look at its setting.
    python = chosen.get("spark.pyspark.python") or os.environ.get(_PYTHON)
    with _environment(_PYTHON, python or (sys.executable if remote or is_here else "python3")):
        if not remote:
            given = _DEFAULTS | (_ON_THIS_MACHINE if is_here else {}) | _AT_START | chosen
            _start_java({"spark.master": master} | given)
            # Once more, to the letter: of what a file says, Spark drops spaces at the ends.
            for key, value in given.items():
                builder = builder.config(key, value)
        session = builder.getOrCreate()
    if not remote and "spark.log.level" not in settings:
        # All that fails is said by us. Java would repeat it, with its trace, on the terminal.
        session.sparkContext.setLogLevel("OFF")
    if remote:
        for key, value in (_DEFAULTS | chosen).items():
            if key.startswith("spark.sql."):
                session.conf.set(key, value)
    return session


def _start_java(settings: Mapping[str, str]) -> None:
    """Starts Spark's Java process, unless it is there, with settings that only a private file holds.

    PySpark would write each of them to the command line of that process, which every user of the machine can
    read, and any of them can be a secret. The file is gone when Spark has read it.
    """
    if spark_core.SparkContext._gateway is not None:
        return
    with TemporaryDirectory(prefix="rollview-spark-") as folder:
        options = {
            key: _java_options(Path(folder, key), settings[key]) for key in _OPTIONS_OF_JAVA & {*settings}
        }
        file = _private(Path(folder, "settings"), _properties({**settings, **options}))
        given = os.environ.get(_SUBMIT_ARGUMENTS, "pyspark-shell")
        with _environment(_SUBMIT_ARGUMENTS, f"--extra-properties-file {shlex.quote(str(file))} {given}"):
            spark_core.SparkContext._gateway = java_gateway.launch_gateway()  # type: ignore[no-untyped-call]
            spark_core.SparkContext._jvm = spark_core.SparkContext._gateway.jvm


def _java_options(file: Path, options: str) -> str:
    """Options of Java, in a file that Java reads: what Spark passes on is the name of the file."""
    quoted = (each.replace("\\", "\\\\").replace('"', '\\"') for each in shlex.split(options))
    text = "".join(f'"{each}"\n' for each in quoted)
    return f"@{_private(file, text)}"


def _properties(settings: Mapping[str, str]) -> str:
    """Settings as java.util.Properties reads them."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(each, each) for each in text)


def _private(file: Path, text: str) -> Path:
    with os.fdopen(
        os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as opened:
        opened.write(text)
    return file


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """A variable of the environment, for the programs that are started inside."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def jobs_begun(session: SparkSession) -> int | None:
    """How many jobs a Spark that runs here has begun; None if it is elsewhere, or does not say."""
    context = getattr(session, "_sc", None)
    try:
        return None if context is None else int(context._jsc.sc().dagScheduler().numTotalJobs())
    except Exception:  # It has ended, or is a release that does not have it.
        return None


def tasks_running(session: SparkSession) -> int:
    """How many tasks a Spark that runs here is computing, also for jobs that were cancelled; 0 elsewhere."""
    context = getattr(session, "_sc", None)
    if context is None:
        return 0
    executors = context._jsc.sc().statusTracker().getExecutorInfos()
    return sum(int(each.numRunningTasks()) for each in executors)


def java_process() -> subprocess.Popen[bytes] | None:
    """The Java process that PySpark has started; None if Spark is elsewhere."""
    gateway = spark_core.SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return process


def end_process() -> None:
    """Ends a Java process that was started and is unusable, so that the next session starts another one."""
    process = java_process()
    if process is not None and process.poll() is None:
        process.terminate()
    forget_process()


def forget_process() -> None:
    """Lets PySpark forget a Java process that has ended: the next session starts another one."""
    spark_core.SparkContext._gateway = None
    spark_core.SparkContext._jvm = None
    spark_core.SparkContext._active_spark_context = None
    spark_sql.SparkSession._instantiatedSession = None


# The rows of a frame in this process, as long as they are not too many or too large.
#
# Spark brings an answer to its own process as a whole before anybody can count its bytes, and one that does
# not fit ends that process, with all that it computes for others. So every row is weighed where it is made:
# the n-th row of a partition has at most an n-th of a fixed weight. A partition that passes weighs no more
# than about fifteen times as much, however its rows are chosen, and rows of one width pass up to the fixed
# weight. An answer that does not pass is measured, without being brought here; it may be allowed all the
# same.


_PLACE = (1 << 33) - 1
"""The low bits of Spark's row numbers say where a row is in its partition."""
_CAUTION = 8
_TOO_LARGE = "rollview: the answer is too large"
_FIXED_BYTES = 8
_FIRST_ROWS = (100, 3_000, 100_000)


def collected(frame: DataFrame, rows: int, size: int) -> pa.Table:
    """All rows of a frame; refuses more than so many rows or bytes."""
    # Two columns may have one name, so for so long all have others.
    plain = frame.toDF(*(f"_{place}" for place in range(len(frame.columns))))
    place = f.monotonically_increasing_id().bitwiseAND(f.lit(_PLACE)) + f.lit(1)
    fits = (place <= f.lit(rows)) & (_weight(plain) * place <= f.lit(size // _CAUTION))
    passed = f.when(fits, f.lit(True)).otherwise(f.raise_error(f.lit(_TOO_LARGE)).cast("boolean"))
    try:
        found = plain.filter(passed).toDF(*frame.columns).toArrow()
    except spark_errors.PySparkException as error:
        if _TOO_LARGE not in str(error):
            raise
        _check_measured(plain, rows, size)
        found = frame.toArrow()
    if found.num_rows > rows:
        raise _too_large(f"more than {rows:,} rows", "rows")
    return found


def _check_measured(frame: DataFrame, rows: int, size: int) -> None:
    """Counts rows and bytes by Spark, and refuses what is too much; the first rows alone may be that."""
    weights = frame.select(_weight(frame).alias("weight"))
    for some in (*(each for each in _FIRST_ROWS if each < rows), rows + 1):
        counting = weights.limit(some).agg(f.count("*").alias("rows"), f.sum("weight").alias("size"))
        counted = counting.toArrow().to_pylist()[0]
        if counted["size"] > size:
            raise _too_large(f"more than {size // 1_000_000:,} MB", "megabytes")
    if counted["rows"] > rows:
        raise _too_large(f"more than {rows:,} rows", "rows")


def _weight(frame: DataFrame) -> Column:
    """About how many bytes a row takes here."""
    fixed, weight = _FIXED_BYTES * (len(frame.columns) + 1), f.lit(0).cast("bigint")
    for field in frame.schema.fields:
        if not isinstance(field.dataType, t.NumericType | t.BooleanType | t.DatetimeType | t.NullType):
            weight += f.coalesce(_length(frame[field.name], field.dataType), f.lit(0)).cast("bigint")
    return weight + f.lit(fixed)


def _length(column: Column, kind: t.DataType) -> Column:
    is_plain = isinstance(kind, t.StringType | t.BinaryType)
    return f.octet_length(column if is_plain else column.cast("string"))


def _too_large(what: str, setting: str) -> AnswerRefused:
    hint = (
        "ask for less, such as totals or a LIMIT; `answers` in the project file sets the limits: "
        f"`{setting}`; or ask while no `rollview run` answers"
    )
    return AnswerRefused(f"the answer has {what}", subject="answers", hint=hint)

"""The Spark session, started when it is first needed, and the threads that wait for its jobs."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cached_property, lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Lock, local
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from rollview.config.project_file import FunctionEntry, ProjectFile
from rollview.errors import ProjectError, RollviewError, SparkUnavailable
from rollview.events import Events, Retry, SparkLost, SparkStarted, SparkStarting
from rollview.imports import deferred, require
from rollview.planning import unknown_functions
from rollview.retryable import may_start_later
from rollview.spark.gate import declare, own_functions, undeclared_function
from rollview.spark.session import (
    collected,
    end_process,
    forget_process,
    java_process,
    jobs_begun,
    open_session,
    session_beside,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import cloudpickle
    from pyspark import errors as spark_errors
    from pyspark import logger as spark_logger
    from pyspark.sql import DataFrame, SparkSession
else:
    cloudpickle = deferred("pyspark.cloudpickle")
    spark_errors = deferred("pyspark.errors")
    spark_logger = deferred("pyspark.logger")


# Functions of users in views: those that the project file declares to be deterministic, and no others.
#
# A view must be the same wherever and whenever it is computed. Spark knows which of its own functions are
# deterministic; of others only their authors do.


def register(spark: SparkSession, functions: Iterable[FunctionEntry]) -> None:
    """Declares the functions, and registers those whose code is in a file."""
    functions = tuple(functions)
    declare(spark, (entry.name for entry in functions))
    for entry in functions:
        if entry.file is not None:
            function = getattr(_module(entry.file), entry.name, None)
            if not callable(function):
                message = f"functions: {entry.file.name} has no function {entry.name}"
                raise ProjectError(message, subject=entry.name)
            try:
                spark.udf.register(entry.name, function, entry.returns)
            except spark_errors.PySparkException as error:
                message = f"functions: Spark does not take {entry.name}: {str(error).splitlines()[0]}"
                raise ProjectError(message, subject=entry.name) from error


def check_declared(spark: SparkSession, sql: str, functions: Iterable[FunctionEntry]) -> None:
    """Refuses functions in a view's text that are neither Spark's own nor declared."""
    declared = {entry.name.lower() for entry in functions}
    for name in unknown_functions(sql):
        if name.lower() not in declared and name.lower() not in own_functions(spark):
            raise undeclared_function(name)


@lru_cache(maxsize=64)
def _module(path: Path) -> ModuleType:
    """The module in a file, whose code travels to the executors with the functions."""
    name = f"_rollview_functions_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ProjectError(f"functions: {path} is not a Python file", subject=str(path))
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        message = f"functions: {path.name} cannot be loaded: {type(error).__name__}: {error}"
        raise ProjectError(message, subject=str(path)) from error
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Starting = Callable[[Mapping[str, str]], AbstractContextManager[Mapping[str, str] | None]]
"""Wraps the start of Spark, given the project's settings for it; yields more settings.

Without any, Spark and PySpark write nothing to the terminal.
"""

_START_PAUSES = (2.0, 5.0)
"""How many seconds to wait before another attempt to start Spark."""


T = TypeVar("T")


class _SparkNeeded(Exception):
    """The work needs Spark, which this thread must not use: it has to be done elsewhere."""


class Session:
    """A session that was given, or one made as the project file says."""

    def __init__(
        self, project: ProjectFile, events: Events, spark: SparkSession | None, starting: Starting
    ) -> None:
        self._project = project
        self._events = events
        self._around_start = starting
        self._spark = spark
        self._owns_spark = spark is None
        self._beside: Session | None = None
        self._origin: SparkSession | None = None
        self._java: subprocess.Popen[bytes] | None = None
        self._knows_functions = False
        self._starting = Lock()
        self._refusing = local()
        self.is_for_answers = False
        """Whether what is computed is limited as the project limits answers."""

    def without_spark(self, action: Callable[[], T]) -> T | None:
        """The result of an action without Spark in this thread; None if it needs Spark, running or not."""
        self._refusing.spark = True
        try:
            return action()
        except _SparkNeeded:
            return None
        finally:
            self._refusing.spark = False

    @property
    def spark(self) -> SparkSession:
        """The session itself; threads may ask at once."""
        if getattr(self._refusing, "spark", False):
            raise _SparkNeeded
        with self._starting:
            if self._is_lost():
                self._spark, self._knows_functions = None, False
            if self._spark is None:
                self._spark = self._start_spark()
            if not self._knows_functions:
                register(self._spark, self.functions)
                self._knows_functions = True
            return self._spark

    def _is_lost(self) -> bool:
        """Whether the Java process of our own Spark has ended, such as for lack of memory."""
        if self._beside is not None:
            return self._origin is not None and self._beside.spark is not self._origin
        if self._java is None or (code := self._java.poll()) is None:
            return False
        self._java = None
        forget_process()
        self._events.emit(SparkLost(code))
        return True

    def clone(self) -> Session:
        """Another session in the same Spark, for work that can be interrupted separately."""
        other = Session(self._project, self._events, None, self._around_start)
        other._beside, other._owns_spark, other.is_for_answers = self, False, self.is_for_answers
        return other

    def collected(self, frame: DataFrame) -> pa.Table:
        """The rows of a frame in this process: all of them, or as many as an answer may have."""
        if not self.is_for_answers:
            return frame.toArrow()
        limits = self._project.answers
        return collected(frame, limits.rows, limits.megabytes * 1_000_000)

    def interrupt(self) -> None:
        """Interrupts what is being computed in a clone of another session, and nothing else."""
        if self._beside is not None and self._spark not in (None, self._beside._spark):
            self.spark.interruptAll()

    @property
    def functions(self) -> tuple[FunctionEntry, ...]:
        return self._project.functions

    def _start_spark(self) -> SparkSession:
        if self._beside is not None:
            self._origin = self._beside.spark
            return session_beside(self._origin)
        if "remote" in self._project.spark:
            require("connect", "a Spark Connect server (`spark: {remote: …}`)", "or name a `master`")
        started = time.monotonic()
        self._events.emit(SparkStarting())
        session = self._started()
        self._java = java_process() if "remote" not in self._project.spark else None
        self._events.emit(SparkStarted(time.monotonic() - started))
        return session

    def _started(self) -> SparkSession:
        """Starts Spark; on a machine that is busy, once more after a while."""
        for attempt, pause in enumerate((*_START_PAUSES, None), 1):
            try:
                with self._around_start(self._project.spark) as more:
                    session = open_session(self._project.name, {**self._project.spark, **(more or {})})
                if not more:
                    _silence_queries()
                return session
            except Exception as error:
                end_process()
                if not may_start_later(f"{type(error).__name__}: {error} {error.__cause__ or ''}"):
                    raise
                away = _unavailable(error)
                if pause is None:
                    raise away from error
                kind = type(away).__name__
                self._events.emit(Retry("start Spark", attempt, pause, away.message, kind, away.subject))
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    @cached_property
    def work_pool(self) -> ThreadPoolExecutor:
        """For waiting on several sources and Spark jobs at once."""
        return ThreadPoolExecutor(max_workers=8, thread_name_prefix="rollview")

    @property
    def jobs(self) -> int | None:
        """How many jobs Spark has begun; None if it is not running here, and it is not started for that."""
        spark = self._spark
        return None if spark is None else jobs_begun(spark)

    def cancel_work(self) -> None:
        """Cancels the work that has not begun yet; does not wait for the rest."""
        if "work_pool" in self.__dict__:
            self.work_pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Stops Spark, if it was started here; a session that was given stays."""
        if self._spark is not None and self._owns_spark and not self._is_lost():
            self._spark.stop()


def _silence_queries() -> None:
    """Silences what PySpark logs of a failing query in addition to raising its error."""
    # Only PySpark can make these loggers, and loading it takes a second.

    for logger in query_loggers():
        logger.setLevel(logging.CRITICAL + 1)


def _unavailable(error: Exception) -> SparkUnavailable:
    message = error.message if isinstance(error, RollviewError) else f"Spark did not start: {error}"
    hint = "the machine, or the server of Spark, is busy: try again; --debug shows all of Spark's messages"
    return SparkUnavailable(message, subject="spark", hint=hint)


# The loggers by which PySpark writes each exception of a query to stderr, beside raising it.
#
# PySpark must make them: a logger of the standard class would refuse the arguments that PySpark gives it.


def query_loggers() -> list[logging.Logger]:
    """These loggers, so that their level can be set."""
    names = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
    return [spark_logger.PySparkLogger.getLogger(name) for name in names]

"""The Spark session, started when it is first needed, and the threads that wait for its jobs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cached_property
from threading import Lock, local
from typing import TYPE_CHECKING, TypeVar

from rollview.events import Events, SparkLost, SparkStarted, SparkStarting
from rollview.extras import require
from rollview.service.functions import register
from rollview.service.project_file import FunctionEntry, ProjectFile
from rollview.spark.session import (
    forget_process,
    java_process,
    jobs_begun,
    open_session,
    session_beside,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Starting = Callable[[Mapping[str, str]], AbstractContextManager[None]]
"""What goes on around the start of Spark, given the project's settings for it."""


T = TypeVar("T")


class _SparkNeeded(Exception):
    """Only Spark can tell, and it is not to be used: the work is to be done elsewhere."""


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

    def without_spark(self, action: Callable[[], T]) -> T | None:
        """What an action gives that does without Spark in this thread; None if it asks for Spark.

        It makes no difference whether Spark is running.
        """
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
        """Whether the Java process of our own Spark has ended, for want of memory for example."""
        if self._beside is not None:
            return self._origin is not None and self._beside.spark is not self._origin
        if self._java is None or (code := self._java.poll()) is None:
            return False
        self._java = None
        forget_process()
        self._events.emit(SparkLost(code))
        return True

    def beside(self) -> Session:
        """Another session in the same Spark, for work that can be interrupted by itself."""
        other = Session(self._project, self._events, None, self._around_start)
        other._beside, other._owns_spark = self, False
        return other

    def interrupt(self) -> None:
        """Interrupts what is being computed in a session that is beside another one, and nothing else."""
        if self._beside is not None and self._spark not in (None, self._beside._spark):
            self.spark.interruptAll()

    @property
    def functions(self) -> tuple[FunctionEntry, ...]:
        """The functions that the project declares."""
        return self._project.functions

    def _start_spark(self) -> SparkSession:
        if self._beside is not None:
            self._origin = self._beside.spark
            return session_beside(self._origin)
        if "remote" in self._project.spark:
            require("connect", "a Spark Connect server (`spark: {remote: …}`)", "or name a `master`")
        started = time.monotonic()
        self._events.emit(SparkStarting())
        with self._around_start(self._project.spark):
            session = open_session(self._project.name, self._project.spark)
        self._java = java_process() if "remote" not in self._project.spark else None
        self._events.emit(SparkStarted(time.monotonic() - started))
        return session

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
        """Cancels whatever has not begun yet; does not wait for the rest."""
        if "work_pool" in self.__dict__:
            self.work_pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Stops Spark, if it was started here; a session that was given stays."""
        if self._spark is not None and self._owns_spark and not self._is_lost():
            self._spark.stop()

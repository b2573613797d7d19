"""The process that computes answers which need Spark, for the process that has started it.

A query can harm only the Spark of this process: by joins that never end and cannot be interrupted, by values
that fill the memory. The process that maintains the project has another Spark, and kills this one when it
does not stop. This one has a lower priority and its own memory limit, ends when that is reached, and is the
first that the system kills when memory runs out.

One request at a time comes through a socket that this process has inherited, and its reply goes back there.
`{"interrupt": true}` cancels the current computation.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pyarrow as pa

from rollview.answer.answers import Reopened
from rollview.answer.local_socket import error_message, fingerprint, receive, send, send_reply
from rollview.answer.requests import Request, decoded
from rollview.config.project_file import ProjectFile, read_project_file
from rollview.errors import RollviewError, SparkUnavailable
from rollview.project.project import Project
from rollview.project.warehouse import Warehouse
from rollview.spark.session import java_process, tasks_running
from rollview.spark.workers import is_on_this_machine

_LESS_URGENT = 5
"""Added to the niceness of this process and of all that it starts."""
_ENDED_FIRST = "500"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_OF_CLUSTERS = {"spark.driver.host", "spark.driver.bindAddress", "spark.driver.port", "spark.archives"}
_DYING_SECONDS = 2.0
_LOOK_SECONDS = 0.02


class Worker:
    """Computes one answer at a time, and can be interrupted meanwhile."""

    def __init__(self, file: ProjectFile, connection: socket.socket) -> None:
        self._file, self._connection = file, connection
        warehouse = Warehouse(_with_own_spark(file))
        warehouse.session.is_for_answers = True
        self._base = Project(warehouse)
        self._project = Reopened(self._base.clone)
        self._requests: SimpleQueue[Request] = SimpleQueue()

    def serve(self) -> None:
        """Serves until the other side is gone, which sends nothing before Spark has started."""
        try:
            _warm(self._base)
        except Exception as error:
            away = error if isinstance(error, RollviewError) else _not_started(error)
            send(self._connection, error_message(away, self._file.secrets) or {})
            return
        send(self._connection, {"ready": fingerprint(self._file)})
        threading.Thread(target=self._compute, name="rollview-answer", daemon=True).start()
        with suppress(ConnectionError):
            while True:
                message = receive(self._connection)
                if "interrupt" in message:
                    with suppress(Exception):  # Whatever goes wrong, nobody waits for the result.
                        self._project.current().interrupt()
                else:
                    self._requests.put(decoded(message))

    def _compute(self) -> None:
        while True:
            self._reply(self._requests.get())

    def _reply(self, request: Request) -> None:
        try:
            reply = self._project.current().answer(request)
        except Exception as error:
            # A failure because Spark has ended says nothing about the request.
            if _has_ended(error):
                _end()
            found = error_message(error, self._file.secrets)
            if found is None:
                traceback.print_exc()
            self._wait_for_tasks()
            send(self._connection, found or {"declined": "the answer could not be computed"})
        else:
            self._wait_for_tasks()
            send_reply(self._connection, reply)

    def _wait_for_tasks(self) -> None:
        """Waits until all tasks have ended: a cancelled job is over at once, its tasks need not be.

        A task that does not end would block its slot for good. So the reply waits, and a parent that gets
        none in time kills this process.
        """
        while tasks_running(self._base.spark):
            time.sleep(_LOOK_SECONDS)


def _with_own_spark(file: ProjectFile) -> ProjectFile:
    """The project with as much memory for Spark as answers may have, and temporary files in our folder.

    It computes on this machine: whatever a cluster has may all be taken by the process that maintains views,
    and nothing there has the limits of an answer.
    """
    if "remote" in file.spark:
        return file
    if not is_on_this_machine(file.spark["master"]):
        kept = {key: value for key, value in file.spark.items() if key not in _OF_CLUSTERS}
        here = {"master": "local[*]", "spark.pyspark.python": sys.executable}
        file = replace(file, spark={**kept, **here})
    options = f"-XX:+ExitOnOutOfMemoryError -Djava.io.tmpdir={tempfile.gettempdir()}"
    given = file.spark.get(_JAVA_OPTIONS, "")
    memory = {"spark.driver.memory": f"{file.answers.memory}m", _JAVA_OPTIONS: f"{given} {options}".strip()}
    return replace(file, spark={**file.spark, **memory})


def _warm(project: Project) -> None:
    """The first query of a session takes seconds: classes are loaded, and code is made."""
    one = pa.table({"one": pa.array([1], pa.int64())})
    project.spark.createDataFrame(one).orderBy("one").limit(1).toArrow()


def _not_started(error: Exception) -> SparkUnavailable:
    reason = str(error).partition("\n")[0] or type(error).__name__
    hint = "check `spark` in the project file, and Java"
    return SparkUnavailable(f"Spark did not start for answers: {reason}", subject="spark", hint=hint)


def _has_ended(error: Exception) -> bool:
    """Whether Spark's own process has ended, or is ending."""
    java = java_process()
    if java is None:
        return False
    is_of_project = isinstance(error, RollviewError) or type(error).__module__.startswith("pyspark.")
    with suppress(subprocess.TimeoutExpired):
        java.wait(0 if is_of_project else _DYING_SECONDS)
    return java.poll() is not None


def _give_way() -> None:
    """Yields processors and memory to the process that maintains the project."""
    with suppress(OSError):
        os.nice(_LESS_URGENT)
    with suppress(OSError):  # Where Linux shares processors among sessions, this one is a session of its own.
        Path("/proc/self/autogroup").write_text(str(_LESS_URGENT), encoding="ascii")
    with suppress(OSError):  # Only Linux has it.
        Path("/proc/self/oom_score_adj").write_text(_ENDED_FIRST, encoding="ascii")


def _end() -> None:
    """Ends this process with all that it has started, at once, and leaves no files behind."""
    shutil.rmtree(tempfile.gettempdir(), ignore_errors=True)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """`python -m rollview.project.answer_worker PROJECT DESCRIPTOR`, as `AnswerProcess` starts it."""
    path, descriptor = sys.argv[1:]
    connection = socket.socket(fileno=int(descriptor))
    _give_way()
    try:
        Worker(read_project_file(Path(path)), connection).serve()
    except ConnectionError:
        pass
    except BaseException:
        traceback.print_exc()
    _end()


if __name__ == "__main__":
    main()

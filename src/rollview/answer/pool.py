"""Answers that need Spark, beside the work of a process: bounded in number, and each in time.

Page and socket give their requests to one pool. It has a few lanes, each a thread with a process of its own
that computes (`answer_worker`), started with the first request. A request that finds no free lane waits
for a while and is then refused. An answer that takes too long or too much disk, or whose client is gone, is
interrupted; a process that does not stop is killed, and the next request starts another one.

So no query can affect the Spark that maintains the views.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from rollview.answer.local_socket import fingerprint, receive, received_reply, send
from rollview.answer.requests import Reply, Request, encoded
from rollview.config.project_file import AnswerLimits, ProjectFile
from rollview.errors import AnswerRefused, AnswersBusy

# A process that computes answers, as its parent sees it: asked, interrupted, ended.
#
# It can be ended at any moment, whatever it is doing: with all its children and
# its temporary files.


_log = logging.getLogger(__name__)

_WORKER = "rollview.project.answer_worker"
_REPLY_SECONDS = 60.0
"""How long the rest of a reply may take once it has begun."""
_LAST_WORDS = 2_000


class AnswerProcess:
    """One process with a Spark of its own."""

    def __init__(self, project: ProjectFile) -> None:
        """Starts the process without waiting until it is ready."""
        self._project = project
        self._folder = TemporaryDirectory(
            prefix="rollview-answers-", dir=_scratch(project), ignore_cleanup_errors=True
        )
        self._said = Path(self._folder.name, "said")
        self._connection, theirs = socket.socketpair()
        self._connection.settimeout(_REPLY_SECONDS)
        self._is_ready = False
        # Spark prefers the variable to its setting.
        own = {"TMPDIR": self._folder.name, "SPARK_LOCAL_DIRS": self._folder.name}
        with theirs, self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _WORKER, str(project.path), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={**os.environ, **own},
                start_new_session=True,
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait(self, seconds: float) -> bool:
        """Waits at most so long for a message, or for its end."""
        readable = select.poll()
        readable.register(self._connection, select.POLLIN)
        return bool(readable.poll(seconds * 1000))

    def check_ready(self) -> None:
        """Receives its first message; raises the error that kept Spark from starting."""
        message = receive(self._connection)
        if "error" in message:
            received_reply(self._connection, message)
        if message.get("ready") != fingerprint(self._project):
            raise AnswerRefused(
                f"{self._project.path.name} has been changed since this process was started",
                subject=str(self._project.path),
                hint="start it again",
            )
        self._is_ready = True

    @property
    def is_ready(self) -> bool:
        """Whether it has said that Spark has started."""
        return self._is_ready

    def ask(self, request: Request) -> None:
        """Sends a request; its reply is there when `wait` says so."""
        send(self._connection, encoded(request))

    def reply(self) -> Reply:
        """The reply that has come, or its error raised; ConnectionError if the process has ended."""
        message = receive(self._connection)
        if "declined" in message:
            _log.error("an answer could not be computed:\n%s", self._last_words())
            raise AnswerRefused(str(message["declined"]), subject="answers", hint="the log says why")
        return received_reply(self._connection, message)

    def interrupt(self) -> None:
        """Asks it to cancel what it is computing."""
        with suppress(OSError):
            send(self._connection, {"interrupt": True})

    def megabytes(self) -> float:
        """Its temporary files on the disk, in megabytes."""
        return sum(_sizes(self._folder.name)) / 1e6

    def end(self) -> None:
        """Kills it with all its children, whatever it is doing, and removes its files."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._connection.close()
        _log.debug("a process for answers has ended: %s", self._last_words())
        # Its children may take a moment to end, and write files until then.
        for pause in (0.0, 0.2, 1.0):
            time.sleep(pause)
            self._folder.cleanup()
            if not Path(self._folder.name).exists():
                break

    def _last_words(self) -> str:
        with suppress(OSError):
            said = self._said.read_text(encoding="utf-8", errors="replace")[-_LAST_WORDS:]
            return self._project.secrets.hide_foreign(said)
        return ""


def _scratch(project: ProjectFile) -> str:
    """The folder for temporary files that Spark would use."""
    given = os.environ.get("SPARK_LOCAL_DIRS") or project.spark.get("spark.local.dir", "")
    first = given.split(",")[0].strip()
    return first if first and Path(first).is_dir() else gettempdir()


def _sizes(folder: str) -> list[int]:
    found = []
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # It is gone already.
                found.append(Path(parent, name).lstat().st_blocks * 512)
    return found


LOOK_SECONDS = 0.2
OBEY_SECONDS = 3.0
"""How long a process may take to stop after it was interrupted."""
START_SECONDS = 180.0
IDLE_SECONDS = 600.0
"""After so long without a request, all lanes but one end their process."""
_DISK_SECONDS = 1.0
_MOST_WAITING = 16
"""Each may block a thread of its caller."""
_MORE = "`answers` in the project file sets the limits"


@dataclass(eq=False)
class Asked:
    """A request and its future. Without a request, only a process is started."""

    request: Request | None
    answer: Future[Reply] = field(default_factory=Future)
    asked_at: float = field(default_factory=time.monotonic)
    unwanted: bool = False

    def cancel(self) -> None:
        """Marks that nobody waits for the answer any more."""
        self.unwanted = True

    def refuse(self, error: BaseException) -> None:
        """Gives up; a running answer is interrupted until it has ended."""
        self.unwanted = True
        with suppress(Exception):  # The answer may just have come.
            self.answer.set_exception(error)


class AnswerPool:
    """Lanes, and the requests that wait for one."""

    def __init__(self, project: ProjectFile) -> None:
        self.project = project
        self.limits: AnswerLimits = project.answers
        self._lock = threading.Condition()
        self._waiting: deque[Asked] = deque()
        self._lanes: list[Lane] = []
        self.is_closed = False

    def warm(self) -> None:
        """Has one process start Spark before somebody asks."""
        self._put(Asked(None))

    def ask(self, request: Request) -> Asked:
        """Queues a request; refuses it if the queue is full."""
        return self._put(Asked(request))

    def _put(self, asked: Asked) -> Asked:
        with self._lock:
            self._drop_unwanted()
            if len(self._waiting) >= _MOST_WAITING:
                raise _busy(0.0)
            self._waiting.append(asked)
            idle = sum(lane.asked is None for lane in self._lanes)
            if len(self._lanes) < self.limits.at_once and idle < len(self._waiting):
                self._lanes.append(Lane(self, is_first=not self._lanes))
            self._lock.notify_all()
        return asked

    def close(self) -> None:
        """Stops answering; ends what is being computed."""
        with self._lock:
            self.is_closed = True
            for asked in [*self._waiting, *(lane.asked for lane in self._lanes if lane.asked)]:
                asked.refuse(AnswersBusy("the process that was asked ends", hint="ask again"))
            self._waiting.clear()
            self._lock.notify_all()
        for lane in self._lanes:
            lane.join()

    def next_for(self, lane: Lane, seconds: float) -> Asked | None:
        """The next request for a lane, when there is one; None after so long, and at the end."""
        with self._lock:
            lane.asked = None
            self._lock.wait_for(lambda: self.is_closed or self._drop_unwanted(), seconds)
            if self._waiting and not self.is_closed:
                lane.asked = self._waiting.popleft()
            return lane.asked

    def turn_away(self) -> None:
        """Refuses requests that have waited too long for a lane."""
        with self._lock:
            late = time.monotonic() - self.limits.wait
            for asked in self._waiting:
                if asked.request is not None and asked.asked_at < late:
                    asked.refuse(_busy(self.limits.wait))
            self._drop_unwanted()

    def _drop_unwanted(self) -> bool:
        """Whether somebody still waits for the answer."""
        self._waiting = deque(each for each in self._waiting if not each.unwanted)
        return bool(self._waiting)


class Lane:
    """One thread, and the process that computes for it."""

    def __init__(self, pool: AnswerPool, is_first: bool) -> None:
        self.asked: Asked | None = None
        self._pool, self._is_first = pool, is_first
        self._process: AnswerProcess | None = None
        self._thread = threading.Thread(target=self._run, name="rollview-answers", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Waits until its process has ended."""
        self._thread.join(OBEY_SECONDS)

    def _run(self) -> None:
        while not self._pool.is_closed:
            asked = self._pool.next_for(self, IDLE_SECONDS)
            if asked is not None:
                self._serve(asked)
            elif not self._is_first:
                self._end()
        self._end()

    def _serve(self, asked: Asked) -> None:
        try:
            process = self._ready()
            if asked.request is None or asked.unwanted:
                return
            process.ask(asked.request)
            self._watch(process, asked)
            if self._process is not None:
                reply = process.reply()
                with suppress(Exception):  # It may have been refused meanwhile.
                    asked.answer.set_result(reply)
        except (OSError, EOFError) as error:
            has_started = self._process is not None and self._process.is_ready
            self._end()
            if not has_started:
                reason = f"a process for answers could not be started: {error}"
                asked.refuse(AnswersBusy(reason, subject="answers", hint="ask again later"))
                return
            message = "the answer was ended: it took more memory than answers may, or Spark was ended"
            hint = f"ask for less, such as fewer rows; {_MORE}: `memory`"
            asked.refuse(AnswerRefused(message, subject="answers", hint=hint))
        except BaseException as error:
            if self._process is not None and not self._process.is_ready:
                self._end()
            asked.refuse(error)

    def _ready(self) -> AnswerProcess:
        """The process, once its Spark has started; refuses requests that have waited too long meanwhile."""
        if self._process is not None and not self._process.is_alive:
            self._end()
        if self._process is None:
            self._process = AnswerProcess(self._pool.project)
        deadline = time.monotonic() + START_SECONDS
        while not self._process.is_ready:
            if self._process.wait(LOOK_SECONDS):
                self._process.check_ready()
            elif self._pool.is_closed or time.monotonic() > deadline:
                self._end()
                raise AnswersBusy("Spark did not start in time", subject="spark", hint="ask again later")
            self._pool.turn_away()
        return self._process

    def _watch(self, process: AnswerProcess, asked: Asked) -> None:
        """Until the reply is there, or the process has been ended because it did not give up."""
        began = looked = time.monotonic()
        unwanted_since = 0.0
        while not process.wait(LOOK_SECONDS):
            self._pool.turn_away()
            now = time.monotonic()
            if asked.unwanted:
                unwanted_since = unwanted_since or now
                process.interrupt()
                if self._pool.is_closed or now - unwanted_since > OBEY_SECONDS:
                    self._end()
                    return
            elif now - began > self._pool.limits.time:
                asked.refuse(self._too_slow())
            elif now - looked > _DISK_SECONDS:
                looked = now
                if process.megabytes() > self._pool.limits.disk:
                    asked.refuse(self._too_large())

    def _too_slow(self) -> AnswerRefused:
        message = f"the answer takes longer than {self._pool.limits.time:g} s"
        hint = f"ask for less, such as fewer rows; {_MORE}: `time`"
        return AnswerRefused(message, subject="answers", hint=hint)

    def _too_large(self) -> AnswerRefused:
        message = f"the answer takes more than {self._pool.limits.disk:,} MB of the disk while it is computed"
        return AnswerRefused(message, subject="answers", hint=f"ask for less; {_MORE}: `disk`")

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()


def _busy(seconds: float) -> AnswersBusy:
    waited = f" after {seconds:g} s" if seconds else ""
    message = f"other answers are being computed, and it is not your turn{waited}"
    return AnswersBusy(message, subject="answers", hint=f"ask again later; {_MORE}: `at_once`")

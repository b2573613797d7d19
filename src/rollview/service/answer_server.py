"""Answers requests of other processes beside the work of this one, through the project's private socket.

What needs no Spark is answered by one thread, what does by another: one request at a time in each, so that
maintenance goes on as if it were alone. Both have a catalog and sources of their own, as another process
would; they share the Spark session. A client that goes away cancels what was computed for it.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rollview.errors import RollviewError
from rollview.service.local_socket import connections, fingerprint, is_own_user, listen, receive, send
from rollview.service.project_file import ProjectFile
from rollview.service.requests import Reply, Request, decoded

if TYPE_CHECKING:
    from rollview.service.project import Project

_log = logging.getLogger(__name__)

MOST_CLIENTS = 16
REQUEST_SECONDS, REPLY_SECONDS = 5.0, 60.0
"""How long a client may take to ask, and to take what it asked for."""
SIGN_OF_LIFE_SECONDS, LOOK_SECONDS = 1.0, 0.2
START_SECONDS = 60.0
"""How long the end of this process waits for Spark while it is being started."""
_BATCH_ROWS = 10_000
_OWN = ("version", "settings", "zone")

Work = Callable[["Project"], Any]


class AnswerServer:
    """A socket, a thread that waits at it, and one for each client."""

    def __init__(self, project: ProjectFile, opened: Callable[[], Project]) -> None:
        """`opened` gives the project once more, with parts of its own."""
        self._project = project
        self._quick_lane, self._spark_lane = _Lane("quick", opened), _Lane("spark", opened)
        self._warming: Future[Any] | None = None
        self._clients = threading.BoundedSemaphore(MOST_CLIENTS)
        self._listener, self.path = listen(project)
        self._is_closing = False
        self._thread = threading.Thread(target=self._accept, name="rollview-answers", daemon=True)

    def start(self, warm: bool) -> None:
        """Begins to answer; `warm` has Spark ready before the first one asks."""
        # Files of processes that were killed are removed on the way.
        for connection in connections(self._project):
            connection.close()
        self._thread.start()
        if warm:
            self._warming = self._spark_lane.submit(_warm)

    def close(self) -> None:
        """Answers nobody any more; whoever waits for an answer looks for it elsewhere."""
        self._is_closing = True
        with suppress(OSError):
            self.path.unlink()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._warming is not None:
            # Whoever starts Spark has taken the output of this process aside for so long.
            wait([self._warming], START_SECONDS)
        for lane in (self._quick_lane, self._spark_lane):
            lane.close()

    def _accept(self) -> None:
        while not self._is_closing:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.settimeout(REQUEST_SECONDS)
                if not is_own_user(connection):
                    return
                if not self._clients.acquire(blocking=False):
                    send(connection, {"declined": "too many others are asking"})
                    return
                try:
                    self._answer(connection)
                finally:
                    self._clients.release()
            except OSError:
                # The client is gone, or was never one.
                return
            except Exception:
                _log.exception("a request could not be answered")

    def _answer(self, connection: socket.socket) -> None:
        message = receive(connection)
        own = fingerprint(self._project)
        if message.get("version") != own["version"]:
            send(connection, {"declined": "the process that runs the project is of another release"})
            return
        if {name: message.get(name) for name in own} != own:
            send(connection, {"declined": "the process that runs the project has other settings"})
            return
        try:
            request = decoded({name: each for name, each in message.items() if name not in _OWN})
        except ValueError as error:
            send(connection, {"declined": str(error)})
            return
        send(connection, {"accepted": True})
        try:
            reply = self._quick(connection, request) or self._by_spark(connection, request)
        except OSError:
            raise
        except Exception as error:
            send(connection, self._told(error))
        else:
            _send_reply(connection, reply)

    def _told(self, error: Exception) -> dict[str, Any]:
        """An error as a message: one of the request as it is; of any other, the client finds out itself."""
        hide, kind = self._project.secrets.hide, type(error).__name__
        if isinstance(error, RollviewError):
            told = {"message": hide(error.message), "subject": error.subject, "hint": error.hint}
            return {"error": {"kind": kind, **told}}
        if type(error).__module__.startswith("pyspark."):
            return {"error": {"kind": kind, "message": hide(str(error)), "subject": "", "hint": ""}}
        _log.error("a request could not be answered", exc_info=error)
        return {"declined": "the process that runs the project failed to answer"}

    def _quick(self, connection: socket.socket, request: Request) -> Reply | None:
        work = self._quick_lane.submit(lambda project: project.answer_without_spark(request))
        found: Reply | None = self._awaited(connection, work, "reading")
        return found

    def _by_spark(self, connection: socket.socket, request: Request) -> Reply:
        lane = self._spark_lane
        work = lane.submit(lambda project: project.answer(request))
        found: Reply = self._awaited(connection, work, "querying", lane.interrupt)
        return found

    def _awaited(
        self,
        connection: socket.socket,
        work: Future[Any],
        what: str,
        interrupt: Callable[[], None] = lambda: None,
    ) -> Any:
        """The result of some work; a sign of life every second, until the client is gone."""
        told = time.monotonic()
        try:
            while wait([work], LOOK_SECONDS).not_done:
                # A client says nothing after its request, so whatever can be read is its end.
                if select.select([connection], [], [], 0.0)[0] or self._is_closing:
                    raise ConnectionError("the client is gone, or this process ends")
                if time.monotonic() - told >= SIGN_OF_LIFE_SECONDS:
                    told = time.monotonic()
                    send(connection, {"working": what})
        except OSError:
            # Again and again: what has not begun yet cannot be interrupted, and begins another job later.
            while not work.cancel() and wait([work], LOOK_SECONDS).not_done:
                interrupt()
            raise
        return work.result()


class _Lane:
    """One thread with a project of its own, opened with the first request.

    It ends with the process, whatever it is doing.
    """

    def __init__(self, name: str, opened: Callable[[], Project]) -> None:
        self._opened = opened
        self._project: Project | None = None
        self._waiting: SimpleQueue[tuple[Future[Any], Work] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=f"rollview-answers-{name}", daemon=True).start()

    def submit(self, work: Work) -> Future[Any]:
        """Does some work when its turn has come."""
        future: Future[Any] = Future()
        self._waiting.put((future, work))
        return future

    def interrupt(self) -> None:
        """Interrupts what Spark computes here right now."""
        with suppress(Exception):  # Whatever goes wrong, nobody waits for the result.
            if self._project is not None:
                self._project.interrupt()

    def close(self) -> None:
        """Ends when what runs is done."""
        self._waiting.put(None)

    def _run(self) -> None:
        while (next_one := self._waiting.get()) is not None:
            future, work = next_one
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work(self._current()))
            except BaseException as error:
                future.set_exception(error)
        if self._project is not None:
            self._project.close()

    def _current(self) -> Project:
        """The project that was opened, or anew if its catalog has been replaced by another one."""
        if self._project is not None and self._project.is_replaced:
            self._project.close()
            self._project = None
        if self._project is None:
            self._project = self._opened()
        return self._project


def _warm(project: Project) -> None:
    """The first query of a session takes seconds: classes are loaded, and code is made."""
    one = pa.table({"one": pa.array([1], pa.int64())})
    project.spark.createDataFrame(one).orderBy("one").limit(1).toArrow()


def _send_reply(connection: socket.socket, reply: Reply) -> None:
    """Facts first, then the rows as a stream; a client that does not take them is not waited for."""
    connection.settimeout(REPLY_SECONDS)
    facts, page = dict(reply.facts), reply.page
    if page is None:
        send(connection, {"facts": facts, "rows": None})
        return
    send(connection, {"facts": facts, "rows": page.rows.num_rows, "total": page.total})
    with (
        connection.makefile("wb") as stream,
        pa.ipc.new_stream(stream, page.rows.schema) as writer,
    ):
        writer.write_table(page.rows, max_chunksize=_BATCH_ROWS)


@contextmanager
def serving(project: ProjectFile, opened: Callable[[], Project], warm: bool) -> Iterator[Path | None]:
    """Answers others inside; gives the path of the socket, None where there can be none."""
    try:
        server = AnswerServer(project, opened)
    except OSError as error:
        # The work itself does not depend on it.
        _log.warning("no answers to other processes: %s", error)
        yield None
        return
    try:
        server.start(warm)
        yield server.path
    finally:
        server.close()

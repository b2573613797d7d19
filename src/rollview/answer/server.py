"""Answers requests of other processes beside the work of this one, through the project's private socket.

One thread answers requests for rows that need no Spark, one at a time. Another one reports status and
explains views, and waits for sources if these are slow. The others go to the pool of answers, which this
socket shares with the page. A client that disconnects cancels its answer.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from rollview.answer.answers import Answering, Reopened
from rollview.answer.local_socket import (
    AS_VALUES,
    connections,
    error_message,
    fingerprint,
    is_own_user,
    listen,
    receive,
    send,
    send_reply,
)
from rollview.answer.open_connections import OpenConnections, most_connections
from rollview.answer.pool import AnswerPool
from rollview.answer.requests import (
    DeltasRequest,
    ExplainRequest,
    ReadRequest,
    Reply,
    Request,
    StatusRequest,
    decoded,
)
from rollview.config.project_file import ProjectFile
from rollview.errors import AnswersBusy

_log = logging.getLogger(__name__)

MOST_CLIENTS = 16
REQUEST_SECONDS, REPLY_SECONDS = 5.0, 60.0
"""How long a client may take to send its request, and to read the reply."""
SIGN_OF_LIFE_SECONDS, LOOK_SECONDS = 1.0, 0.2
_PAUSE_SECONDS = 0.5
_OWN = ("version", "settings", "zone")

T = TypeVar("T")


class _NotHere(Exception):
    """The client has to find the answer itself."""

    message = "only a view that is set up is explained by the process that runs the project"


class _Reader:
    """A thread with a project of its own, which answers what needs no Spark, one request after the other."""

    def __init__(self, opened: Callable[[], Answering], name: str) -> None:
        self._project = Reopened(opened)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    def begin(self, request: Request) -> Future[Reply | None]:
        return self._thread.submit(lambda: self._project.current().answer_without_spark(request))

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._project.close()


class AnswerServer:
    """A socket, a thread that waits at it, and one for each client."""

    def __init__(self, project: ProjectFile, opened: Callable[[], Answering], pool: AnswerPool) -> None:
        """`opened` opens the project a second time, with parts of its own; `pool` has a Spark for answers."""
        self._project, self._pool = project, pool
        self._rows = _Reader(opened, "rollview-answers-read")
        self._reports = _Reader(opened, "rollview-answers-report")
        self._clients = OpenConnections[socket.socket](most_connections(MOST_CLIENTS), _end, REQUEST_SECONDS)
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
            self._pool.warm()

    def close(self) -> None:
        """Stops answering; waiting clients look for an answer elsewhere."""
        self._is_closing = True
        with suppress(OSError):
            self.path.unlink()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._pool.close()
        self._rows.close()
        self._reports.close()

    def _accept(self) -> None:
        self._listener.settimeout(SIGN_OF_LIFE_SECONDS)
        while not self._is_closing:
            self._clients.end_overdue()
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                # It is closed; or the client was gone at once, or there is no descriptor left right now.
                time.sleep(_PAUSE_SECONDS)
                continue
            self._begin(connection)

    def _begin(self, connection: socket.socket) -> None:
        """Serves a client in a thread of its own, or says that there are too many."""
        connection.settimeout(REQUEST_SECONDS)
        try:
            if is_own_user(connection):
                if self._clients.add(connection):
                    threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
                    return
                send(connection, {"declined": "too many others are asking"})
        except (OSError, RuntimeError):  # It is gone, or no thread can be begun.
            self._clients.remove(connection)
        connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                self._answer(connection)
        except OSError:
            # The client is gone, or was never one.
            return
        except Exception:
            _log.exception("a request could not be answered")
        finally:
            self._clients.remove(connection)

    def _answer(self, connection: socket.socket) -> None:
        message = receive(connection)
        self._clients.asked(connection)
        own = fingerprint(self._project)
        if message.get("version") != own["version"]:
            send(connection, {"declined": "the process that runs the project is of another release"})
            return
        if {name: message.get(name) for name in own} != own:
            send(connection, {"declined": "the process that runs the project has other settings"})
            return
        try:
            as_values = message.pop(AS_VALUES, False) is True
            request = decoded({name: each for name, each in message.items() if name not in _OWN})
        except ValueError as error:
            send(connection, {"declined": str(error)})
            return
        send(connection, {"accepted": True})
        try:
            reply = self._without_spark(connection, request) or self._by_spark(connection, request)
        except OSError:
            raise
        except (AnswersBusy, _NotHere) as reason:
            send(connection, {"declined": reason.message})
        except Exception as error:
            send(connection, self._message_of(error))
        else:
            # A client that does not take its rows is not waited for.
            connection.settimeout(REPLY_SECONDS)
            send_reply(connection, reply, as_values)

    def _message_of(self, error: Exception) -> dict[str, Any]:
        """An error of the request as a message; after any other the client tries itself."""
        found = error_message(error, self._project.secrets)
        if found is None:
            _log.error("a request could not be answered", exc_info=error)
        return found or {"declined": "the process that runs the project failed to answer"}

    def _without_spark(self, connection: socket.socket, request: Request) -> Reply | None:
        """What can be read here; SQL texts of others are parsed only by another process."""
        if isinstance(request, StatusRequest | ExplainRequest):
            report = self._reports.begin(request)
            found = self._awaited(connection, report, report.cancel, "looking")
            if found is None:
                raise _NotHere
            return found
        if not isinstance(request, ReadRequest | DeltasRequest):
            return None
        answer = self._rows.begin(request)
        return self._awaited(connection, answer, answer.cancel, "reading")

    def _by_spark(self, connection: socket.socket, request: Request) -> Reply:
        asked = self._pool.ask(request)
        return self._awaited(connection, asked.answer, asked.cancel, "querying")

    def _awaited(
        self, connection: socket.socket, answer: Future[T], cancel: Callable[[], object], what: str
    ) -> T:
        """An answer; a sign of life every second, until the client is gone."""
        shown = time.monotonic()
        readable = select.poll()
        readable.register(connection, select.POLLIN)
        try:
            while wait([answer], LOOK_SECONDS).not_done:
                # A client sends nothing after its request, so readable means closed.
                if readable.poll(0) or self._is_closing:
                    raise ConnectionError("the client is gone, or this process ends")
                if time.monotonic() - shown >= SIGN_OF_LIFE_SECONDS:
                    shown = time.monotonic()
                    send(connection, {"working": what})
        except OSError:
            cancel()
            raise
        return answer.result()


def _end(connection: socket.socket) -> None:
    """Wakes the thread that reads from a connection; that one closes it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def serving(
    project: ProjectFile, opened: Callable[[], Answering], pool: AnswerPool, warm: bool
) -> Iterator[Path | None]:
    """Answers others while the context lasts; yields the path of the socket, None if there can be none."""
    try:
        server = AnswerServer(project, opened, pool)
    except OSError as error:
        # The work does not depend on it.
        _log.warning("no answers to other processes: %s", error)
        yield None
        return
    try:
        server.start(warm)
        yield server.path
    finally:
        server.close()

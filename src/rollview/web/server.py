"""Serves the page from a thread beside the other work of the process.

Clients cannot harm that work: connections are limited in number, requests and unread answers in time, headers
and forms in size.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rollview.answer.open_connections import OpenConnections, most_connections
from rollview.errors import OptionError
from rollview.monitoring import Monitor
from rollview.project.project import Project
from rollview.web.address import Access
from rollview.web.app import make_app
from rollview.web.watch import Watch

_log = logging.getLogger(__name__)

_ACCEPTED_AT_ONCE, _MOST_WAITING = 16, 1024
"""Accepted connections have descriptors before they can be counted; waiting ones have none."""
LARGEST_HEADERS = 32_000
ANSWER_SECONDS, _LEAST_PROGRESS = 30.0, 64_000
"""A client that takes less than so many bytes of its answer in this time is gone."""
_KEEP_ALIVE_SECONDS = 5
_ASKING = ("IDLE", "SEND_BODY")
"""h11's states of a client whose request is not complete yet."""
_LOOK_SECONDS = 1.0
_SHUTDOWN_SECONDS = 2
_START_SECONDS = 20.0


@contextmanager
def serving(project: Project, watch: Watch, access: Access, monitor: Monitor) -> Iterator[str]:
    """Serves while the context lasts; yields the URL to open. The monitored project computes answers."""
    listener = _listen(access)
    port = int(listener.getsockname()[1])
    config = uvicorn.Config(
        make_app(project, watch, access, monitor, monitor.project.answers),
        http=_bounded_protocol(),
        ws="none",
        loop="asyncio",
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        backlog=_ACCEPTED_AT_ONCE,
        h11_max_incomplete_event_size=LARGEST_HEADERS,
        lifespan="off",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), name="rollview-page", daemon=True)
    thread.start()
    try:
        _wait_until_started(server, thread)
        listener.listen(_MOST_WAITING)
        yield access.url(port)
    finally:
        watch.close()
        server.should_exit = True
        thread.join(_SHUTDOWN_SECONDS + 3)
        listener.close()


def _bounded_protocol() -> type[H11Protocol]:
    """uvicorn's HTTP, for the connections of one table."""
    connections = OpenConnections[H11Protocol](most_connections(), _abort)

    class BoundedProtocol(H11Protocol):
        """One connection."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Takes a place in the table."""
            super().connection_made(transport)
            self._buffered, self._moved_at = 0, time.monotonic()
            self._looking = self.loop.call_later(_LOOK_SECONDS, self._look)
            if not connections.add(self):
                transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            """Gives it back."""
            self._looking.cancel()
            connections.remove(self)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            """Receives data; a client that breaks the rules during an answer is disconnected."""
            try:
                super().data_received(data)
            except Exception:  # Otherwise the event loop would log each occurrence.
                _log.debug("a client broke the rules of HTTP", exc_info=True)
                self.transport.abort()
                return
            self._see_request()

        def on_response_complete(self) -> None:
            """After an answer the client has the same time as before to ask again."""
            connections.asks_again(self)
            try:
                super().on_response_complete()
            except Exception:  # The data after the request was not another request.
                _log.debug("a client broke the rules of HTTP", exc_info=True)
                self.transport.abort()
            self._see_request()

        def _see_request(self) -> None:
            """Notes whether the client has sent its whole request."""
            if self.conn.their_state.__name__ not in _ASKING:
                connections.asked(self)

        def _look(self) -> None:
            """Closes clients that send no request, and this one if it does not read its answer."""
            connections.end_overdue()
            buffered, now = self.transport.get_write_buffer_size(), time.monotonic()
            if not buffered or buffered > self._buffered or buffered <= self._buffered - _LEAST_PROGRESS:
                self._buffered, self._moved_at = buffered, now
            if now - self._moved_at > ANSWER_SECONDS:
                self.transport.abort()
            self._looking = self.loop.call_later(_LOOK_SECONDS, self._look)

    return BoundedProtocol


def _abort(connection: Any) -> None:
    connection.transport.abort()


def _listen(access: Access) -> socket.socket:
    address = access.address
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        hint = "choose another port, or 0 for any that is free"
        raise OptionError(
            f"cannot listen on {address.shown}: {error.strerror or error}", subject=address.shown, hint=hint
        ) from error
    return listener


def _wait_until_started(server: uvicorn.Server, thread: threading.Thread) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not server.started and thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.02)

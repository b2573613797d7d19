"""`/metrics`, `/healthz` and `/readyz` over HTTP, from a thread of the process that is watched."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST

from rollview.answer.open_connections import OpenConnections, most_connections
from rollview.errors import OptionError
from rollview.monitoring.monitor import Answer, Monitor, health, metrics_text, ready

_TIMEOUT_SECONDS = 10.0
_MOST_CONNECTIONS, _MOST_WAITING = 16, 128

_log = logging.getLogger(__name__)


@contextmanager
def serving(monitor: Monitor, host: str, port: int) -> Iterator[str]:
    """Serves while the context lasts; yields the URL. Port 0 takes a free one."""
    place = f"[{host}]" if ":" in host else host
    try:
        server = _server_class(host)((host, port), _handler(monitor))
    except OSError as error:
        hint = "choose another port, or end the program that listens there"
        message = f"cannot serve metrics at {place}:{port}: {error.strerror or error}"
        raise OptionError(message, subject=f"{place}:{port}", hint=hint) from error
    thread = threading.Thread(target=server.serve_forever, name="rollview-metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{place}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _server_class(host: str) -> type[ThreadingHTTPServer]:
    class Server(ThreadingHTTPServer):
        """Answers each request in a thread of its own; both number and time are limited."""

        # A request that hangs must not keep the process from ending.
        daemon_threads = True
        block_on_close = False
        request_queue_size = _MOST_WAITING
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def __init__(self, *arguments: Any) -> None:
            # A connection is for one request, so one that is open too long never sent it.
            self.connections = OpenConnections[socket.socket](most_connections(_MOST_CONNECTIONS), _end)
            super().__init__(*arguments)

        def process_request(self, request: Any, client_address: Any) -> None:
            """Begins a thread, if there is room for the connection."""
            if not self.connections.add(request):
                self.shutdown_request(request)
                return
            super().process_request(request, client_address)

        def shutdown_request(self, request: Any) -> None:
            """The connection is over."""
            self.connections.remove(request)
            super().shutdown_request(request)

        def service_actions(self) -> None:
            """Closes connections that take too long; twice a second."""
            self.connections.end_overdue()

        def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
            """Logs a client that disconnected, at DEBUG only."""
            _log.debug("a request for metrics broke off", exc_info=True)

    return Server


def _end(connection: socket.socket) -> None:
    """Wakes the thread that reads from a connection or writes to it; that one closes it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _handler(monitor: Monitor) -> type[BaseHTTPRequestHandler]:
    def probed(probe: Callable[[Monitor], Answer]) -> tuple[int, str, bytes]:
        answer = probe(monitor)
        text = json.dumps(answer.body, ensure_ascii=False) + "\n"
        return 200 if answer.ok else 503, "application/json", text.encode()

    answers: dict[str, Callable[[], tuple[int, str, bytes]]] = {
        "/metrics": lambda: (200, CONTENT_TYPE_LATEST, metrics_text(monitor)),
        "/healthz": lambda: probed(health),
        "/readyz": lambda: probed(ready),
    }

    class Handler(BaseHTTPRequestHandler):
        """One request."""

        timeout = _TIMEOUT_SECONDS
        server_version, sys_version = "rollview", ""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path not in answers:
                text = f"there are {', '.join(answers)}\n".encode()
                self._answer(404, "text/plain; charset=utf-8", text)
                return
            try:
                answer = answers[path]()
            except Exception:
                # The client can do nothing about it; the log has the error.
                _log.exception("%s could not be answered", path)
                answer = (500, "text/plain; charset=utf-8", b"an internal error; the log says more\n")
            self._answer(*answer)

        do_HEAD = do_GET  # noqa: N815 - its name

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            """Logs no scrapes."""

    return Handler

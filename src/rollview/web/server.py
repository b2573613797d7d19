"""Serves the page from a thread, for as long as something else goes on."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from rollview.errors import OptionError
from rollview.monitoring import Monitor
from rollview.service.project import Project
from rollview.web.address import Access
from rollview.web.app import make_app
from rollview.web.watch import Watch

_SHUTDOWN_SECONDS = 2
_START_SECONDS = 20.0


@contextmanager
def serving(project: Project, watch: Watch, access: Access, monitor: Monitor) -> Iterator[str]:
    """Serves while the context lasts; gives the URL to open."""
    listener = _listen(access)
    port = int(listener.getsockname()[1])
    config = uvicorn.Config(
        make_app(project, watch, access, monitor),
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        lifespan="off",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), name="rollview-page", daemon=True)
    thread.start()
    try:
        _wait_until_started(server, thread)
        yield access.url(port)
    finally:
        watch.close()
        server.should_exit = True
        thread.join(_SHUTDOWN_SECONDS + 3)
        listener.close()


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

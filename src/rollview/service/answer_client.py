"""Asks a process that runs the same project for an answer.

Needs little, so that a command which is answered this way takes no longer to start than it must: neither
Spark nor the catalog, nor anything of the views.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from rollview.errors import RollviewError
from rollview.service.local_socket import connections, fingerprint, receive, send
from rollview.service.project_file import ProjectFile, read_project_file
from rollview.service.requests import Page, Reply, Request, encoded

ACCEPT_SECONDS = 3.0
"""A process that does not even say that it has heard is too busy to be waited for."""
SILENT_SECONDS = 30.0
"""While an answer is computed, there is a sign of life every second."""


@dataclass(frozen=True)
class Elsewhere:
    """What another process said: a reply, or why it gave none. Both are empty if there is no process."""

    reply: Reply | None = None
    reason: str = ""


def ask_running(path: Path, request: Request, tell: Callable[[str], None] = lambda _: None) -> Elsewhere:
    """The answer of a process that runs the project of a file; `tell` is told what that one is doing.

    An error of the request itself is raised as it was there. A process that is gone meanwhile, or that does
    not run the same project any more, is as good as none.
    """
    project = read_project_file(path)
    reason = ""
    for connection in connections(project):
        with connection:
            try:
                found = _asked(connection, project, request, tell)
            except (OSError, pa.ArrowException, KeyError):
                reason = reason or "a process that runs the project did not answer"
                continue
        if found.reply is not None:
            return found
        reason = found.reason
    return Elsewhere(None, reason)


def _asked(
    connection: socket.socket, project: ProjectFile, request: Request, tell: Callable[[str], None]
) -> Elsewhere:
    connection.settimeout(ACCEPT_SECONDS)
    send(connection, {**fingerprint(project), **encoded(request)})
    heard = receive(connection)
    if "declined" in heard:
        return Elsewhere(None, str(heard["declined"]))
    connection.settimeout(SILENT_SECONDS)
    while "working" in (message := receive(connection)):
        tell(str(message["working"]))
    if "declined" in message:
        return Elsewhere(None, str(message["declined"]))
    if "error" in message:
        raise _error(message["error"])
    page = None
    if message["rows"] is not None:
        with connection.makefile("rb") as stream, pa.ipc.open_stream(stream) as reader:
            page = Page(reader.read_all(), int(message["total"]))
        # A stream may end early without a word.
        if page.rows.num_rows != message["rows"]:
            raise ConnectionError("not all rows have come")
    return Elsewhere(Reply(message["facts"], page))


def _error(told: Mapping[str, Any]) -> Exception:
    """The error that the other process had, of the same class, or of one that is called the same."""
    known, message = import_module(RollviewError.__module__), str(told["message"])
    kind = getattr(known, str(told["kind"]), None)
    if isinstance(kind, type) and issubclass(kind, RollviewError):
        return kind(message, subject=str(told["subject"]), hint=str(told["hint"]))
    # One of Spark's, about the query. PySpark is not loaded here, only to name it.
    found: Exception = type(str(told["kind"]), (RuntimeError,), {})(message)
    return found

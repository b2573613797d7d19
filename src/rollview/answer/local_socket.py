"""The private socket by which commands ask a process that runs the same project; messages, and who may ask.

It is a Unix domain socket in a folder of the lake: users who may read the lake's files may ask, nobody else.
Every process has a socket of its own, whose name is never reused. A killed process leaves its file behind;
the next client that gets no answer there removes it. Where the path would be too long for a socket, the
folder is in the user's runtime directory.

A message is a length and JSON. Rows follow as a stream of Arrow. If they are few, and the client would rather
have values, they are in the message: a command prints them before it could have loaded Arrow. Both sides
limit the size of what they accept and the time that they wait.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rollview.answer.requests import Page, Reply, Request, Values, encoded, values_of
from rollview.answer.values import packed, unpacked
from rollview.config.project_file import ProjectFile, read_project_file
from rollview.errors import RollviewError
from rollview.imports import deferred
from rollview.secrets import Secrets
from rollview.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = deferred("pyarrow")

FOLDER = ".answers"
LONGEST_MESSAGE = 16 * 1024 * 1024
_LENGTH = struct.Struct("!I")
_LONGEST_PATH = 100
"""A little less than the systems allow: 108 bytes on Linux, 104 elsewhere."""


def socket_folder(project: ProjectFile) -> Path:
    """Where the sockets of a project are."""
    usual = project.lake.resolve() / FOLDER
    if len(os.fsencode(usual / _new_name())) <= _LONGEST_PATH:
        return usual
    digest = hashlib.sha256(os.fsencode(usual)).hexdigest()[:16]
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and Path(runtime).is_dir():
        return Path(runtime, "rollview", digest)
    return Path(tempfile.gettempdir(), f"rollview-{os.getuid()}", digest)


def listen(project: ProjectFile) -> tuple[socket.socket, Path]:
    """A new listening socket, and its path."""
    folder = socket_folder(project)
    if folder.name != FOLDER:
        _make_private(folder.parent)
    _make_private(folder)
    path = folder / _new_name()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(128)
    except BaseException:
        listener.close()
        with suppress(FileNotFoundError):
            path.unlink()
        raise
    return listener, path


def connections(project: ProjectFile, seconds: float = 1.0) -> Iterator[socket.socket]:
    """Connections to the processes that answer for a project, the one that began last first.

    Sockets of processes that are gone are removed.
    """
    folder = socket_folder(project)
    if not _is_private(folder):
        return
    found = [(path.stat().st_mtime, path) for path in _sockets(folder)]
    for _, path in sorted(found, reverse=True):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(seconds)
        try:
            connection.connect(str(path))
        except ConnectionRefusedError:
            connection.close()
            with suppress(OSError):
                path.unlink()
            continue
        except OSError:
            connection.close()
            continue
        if is_own_user(connection):
            yield connection
        else:
            connection.close()


def is_own_user(connection: socket.socket) -> bool:
    """Whether the other side is the same user; where the system cannot say, the folder's mode protects."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, user, _ = struct.unpack("3i", credentials)
    return bool(user == os.getuid())


def send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Sends a message."""
    text = json.dumps(message, ensure_ascii=False).encode()
    connection.sendall(_LENGTH.pack(len(text)) + text)


def receive(connection: socket.socket) -> dict[str, Any]:
    """The next message; ConnectionError if the other side is gone or sends something else."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > LONGEST_MESSAGE:
        raise ConnectionError(f"a message of {length:,} bytes is too long")
    try:
        message = json.loads(_exactly(connection, length))
    except (ValueError, RecursionError) as error:
        raise ConnectionError(f"not a message: {error}") from None
    if not isinstance(message, dict):
        raise ConnectionError("not a message")
    return cast(dict[str, Any], message)


def fingerprint(project: ProjectFile) -> dict[str, str]:
    """The settings that two processes must share for one to answer for the other; passwords are hashed."""
    settings = hashlib.sha256(repr(project).encode()).hexdigest()
    zone = f"{time.tzname[0]} {time.timezone} {time.altzone if time.daylight else ''}".strip()
    return {"version": __version__, "settings": settings, "zone": zone}


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts, left = [], size
    while left:
        part = connection.recv(min(left, 1024 * 1024))
        if not part:
            raise ConnectionError("the other side is gone")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _new_name() -> str:
    return f"{os.getpid()}-{os.urandom(4).hex()}"


def _sockets(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK(path.stat().st_mode):
                yield path


def _make_private(folder: Path) -> None:
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    if not _is_private(folder):
        folder.chmod(0o700)
    if not _is_private(folder):
        raise PermissionError(f"{folder} belongs to somebody else, or is a link")


def _is_private(folder: Path) -> bool:
    """Whether a folder is there, is no link, and nobody else can look into it."""
    try:
        known = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(known.st_mode) and known.st_uid == os.getuid() and not known.st_mode & 0o077


# Answers on their way between two processes: facts as JSON, rows as Arrow, errors by class and words.
#
# Imports little, so that a command which is answered by another process starts quickly.

_BATCH_ROWS = 10_000
_FEW_ROWS, _FEW_BYTES = 1_000, 256 * 1024
"""Rows up to this many are sent as values to clients that want these."""


def send_reply(connection: socket.socket, reply: Reply, as_values: bool = False) -> None:
    """Facts first, then the rows; few rows as values, if the client asks for these."""
    facts, page = dict(reply.facts), reply.page
    if page is None:
        send(connection, {"facts": facts, "rows": None, "record": packed(reply.record)})
        return
    if as_values and (few := _few_values(page)) is not None:
        send(connection, {"facts": facts, **few})
        return
    send(connection, {"facts": facts, "rows": page.rows.num_rows, "total": page.total})
    with (
        connection.makefile("wb") as stream,
        pa.ipc.new_stream(stream, page.rows.schema) as writer,
    ):
        writer.write_table(page.rows, max_chunksize=_BATCH_ROWS)


def _few_values(page: Page) -> dict[str, Any] | None:
    """The rows of a page as a part of a message; None if they are many, or cannot be packed."""
    if page.rows.num_rows > _FEW_ROWS or page.rows.nbytes > _FEW_BYTES:
        return None
    found = values_of(page)
    try:
        values = packed(list(found.values))
    except ValueError:
        return None
    return {"rows": found.rows, "total": found.total, "columns": list(found.columns), "values": values}


def received_reply(connection: socket.socket, message: Mapping[str, Any]) -> Reply:
    """The reply that begins with a message; raises the error if it is one."""
    if "error" in message:
        raise _error_of(message["error"])
    try:
        if message["rows"] is None:
            return Reply(message["facts"], record=unpacked(message["record"]))
        if "values" in message:
            columns, values = tuple(message["columns"]), tuple(unpacked(message["values"]))
            return Reply(message["facts"], values=Values(columns, values, message["rows"], message["total"]))
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise ConnectionError(f"not a reply: {error}") from error
    try:
        with connection.makefile("rb") as stream, pa.ipc.open_stream(stream) as reader:
            page = Page(reader.read_all(), int(message["total"]))
    except pa.ArrowException as error:
        raise ConnectionError(f"not rows: {error}") from error
    # A stream may end early without an error.
    if page.rows.num_rows != message["rows"]:
        raise ConnectionError("not all rows have come")
    return Reply(message["facts"], page)


def error_message(error: Exception, secrets: Secrets) -> dict[str, Any] | None:
    """An error about a request as a message; None if it is a defect, or about the process that answers."""
    kind = type(error).__name__
    if isinstance(error, RollviewError):
        words = {"message": secrets.hide(error.message), "subject": error.subject, "hint": error.hint}
    elif type(error).__module__.startswith("pyspark."):
        words = {"message": secrets.hide_foreign(str(error)), "subject": "", "hint": ""}
    else:
        return None
    return {"error": {"kind": kind, **words}}


def _error_of(sent: Mapping[str, Any]) -> Exception:
    """The error that the other process had, of the same class, or of one that is called the same."""
    known, message = import_module(RollviewError.__module__), str(sent["message"])
    kind = getattr(known, str(sent["kind"]), None)
    if isinstance(kind, type) and issubclass(kind, RollviewError):
        return kind(message, subject=str(sent["subject"]), hint=str(sent["hint"]))
    # One of Spark's, about the query. PySpark is not loaded here, only to name it.
    found: Exception = type(str(sent["kind"]), (RuntimeError,), {"__module__": "pyspark.errors"})(message)
    return found


# Asks a process that runs the same project for an answer.
#
# Imports little, so that a command which is answered this way starts quickly: neither Spark nor the catalog,
# nor anything of the views.

ACCEPT_SECONDS = 3.0
"""A process that does not acknowledge the request within this time is too busy to wait for."""
SILENT_SECONDS = 30.0
AS_VALUES = "as_values"
"""Whether the client would rather have few rows as values."""
"""While an answer is computed, there is a sign of life every second."""


@dataclass(frozen=True)
class RemoteReply:
    """The reply of another process, or why it gave none; both are empty without a process."""

    reply: Reply | None = None
    reason: str = ""


def ask_running(
    path: Path,
    request: Request,
    progress: Callable[[str], None] = lambda _: None,
    as_values: bool = False,
) -> RemoteReply:
    """The answer of a process that runs the project of a file; `progress` shows what that one is doing.

    With `as_values`, few rows come as values, for which this process need not load Arrow.
    An error of the request itself is raised as it was there. A process that is gone meanwhile, or that does
    not run the same project any more, counts as none.
    """
    project = read_project_file(path)
    reason = ""
    for connection in connections(project):
        with connection:
            try:
                found = _asked(connection, project, request, progress, as_values)
            except (OSError, KeyError):
                reason = reason or "a process that runs the project did not answer"
                continue
        if found.reply is not None:
            return found
        reason = found.reason
    return RemoteReply(None, reason)


def _asked(
    connection: socket.socket,
    project: ProjectFile,
    request: Request,
    progress: Callable[[str], None],
    as_values: bool,
) -> RemoteReply:
    connection.settimeout(ACCEPT_SECONDS)
    send(connection, {**fingerprint(project), **encoded(request), AS_VALUES: as_values})
    heard = receive(connection)
    if "declined" in heard:
        return RemoteReply(None, str(heard["declined"]))
    connection.settimeout(SILENT_SECONDS)
    while "working" in (message := receive(connection)):
        progress(str(message["working"]))
    if "declined" in message:
        return RemoteReply(None, str(message["declined"]))
    return RemoteReply(received_reply(connection, message))

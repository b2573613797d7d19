"""The private socket by which commands reach a process that runs the same project on the same machine.

It is a Unix domain socket in a folder of the lake: who may read the lake's files may ask, nobody else. Every
process has a socket of its own, whose name is never used again, so one that was killed leaves a file behind
and no harm: whoever finds that nobody answers there removes it. Where the path would be too long for a
socket, the folder is in the user's runtime directory.

A message is a length and JSON. Rows follow as a stream of Arrow. Both sides have a limit for what they take
and for how long they wait.
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
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from rollview import __version__
from rollview.service.project_file import ProjectFile

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
    """A new socket that others can connect to, and its path."""
    folder = socket_folder(project)
    if folder.name != FOLDER:
        _make_private(folder.parent)
    _make_private(folder)
    path = folder / _new_name()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(16)
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
    """Whether the other side is the same user; where the system does not tell, the folder's mode does."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    size = struct.calcsize("3i")
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, user, _ = struct.unpack("3i", told)
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
    except ValueError as error:
        raise ConnectionError(f"not a message: {error}") from None
    if not isinstance(message, dict):
        raise ConnectionError("not a message")
    return cast(dict[str, Any], message)


def fingerprint(project: ProjectFile) -> dict[str, str]:
    """What two processes must agree about for one to answer for the other, settings with passwords hashed."""
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

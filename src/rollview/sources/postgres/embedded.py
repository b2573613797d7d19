"""A real PostgreSQL without a server to install: the binaries come from PyPI, the data is in a folder.

For trying things out: it listens on the loopback interface only, asks for a password that only the owner of
the folder can read, and runs while a process uses it. PostgreSQL refuses to run as root, so root runs it as
`nobody`; what that user could not reach is put where it can.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rollview.errors import InputError, SourceUnavailable
from rollview.sources.postgres import embedded_supervisor, embedded_users
from rollview.sources.postgres.embedded_binaries import (
    SERVER_USER,
    binaries,
    is_reachable,
    public_folder,
    server_user,
)
from rollview.sources.postgres.embedded_password import is_protected, protect, read_password

PREFIX = "embedded:"
"""How the address of such a database begins; the folder follows."""

_START_SECONDS = 60.0
_SETTINGS = {
    "wal_level": "logical",
    "max_prepared_transactions": "20",
    "unix_socket_directories": "",
    "shared_buffers": "64MB",
}


class EmbeddedPostgres:
    """A server with its data in a folder. It ends with the last process that uses it."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder).absolute()

    def start(self) -> str:
        """Starts the server unless it runs already, making the database first; its address, with password."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # First of all: a server that has a user is not stopped, so that what runs now keeps running.
            embedded_users.use(self.folder / "users", self.stop)
            if (port := self._running_port()) is None:
                with self._locked():
                    if (port := self._running_port()) is None:
                        port = self._start()
            name = f"postgres:{self.password}" if self.password else "postgres"
        except PermissionError as error:
            raise InputError(
                f"the PostgreSQL in {self.folder} belongs to another user: {error}",
                subject=str(self.folder),
                hint="only the owner of the project can use it",
            ) from None
        return f"postgresql://{name}@127.0.0.1:{port}/postgres"

    def stop(self) -> None:
        """An orderly end, whoever started it. Nothing if it does not run."""
        pid = self._pid()
        if pid is not None:
            os.kill(pid, signal.SIGINT)
            deadline = time.monotonic() + _START_SECONDS
            while self._pid() is not None and time.monotonic() < deadline:
                time.sleep(0.02)
        embedded_users.release(self.folder / "users")

    def remove(self) -> None:
        """Stops the server and deletes all of it, wherever it is."""
        self.stop()
        if self._data.is_symlink():
            shutil.rmtree(self._data.resolve().parent, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def password(self) -> str:
        """A secret. Empty as long as the server has never been started."""
        return read_password(self.folder / "password")

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _pid(self) -> int | None:
        """The server's process, if it is there."""
        lines = self._status()
        if not lines:
            return None
        try:
            os.kill(int(lines[0]), 0)
        except (ValueError, ProcessLookupError):
            return None
        except PermissionError:
            pass
        return int(lines[0])

    def _running_port(self) -> int | None:
        """The port of a server that takes connections."""
        lines = self._status()
        ready = len(lines) > 7 and lines[7].strip() == "ready"
        return int(lines[3]) if ready and self._pid() is not None else None

    def _status(self) -> list[str]:
        try:
            return (self._data / "postmaster.pid").read_text().splitlines()
        except (FileNotFoundError, NotADirectoryError):
            return []

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time makes or starts the database."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _start(self) -> int:
        folder = binaries()
        user = server_user()
        if not (self._data / "PG_VERSION").exists():
            self._make(folder, user)
        self._close_to_others(user)
        port = self._port()
        place = self._data.resolve()
        options = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        address = ["-h", "127.0.0.1", "-p", str(port)]
        postgres = [str(folder / "postgres"), "-D", str(place), *address, *options]
        # Folders that were made before there were passwords get one, too.
        if not is_protected(self.folder / "password", place):
            protect(self.folder / "password", place, postgres, user)
        become = [str(user["user"]), str(user["group"])] if user else ["", ""]
        # Isolated: nothing of the project's own may be imported in place of the standard library.
        supervisor = [sys.executable, "-I", "-S", embedded_supervisor.__file__]
        log = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            process = subprocess.Popen(
                [*supervisor, str(self.folder / "users"), *become, *postgres],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=place,
                start_new_session=True,
            )
        finally:
            os.close(log)
        deadline = time.monotonic() + _START_SECONDS
        while self._running_port() != port:
            if process.poll() is not None or time.monotonic() > deadline:
                process.terminate()
                process.wait()
                raise SourceUnavailable(
                    f"the PostgreSQL in {self.folder} did not start",
                    subject=str(self.folder),
                    hint=f"{self.folder / 'log'} says why",
                )
            time.sleep(0.02)
        # Somebody has to take note of its end, or it would stay in the table of processes.
        threading.Thread(target=process.wait, daemon=True).start()
        return port

    def _close_to_others(self, user: dict[str, Any]) -> None:
        """Only its owner can read the folder; the user that runs the server may pass through to the data."""
        self.folder.chmod(0o711 if user and not self._data.is_symlink() else 0o700)
        for file in self.folder.iterdir():
            if file.is_file() and not file.is_symlink():
                file.chmod(0o600)

    def _make(self, folder: Path, user: dict[str, Any]) -> None:
        """A new database cluster, in the folder or, as a link, where its user can reach it."""
        place = self._data
        if user and not is_reachable(self.folder.parent):
            place = public_folder(str(self.folder)) / "data"
            if self._data.is_symlink():
                self._data.unlink()
            self._data.symlink_to(place)
        self._close_to_others(user)
        # It gets its name when it is complete: nobody starts what a killed process has left half made.
        for unfinished in (place, *place.parent.glob("unfinished-*")):
            shutil.rmtree(unfinished, ignore_errors=True)
        unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=place.parent))
        if user:
            shutil.chown(unfinished, SERVER_USER)
        # Nobody gets in as long as there is no password.
        options = ["-U", "postgres", "-A", "reject", "-E", "UTF8", "--no-locale"]
        command = [str(folder / "initdb"), "-D", str(unfinished), *options]
        made = subprocess.run(command, check=False, capture_output=True, text=True, cwd=unfinished, **user)
        if made.returncode:
            raise SourceUnavailable(
                f"cannot create a PostgreSQL database in {self.folder}: {made.stderr.strip()}",
                subject=str(self.folder),
            )
        unfinished.rename(place)

    def _port(self) -> int:
        """The one that it had before, if it is free, so that addresses stay what they are."""
        kept = self.folder / "port"
        wanted = int(kept.read_text()) if kept.exists() else 0
        for candidate in (wanted, 0):
            with socket.socket() as probe:
                # As the server does: connections that were closed a moment ago are no obstacle.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", candidate))
                except OSError:
                    continue
                port = int(probe.getsockname()[1])
            kept.write_text(str(port))
            kept.chmod(0o600)
            return port
        raise SourceUnavailable("no port is free on the loopback interface", subject=str(self.folder))

"""A real PostgreSQL without a server to install: the binaries come from PyPI, the data is in a folder.

For trying things out: it listens on the loopback interface only and asks for no password. PostgreSQL refuses
to run as root, so root runs it as `nobody`; what that user could not reach is put where it can.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rollview.sources.postgres.embedded_binaries import (
    SERVER_USER,
    binaries,
    is_reachable,
    public_folder,
    server_user,
)
from rollview.sources.server.errors import SourceAway

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
    """A server with its data in a folder. Who starts it also stops it when the process ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder).absolute()

    def start(self) -> str:
        """Starts the server unless it runs already, making the database first; its address."""
        if (port := self._running_port()) is None:
            with self._locked():
                if (port := self._running_port()) is None:
                    port = self._start()
        return f"postgresql://postgres@127.0.0.1:{port}/postgres"

    def stop(self) -> None:
        """An orderly end, whoever started it. Nothing if it does not run."""
        pid = self._pid()
        if pid is None:
            return
        os.kill(pid, signal.SIGINT)
        deadline = time.monotonic() + _START_SECONDS
        while self._pid() is not None and time.monotonic() < deadline:
            _reap(pid)
            time.sleep(0.02)

    def remove(self) -> None:
        """Stops the server and deletes all of it, wherever it is."""
        self.stop()
        if self._data.is_symlink():
            shutil.rmtree(self._data.resolve().parent, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

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
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _start(self) -> int:
        folder = binaries()
        user = server_user()
        if not (self._data / "PG_VERSION").exists():
            self._make(folder, user)
        port = self._port()
        options = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        place = str(self._data.resolve())
        command = [str(folder / "postgres"), "-D", place, "-h", "127.0.0.1", "-p", str(port), *options]
        log = self.folder / "log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=place,
                start_new_session=True,
                **user,
            )
        atexit.register(self._stop_own, process.pid)
        deadline = time.monotonic() + _START_SECONDS
        while self._running_port() != port:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SourceAway(
                    f"the PostgreSQL in {self.folder} does not start",
                    thing=str(self.folder),
                    hint=f"{log} says why",
                )
            time.sleep(0.02)
        # The handle is let go of while the process lives: its end is waited for by number.
        process.returncode = 0
        return port

    def _stop_own(self, pid: int) -> None:
        if self._pid() == pid:
            self.stop()

    def _make(self, folder: Path, user: dict[str, Any]) -> None:
        """A new database cluster, in the folder or, as a link, where its user can reach it."""
        place = self._data
        if user and not is_reachable(self.folder):
            place = public_folder(str(self.folder)) / "data"
            shutil.rmtree(place, ignore_errors=True)
            if self._data.is_symlink():
                self._data.unlink()
            self._data.symlink_to(place)
        place.mkdir(mode=0o700, exist_ok=True)
        if user:
            shutil.chown(place, SERVER_USER)
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale"]
        command = [str(folder / "initdb"), "-D", str(place), *options]
        made = subprocess.run(command, check=False, capture_output=True, text=True, cwd=place, **user)
        if made.returncode:
            raise SourceAway(
                f"no PostgreSQL database can be made in {self.folder}: {made.stderr.strip()}",
                thing=str(self.folder),
            )

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
            return port
        raise SourceAway("no port is free on the loopback interface", thing=str(self.folder))


def _reap(pid: int) -> None:
    """Takes note of the end of a process that we started, so that it is really gone."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return

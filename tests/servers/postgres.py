"""A real PostgreSQL for tests: private data folder, private port, loopback only, an ordinary user.

The server refuses to run as root, so a test that does runs it as `nobody`. `fsync` is off unless a test is
about crashes.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import psycopg

from servers.ordinary_user import give

_SETTINGS = {
    "wal_level": "logical",
    "max_prepared_transactions": "20",
    "max_connections": "60",
    "max_replication_slots": "40",
    "max_wal_senders": "20",
    "shared_buffers": "64MB",
    "timezone": "Asia/Kolkata",
    "log_min_messages": "warning",
}
_PATIENCE_SECONDS = 60.0


def binaries() -> Path:
    """Where Debian puts the newest server; PATH otherwise. ROLLVIEW_POSTGRES_BIN chooses another one."""
    if chosen := os.environ.get("ROLLVIEW_POSTGRES_BIN"):
        return Path(chosen)
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda each: int(each.parts[4]))
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    assert on_path, "PostgreSQL is not installed: `apt-get install postgresql`"
    return Path(on_path).resolve().parent


class PostgresServer:
    """One server process. `kill` is what a power cut does to it, `stop` what an administrator does."""

    def __init__(
        self, settings: Mapping[str, str] | None = None, durable: bool = False, bin_folder: Path | None = None
    ) -> None:
        self._bin = bin_folder or binaries()
        self._settings = {**_SETTINGS, **(settings or {})}
        if not durable:
            self._settings |= {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
            # Commits that return before they are flushed are what capture must cope with, too.
        self._user = "nobody" if os.getuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="rollview-postgres-"))
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        shutil.copytree(_initialized(self._bin, self._user), self.folder / "data", copy_function=shutil.copy)
        if self._user is not None:
            give(self.folder, self._user)
        atexit.register(self.remove)

    def dsn(self, database: str = "postgres", user: str = "postgres", password: str = "") -> str:
        """The address of a database."""
        name = f"{user}:{password}" if password else user
        return f"postgresql://{name}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Starts the server and waits until it answers. After a kill its children may need a moment to go."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            if self.process is None or self.process.poll() is not None:
                self.process = self._spawn()
            try:
                psycopg.connect(self.dsn(), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                log = self.folder / "log"
                assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
                time.sleep(0.05)

    def stop(self) -> None:
        """An orderly end: sessions are cut off, everything is written."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """The server is gone from one moment to the next."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """An orderly end and a new start on the same port."""
        self.stop()
        self.start()

    def create_database(self, name: str) -> str:
        """A new database; its address."""
        self.execute(f'CREATE DATABASE "{name}"')
        return self.dsn(name)

    def free_slots(self, name: str) -> None:
        """Ends whoever still holds a slot of a database: a reader that is closed is let go a moment later."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots"
                " WHERE database = %s AND active",
                (name,),
            )

    def drop_database(self, name: str) -> None:
        """Removes a database with the replication slots that a test left in it."""
        self.free_slots(name)
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s",
                (name,),
            )
        with psycopg.connect(self.dsn(name), autocommit=True) as connection:
            for (gid,) in connection.execute(
                "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
            ):
                connection.execute(f"ROLLBACK PREPARED '{gid}'")
        self.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def execute(self, statement: str, database: str = "postgres") -> None:
        """One statement as the superuser."""
        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            connection.execute(statement)

    def remove(self) -> None:
        """Ends the server and removes its data."""
        atexit.unregister(self.remove)
        self._end(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _spawn(self) -> subprocess.Popen[bytes]:
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        command = ["-D", str(self.folder / "data"), "-h", "127.0.0.1", "-p", str(self.port),
                   "-k", str(self.folder), *options]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [str(self._bin / "postgres"), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                **_as_user(self._user),
            )

    def _end(self, sign: signal.Signals) -> None:
        if self.process is not None:
            if self.process.poll() is None:
                self.process.send_signal(sign)
            self.process.wait(_PATIENCE_SECONDS)
            self.process = None


@cache
def shared_server() -> PostgresServer:
    """The one that most tests of a process use, each in a database of its own; it ends with the process."""
    server = PostgresServer()
    server.start()
    return server


@cache
def _initialized(bin_folder: Path, user: str | None) -> Path:
    """A data folder as initdb makes it, made once in a process and copied for every server."""
    folder = Path(tempfile.mkdtemp(prefix="rollview-postgres-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if user is not None:
        give(folder, user)
    subprocess.run(
        [str(bin_folder / "initdb"), "-D", str(folder / "data"), "-U", "postgres", "-A", "trust",
         "-E", "UTF8", "--no-locale", "--no-sync"],
        check=True,
        capture_output=True,
        cwd=folder,
        **_as_user(user),
    )  # fmt: skip
    return folder / "data"


def _as_user(user: str | None) -> dict[str, object]:
    if user is None:
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": ()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

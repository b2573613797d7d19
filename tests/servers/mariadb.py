"""A MariaDB server of our own for tests: Debian's `mariadbd`, a private port and data folder, loopback only.

As root it runs as the user `mysql` (or `nobody`), because the server refuses to be root.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any

import pymysql

from servers.ordinary_user import give

PASSWORD = "s3cret/pass@word"
ADMIN = "tester"
_START_SECONDS = 60.0
_INSTALL_ATTEMPTS = 3
_DEFAULTS = {
    "log-bin": "binlog",
    "server-id": "1",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "binlog-expire-logs-seconds": "864000",
    "innodb-buffer-pool-size": "64M",
    "innodb-log-file-size": "48M",
    # Tests do not lose power; what survives `kill -9` is the same, and this is much faster.
    "innodb-flush-log-at-trx-commit": "2",
    "sync-binlog": "0",
    "max-connections": "100",
    "character-set-server": "utf8mb4",
    "performance-schema": "OFF",
}


class MariaDBServer:
    """One server process; `options` are added to the defaults or replace them."""

    def __init__(self, options: Mapping[str, str] = {}) -> None:
        self.options = {**_DEFAULTS, **options}
        self.folder = Path(tempfile.mkdtemp(prefix="mariadb-"))
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._user = _ordinary_user()
        self._install()

    @property
    def socket_path(self) -> str:
        """Where the server listens for this machine's own users."""
        return str(self.folder / "s.sock")

    def _install(self) -> None:
        shutil.copytree(_installed(self._user), self.folder / "data", copy_function=shutil.copy)
        (self.folder / "tmp").mkdir()
        if self._user:
            give(self.folder, self._user)

    def start(self) -> MariaDBServer:
        """Starts the process and waits until it answers."""
        command = [_program("mariadbd"), "--no-defaults", f"--datadir={self.folder / 'data'}"]
        command += [f"--port={self.port}", "--bind-address=127.0.0.1", f"--socket={self.socket_path}"]
        command += [f"--log-error={self.folder / 'error.log'}", f"--pid-file={self.folder / 'pid'}"]
        # A server that starts removes all temporary tables in its tmpdir, also those of others.
        command.append(f"--tmpdir={self.folder / 'tmp'}")
        command += [f"--{name}={value}" if value else f"--{name}" for name, value in self.options.items()]
        if self._user:
            command.append(f"--user={self._user}")
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + _START_SECONDS
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "error.log").read_text())
            time.sleep(0.05)
        with closing(pymysql.connect(unix_socket=self.socket_path, user="root")) as connection:
            self._make_admin(connection)
        return self

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(self.socket_path) == 0

    def _make_admin(self, connection: Any) -> None:
        with connection.cursor() as cursor:
            # Read-only starts and unlogged accounts: the binary log of the tests begins with the tests.
            cursor.execute("SET sql_log_bin = 0")
            for host in ("localhost", "127.0.0.1"):
                cursor.execute(
                    f"GRANT ALL ON *.* TO {ADMIN}@'{host}' IDENTIFIED BY '{PASSWORD}' WITH GRANT OPTION"
                )

    def stop(self) -> None:
        """An orderly end."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """What a crash of the process looks like."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(_START_SECONDS)
            self._process = None

    def restart(self, **options: str) -> None:
        """Stops and starts, with other options where given (underscores for hyphens)."""
        self.stop()
        self.options.update({name.replace("_", "-"): value for name, value in options.items()})
        self.start()

    def close(self) -> None:
        """Stops the server and removes its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, database: str | None = None, **settings: Any) -> Any:
        """A connection as the administrator."""
        # Preparing for encryption that the server does not offer would take most of the time.
        settings = {"autocommit": True, "charset": "utf8mb4", "ssl_disabled": True, **settings}
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=ADMIN,
            password=PASSWORD,
            database=database,
            **settings,
        )

    def execute(self, *statements: str, database: str | None = None) -> tuple[Any, ...]:
        """Runs statements on a connection of their own; the rows of the last one."""
        with closing(self.connect(database)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return tuple(cursor.fetchall())

    def create_database(self, name: str) -> str:
        """Makes an empty database; its address."""
        self.execute(f"DROP DATABASE IF EXISTS `{name}`", f"CREATE DATABASE `{name}`")
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Removes a database with all that is in it."""
        self.execute(f"DROP DATABASE IF EXISTS `{name}`")

    def dsn(self, database: str, user: str = ADMIN, password: str = PASSWORD) -> str:
        """The address of a database, as a project file has it."""
        quoted = password.replace("/", "%2F").replace("@", "%40")
        return f"mariadb://{user}:{quoted}@127.0.0.1:{self.port}/{database}"


@lru_cache
def shared_server() -> MariaDBServer:
    """One server for all tests of this process, stopped when the process ends."""
    server = MariaDBServer().start()
    atexit.register(server.close)
    return server


@lru_cache
def _installed(user: str) -> Path:
    """A data folder as mariadb-install-db makes it, made once in a process and copied for every server."""
    folder = Path(tempfile.mkdtemp(prefix="mariadb-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    data = folder / "data"
    data.mkdir()
    (folder / "tmp").mkdir()
    if user:
        give(folder, user)
    command = [_program("mariadb-install-db"), "--no-defaults", f"--datadir={data}", "--skip-test-db"]
    command += [f"--tmpdir={folder / 'tmp'}"]
    command += ["--auth-root-authentication-method=normal", "--innodb-log-file-size=48M"]
    if user:
        command.append(f"--user={user}")
    for _ in range(_INSTALL_ATTEMPTS):
        made = subprocess.run(
            command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if made.returncode == 0:
            return data
        # It starts the server for a moment, which an overloaded machine may not let come up in time.
        shutil.rmtree(data)
        data.mkdir()
        if user:
            give(folder, user)
    raise RuntimeError(f"{' '.join(command)}:\n{made.stdout}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ordinary_user() -> str:
    """The user to run as; none if we are an ordinary one ourselves."""
    if os.geteuid() != 0:
        return ""
    known = Path("/etc/passwd").read_text(encoding="utf-8")
    return "mysql" if "\nmysql:" in known else "nobody"


@lru_cache
def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise RuntimeError(f"{name} is not installed: apt install mariadb-server")
    return found

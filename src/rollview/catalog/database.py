"""The database below the catalog: how it is opened, and how a transaction begins.

On SQLite a writing transaction takes the write lock at its beginning (BEGIN IMMEDIATE), so that nothing
it has read can change before it commits; the log is synced at every commit. On other databases a
writing transaction locks the lease it works under, and a reading one sees one snapshot.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from sqlalchemy import URL, Connection, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from rollview.catalog.migrations import NEWEST, migrate, version_of
from rollview.errors import CatalogUnavailable, CatalogUrlError
from rollview.imports import require

_BUSY_SECONDS = 30
_LOCKED_SECONDS = 10
_PAUSE_SECONDS = 0.05
_BEGIN = "rollview_begin"
_POSTGRES = "postgresql+psycopg"
_POSTGRES_SETTINGS = {
    # A host that vanished is noticed by both sides, and keeps no locks: the server ends a transaction whose
    # client is silent. A statement that waits for somebody's lock gives up, too.
    "options": f"-c idle_in_transaction_session_timeout=5s -c lock_timeout={_LOCKED_SECONDS}s",
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}

# The server itself ends only some of them: its timeout is off while it waits for the rest of a pipeline.
_END_SILENT = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND backend_xid IS NOT NULL
    AND wait_event = 'ClientRead' AND state_change < clock_timestamp() - INTERVAL '5 s'"""

_FILE_HINT = "check for a full disk, missing permissions or a program that locks it, then try again"
_SERVER_HINT = "check that the server runs, can be reached and lets this user write, then try again"


def _with_driver(address: URL) -> URL:
    """An address of PostgreSQL by the driver that the extra brings, which not every SQLAlchemy would take."""
    if address.drivername not in {"postgresql", _POSTGRES}:
        return address
    require("postgres", "a catalog on PostgreSQL", "or leave `catalog` out of the project file")
    return address.set(drivername=_POSTGRES)


def _check_password(url: str) -> None:
    """Refuses a password that ends too early: the rest of it would be shown as a host or a database."""
    before, _, place = url.partition("://")[2].rpartition("@")
    if not url.startswith("sqlite") and re.search(r"[@/?#\s]", before):
        raise CatalogUrlError(
            "the catalog's address is not valid: its password has characters that end it",
            subject=place,
            hint="write @ / ? # as %40 %2F %3F %23, or the password as ${VARIABLE}",
        )


class Database:
    """Connections to the control tables. Threads may share it."""

    def __init__(self, url: str) -> None:
        """Opens nothing yet, but refuses an address that could never be opened."""
        _check_password(url)
        try:
            address = _with_driver(make_url(url))
            if address.drivername == _POSTGRES:
                own = {**_POSTGRES_SETTINGS, **{name: str(value) for name, value in address.query.items()}}
                own["options"] = f"{_POSTGRES_SETTINGS['options']} {address.query.get('options', '')}"
                address = address.update_query_dict(own)
            self.engine = create_engine(address, pool_pre_ping=not url.startswith("sqlite"))
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            raise CatalogUrlError(
                f"the catalog cannot be opened: {error}",
                subject=url.rpartition("@")[2],
                hint="write an address such as sqlite:///./lake/catalog.db",
            ) from error
        self.place = make_url(url).render_as_string(hide_password=True)
        self._sqlite = self.engine.dialect.name == "sqlite"
        if self._sqlite:
            if address.database in {None, "", ":memory:"}:
                raise CatalogUrlError(
                    "a catalog in memory would be lost with the process",
                    subject=self.place,
                    hint="name a file, such as sqlite:///./lake/catalog.db",
                )
            self._folder = Path(str(address.database)).parent
            self._commits = _Commits(str(address.database))
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)

    @property
    def is_shared(self) -> bool:
        """Whether processes on several hosts may use it."""
        return not self._sqlite

    @property
    def version(self) -> int:
        """The schema version of what is there: 0 if nothing is. Only for a file that exists."""
        with self.reading() as connection:
            return version_of(connection)

    @property
    def is_current(self) -> bool:
        """Whether `migrate` has nothing to do."""
        return self.version == NEWEST

    def migrate(self, now: float) -> None:
        """Creates the control tables, or brings them up to date. An up-to-date catalog is only read."""
        if self._sqlite:
            with self._explained():
                self._folder.mkdir(parents=True, exist_ok=True)
        if self.is_current:
            return
        if self._sqlite:
            self._use_write_ahead_log()
        try:
            with self.writing() as connection:
                migrate(connection, now)
        except CatalogUnavailable:
            # Where two do not wait for each other to create tables, the slower one fails: all is there.
            if not self.is_current:
                raise

    def _use_write_ahead_log(self) -> None:
        """A lasting property of the file, which cannot be set in a transaction.

        SQLite does not wait for others here, such as a process that opens the same new catalog, so we do.
        """
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                with self._transaction("") as connection:
                    connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            except CatalogUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                return

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads one state of the catalog."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes; it commits at the end, or leaves no trace."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    def end_silent(self) -> None:
        """Ends the writers whose host fell silent in a transaction: TCP would let them keep their locks."""
        if self.is_shared:
            with self.reading() as connection:
                connection.execute(text(_END_SILENT))

    def commits(self) -> int | None:
        """A number that changes with every commit, whoever makes it; None where it takes a query to know."""
        return self._commits.number() if self._sqlite else None

    def close(self) -> None:
        if self._sqlite:
            self._commits.close()
        self.engine.dispose()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        with self._explained(), self.engine.connect() as connection:
            # Options are set on the connection itself, for this one use of it.
            if self._sqlite:
                connection.execution_options(**{_BEGIN: begin})
            else:
                # Whatever the server prefers: a writer that has waited for a lock sees what was written.
                level = "REPEATABLE READ" if begin == "BEGIN" else "READ COMMITTED"
                connection.execution_options(isolation_level=level)
            with connection.begin():
                yield connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Says of a failing database which one it is and what can be done."""
        try:
            yield
        except (DBAPIError, PoolTimeout, OSError) as error:
            reason = error.orig if isinstance(error, DBAPIError) else error
            raise CatalogUnavailable(
                f"the catalog {self.place} cannot be used: {reason}",
                subject=self.place,
                hint=_FILE_HINT if self._sqlite else _SERVER_HINT,
            ) from error


class _Commits:
    """Counts the commits to a file of SQLite, by a connection that makes none: its own would not count."""

    def __init__(self, path: str) -> None:
        """Opens nothing yet."""
        self._path = Path(path)
        self._connection: sqlite3.Connection | None = None
        self._lock = Lock()

    def number(self) -> int | None:
        """None if the file cannot be read right now; whoever queries it next gets to know why."""
        with self._lock:
            try:
                if self._connection is None:
                    address = f"{self._path.absolute().as_uri()}?mode=rw"
                    self._connection = sqlite3.connect(address, uri=True, check_same_thread=False)
                # All of it is fetched, so that no statement stays open.
                ((number,),) = self._connection.execute("PRAGMA data_version").fetchall()
            except sqlite3.Error:
                return None
            return int(number)

    def close(self) -> None:
        """Closes the connection; a number after that is of a new one."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # The driver must not begin transactions automatically: it would do so too late, and without the lock.
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
    connection.execute("PRAGMA synchronous = FULL")


def _begin_sqlite(connection: Connection) -> None:
    if begin := connection.get_execution_options().get(_BEGIN, "BEGIN"):
        connection.exec_driver_sql(begin)

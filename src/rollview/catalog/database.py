"""The database below the catalog: how it is opened, and how a transaction begins.

On SQLite a writing transaction takes the write lock at its beginning (BEGIN IMMEDIATE), so that nothing
it has read can change before it commits; the log is synced at every commit. On other databases a
writing transaction locks the lease it works under, and a reading one sees one snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from rollview.catalog.migrations import NEWEST, migrate, version_of
from rollview.errors import CatalogUnavailable, CatalogUrlError
from rollview.extras import require

_BUSY_SECONDS = 30
_PAUSE_SECONDS = 0.05
_BEGIN = "rollview_begin"


def _with_driver(address: URL) -> URL:
    """An address of PostgreSQL by the driver that the extra brings, which not every SQLAlchemy would take."""
    if address.drivername not in {"postgresql", "postgresql+psycopg"}:
        return address
    require("postgres", "a catalog on PostgreSQL", "or leave `catalog` out of the project file")
    return address.set(drivername="postgresql+psycopg")


class Database:
    """Connections to the control tables. Threads may share it."""

    def __init__(self, url: str) -> None:
        """Opens nothing yet, but refuses an address that could never be opened."""
        try:
            address = _with_driver(make_url(url))
            self.engine = create_engine(address, pool_pre_ping=not url.startswith("sqlite"))
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            raise CatalogUrlError(
                f"the catalog cannot be opened: {error}",
                subject=url.partition("@")[2] or url,
                hint="write an address such as sqlite:///./lake/catalog.db",
            ) from error
        self.place = address.render_as_string(hide_password=True)
        self._sqlite = self.engine.dialect.name == "sqlite"
        if self._sqlite:
            if address.database in {None, "", ":memory:"}:
                raise CatalogUrlError(
                    "a catalog in memory would be lost with the process",
                    subject=self.place,
                    hint="name a file, such as sqlite:///./lake/catalog.db",
                )
            self._folder = Path(str(address.database)).parent
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)

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

    def close(self) -> None:
        """Closes all connections."""
        self.engine.dispose()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        with self._explained(), self.engine.connect() as connection:
            # Options are set on the connection itself, for this one use of it.
            if self._sqlite:
                connection.execution_options(**{_BEGIN: begin})
            elif begin == "BEGIN":
                connection.execution_options(isolation_level="REPEATABLE READ")
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
                hint="check for a full disk, missing permissions or a program that locks it, then try again",
            ) from error


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # The driver must not begin transactions by itself: it would do so too late, and without the lock.
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
    connection.execute("PRAGMA synchronous = FULL")


def _begin_sqlite(connection: Connection) -> None:
    if begin := connection.get_execution_options().get(_BEGIN, "BEGIN"):
        connection.exec_driver_sql(begin)

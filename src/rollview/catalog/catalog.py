"""The catalog: every method is one transaction, so a process may end at any instruction."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from sqlalchemy import select, update

from rollview.catalog import schema, standing
from rollview.catalog.captured import Captured
from rollview.catalog.consumers import Consumers
from rollview.catalog.copying import copy_rows
from rollview.catalog.database import Database
from rollview.catalog.faults import Faults
from rollview.catalog.global_transactions import GlobalTransactions
from rollview.catalog.history import History
from rollview.catalog.leases import Lease, Leases, fence
from rollview.catalog.observations import Observations, Verifications
from rollview.catalog.records import (
    CatalogState,
)
from rollview.catalog.standing import Now, Standing
from rollview.catalog.steps import Steps
from rollview.catalog.views import Views
from rollview.catalog.works import Works

MOST_WATCHED_SECONDS = 3600.0
"""How much time may pass, as retention counts it, between two looks at the clock."""

LEASE_SECONDS = 30.0
"""How long a lease lasts without renewal."""

SHARED_LEASE_SECONDS = 6.0
"""The same where another host may wait for it, which does not see that a process has ended."""


class Catalog:
    """The control tables of a project, by subject. Threads may share it; each process opens its own."""

    def __init__(self, database: Database, clock: Callable[[], float], lease_seconds: float) -> None:
        """Of a database that has been migrated; `open` does both."""
        self._database = database
        self._clock = clock
        self._leases = Leases(database, clock, lease_seconds)

    @classmethod
    def open(
        cls, url: str, clock: Callable[[], float] = time.time, *, lease_seconds: float | None = None
    ) -> Catalog:
        """Opens the catalog at a SQLAlchemy URL; creates or migrates it first where that is needed."""
        database = Database(url)
        try:
            database.migrate(clock())
        except BaseException:
            database.close()
            raise
        usual = SHARED_LEASE_SECONDS if database.is_shared else LEASE_SECONDS
        return cls(database, clock, lease_seconds or usual)

    @staticmethod
    def inspect(url: str) -> CatalogState:
        """Whether there is a catalog, and whether it is up to date. Nothing is created or changed.

        A file of SQLite must exist.
        """
        database = Database(url)
        try:
            return CatalogState(exists=database.version > 0, is_current=database.is_current)
        finally:
            database.close()

    @property
    def captured(self) -> Captured:
        return Captured(self._database)

    @property
    def history(self) -> History:
        return History(self._database, self._clock)

    @property
    def steps(self) -> Steps:
        return Steps(self._database, self._clock)

    @property
    def views(self) -> Views:
        return Views(self._database)

    @property
    def faults(self) -> Faults:
        return Faults(self._database, self._clock)

    @property
    def now(self) -> Now:
        return Now(self._database)

    @property
    def consumers(self) -> Consumers:
        return Consumers(self._database, self._clock)

    @property
    def global_transactions(self) -> GlobalTransactions:
        return GlobalTransactions(self._database, self._clock)

    @property
    def observations(self) -> Observations:
        return Observations(self._database)

    @property
    def verifications(self) -> Verifications:
        return Verifications(self._database, self._clock)

    @property
    def works(self) -> Works:
        return Works(self._database)

    def commits(self) -> int | None:
        """A number that changes with every commit, whoever makes it; None where it takes a query to know."""
        return self._database.commits()

    def close(self) -> None:
        self._database.close()

    @property
    def identity(self) -> str:
        """A name that no other catalog has. Step ids are only unique together with it."""
        with self._database.reading() as connection:
            return str(connection.scalars(select(schema.catalog.c.identity)).one())

    def last_step(self) -> int:
        with self._database.reading() as connection:
            return int(connection.scalars(select(schema.catalog.c.last_step)).one())

    def epochs(self) -> tuple[str, str]:
        """The epoch of the lake that this catalog knows, and one that it is about to begin, or nothing."""
        with self._database.reading() as connection:
            known = schema.catalog.c
            epoch, following = connection.execute(select(known.epoch, known.next_epoch)).one()
            return epoch, following

    def home(self) -> str:
        """Where the project is that captures by this catalog; empty before it did."""
        with self._database.reading() as connection:
            return str(connection.scalars(select(schema.catalog.c.home)).one())

    def set_home(self, place: str) -> None:
        with self._database.writing() as connection:
            connection.execute(update(schema.catalog).values(home=place))

    def announce_epoch(self, epoch: str) -> None:
        """Records that this epoch is about to be written to the lake."""
        with self._database.writing() as connection:
            connection.execute(update(schema.catalog).values(next_epoch=epoch))

    def begin_epoch(self, epoch: str) -> None:
        """Records that this epoch was written to the lake."""
        with self._database.writing() as connection:
            connection.execute(update(schema.catalog).values(epoch=epoch, next_epoch=""))

    def copy_to(self, other: Catalog, epoch: str) -> int:
        """Copies everything to a new catalog, where `epoch` is the lake's; returns how many rows that are."""
        with self._database.reading() as here, other._database.writing() as there:
            return copy_rows(here, there, epoch)

    def watched_time(self) -> float:
        """The time by which retention goes: not later than the clock says, and not much later than before.

        One reading of a clock that is wrong moves it by at most an hour. After a long pause it catches up, an
        hour at a time.
        """
        now = self._clock()
        with self._database.writing() as connection:
            before = connection.scalars(select(schema.catalog.c.watched_until)).one() or now
            until = before + min(max(0.0, now - before), MOST_WATCHED_SECONDS)
            connection.execute(update(schema.catalog).values(watched_until=until))
        return min(now, until)

    def standing(self) -> Standing:
        """The standing of sites, views and faults, at one moment."""
        with self._database.reading() as connection:
            return standing.read_standing(connection)

    def lease(self, name: str, wait_seconds: float = 0) -> AbstractContextManager[Lease]:
        """Holds a lease while the context lasts; LeaseHeld if someone else does and waiting was in vain."""
        return self._leases.hold(name, wait_seconds)

    def confirm(self, lease: Lease) -> None:
        """Raises LeaseLost if the lease has passed to someone else."""
        with self._database.writing() as connection:
            fence(connection, lease)

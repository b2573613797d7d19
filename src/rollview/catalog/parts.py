"""The parts of a catalog that are used by themselves."""

from __future__ import annotations

from collections.abc import Callable

from rollview.catalog.commits import Commits
from rollview.catalog.consumers import Consumers
from rollview.catalog.database import Database
from rollview.catalog.global_transactions import GlobalTransactions
from rollview.catalog.observations import Observations
from rollview.catalog.verifications import Verifications
from rollview.catalog.work import Works


class CatalogParts:
    """What a catalog is made of, each with the tables that it knows."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    @property
    def commits(self) -> Commits:
        """The history, transaction by transaction."""
        return Commits(self._database)

    @property
    def consumers(self) -> Consumers:
        """Who reads view deltas from outside."""
        return Consumers(self._database, self._clock)

    @property
    def global_transactions(self) -> GlobalTransactions:
        """Transactions over several sites."""
        return GlobalTransactions(self._database, self._clock)

    @property
    def observations(self) -> Observations:
        """What somebody who watches wants to know, in few and cheap questions."""
        return Observations(self._database)

    @property
    def verifications(self) -> Verifications:
        """What verify has found."""
        return Verifications(self._database, self._clock)

    @property
    def works(self) -> Works:
        """What propagation has cost."""
        return Works(self._database)

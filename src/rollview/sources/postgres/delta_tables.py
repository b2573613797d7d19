"""The delta tables of a source: what they are called, what stands in their way, and that they stay small."""

from __future__ import annotations

import time

from rollview.sources.deltas import DeltaDefinition, columns_of
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import Connections
from rollview.sources.postgres.delta_install import installed, plans_of, purge_deltas
from rollview.sources.postgres.delta_triggers import delta_name
from rollview.sources.postgres.schemas import table_name
from rollview.sources.source import Table

_PURGE_SECONDS = 60.0


def delta_table(address: Address, definition: DeltaDefinition) -> Table:
    """A delta table, as the service knows it."""
    columns = columns_of(definition, ("smallint", "smallint", "string"))
    name = table_name(address, address.delta_schema, delta_name(definition))
    return Table(
        address.source,
        name,
        tuple(column for column, _ in columns),
        types=tuple(kind for _, kind in columns),
    )


class DeltaTables:
    """What there is at the server."""

    def __init__(self, address: Address, connections: Connections) -> None:
        self._address = address
        self._connections = connections
        self._purged_at = 0.0

    def obstacle(self, definition: DeltaDefinition) -> str:
        """Why a delta cannot be made; empty if it can."""
        with self._connections.connection() as connection:
            (plan,) = plans_of(connection, self._address, [definition])
        return plan.obstacle

    def known(self) -> frozenset[str]:
        """The delta tables, as `source.table`."""
        with self._connections.connection() as connection:
            names = installed(connection, self._address)
        return frozenset(
            f"{self._address.source}.{table_name(self._address, self._address.delta_schema, name)}"
            for name in names
        )

    def purge(self) -> None:
        """Deletes, now and then, what writers have appended: it is in the log."""
        if time.monotonic() - self._purged_at < _PURGE_SECONDS:
            return
        self._purged_at = time.monotonic()
        with self._connections.connection() as connection:
            purge_deltas(connection, self._address)

"""The fingerprint of captured tables: are they, at this moment, what they were at setup?

It is asked for after the log was read up to a place, and by every reading in its own transaction, where the
tables that were read can no longer be altered. So it is cheap: the declarations, in one round trip. Only a
declaration that has not been seen before is taken apart.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from rollview.sources.mariadb.binlog.alterations import keeps_characters, keeps_values
from rollview.sources.mariadb.binlog.damage import Damage, combined
from rollview.sources.mariadb.connection import Server
from rollview.sources.mariadb.registered import Registered
from rollview.sources.mariadb.structure import Structure, declarations, is_forbidden, structures_of
from rollview.sources.mariadb.types import MariaDBColumn

# The state of a captured table: is it still what capture relies on?
#
# The log reports changes at the transaction in which they were made. Changes that it lacks, such as the
# work of a session that did not log, are found here.


def table_damage(registered: Registered, present: Structure | None) -> Damage | None:
    """Why a table is not the registered one any more; None if nothing that matters has changed."""
    if present is None:
        return Damage("it is gone, or it is no ordinary table any more")
    if present.hazards:
        return Damage(present.hazards[0])
    if registered.key and registered.key not in [columns for _, columns in present.keys]:
        return Damage(f"its key {registered.key_name}, which identifies rows, is gone")
    columns = {column.name: column for column, _ in present.columns}
    return combined(
        Damage(reason, (column.name,))
        for column, _ in registered.columns
        if (reason := _column_damage(column, columns.get(column.name)))
    )


def _column_damage(column: MariaDBColumn, present: MariaDBColumn | None) -> str:
    if present is None:
        return f"its column {column.name} is gone"
    if present.generated != column.generated:
        return f"its column {column.name} is computed in another way"
    if not keeps_values(column.declared, present.declared):
        return f"its column {column.name} is {present.declared} and was {column.declared}"
    if not keeps_characters(column, present.charset):
        return f"its column {column.name} has the character set {present.charset}"
    return ""


class Fingerprint:
    """Compares tables with what is registered."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._intact: dict[str, tuple[Registered, str]] = {}

    def damaged(self, connection: Any, tables: Mapping[str, Registered]) -> dict[str, Damage]:
        """The tables that are not what they were, and why."""
        with connection.cursor() as cursor:
            shown = declarations(cursor, tables)
            with self._lock:
                unknown = [
                    name
                    for name, table in tables.items()
                    if name not in shown or self._intact.get(name) != (table, shown[name])
                ]
            if not unknown:
                return {}
            # The declaration is read again after it, so that both are of one state.
            present = structures_of(
                cursor, self._server.address.database, self._server.charsets(connection).single_byte
            )
            again = declarations(cursor, unknown)
            # Of what we may not see any more nothing can be said; readings are refused by the server.
            seen = [name for name in unknown if name in present or not is_forbidden(cursor, name)]
        found = {name: table_damage(tables[name], present.get(name)) for name in seen}
        with self._lock:
            for name, damage in found.items():
                if damage is None and name in shown and shown[name] == again.get(name):
                    self._intact[name] = (tables[name], shown[name])
        return {name: damage for name, damage in found.items() if damage is not None}

"""The fingerprint of captured tables: are they, at this moment, what they were at setup?

It is asked for after the log was read up to a place, and by every reading in its own transaction, where the
tables that were read can no longer be altered. So it is cheap: the declarations, in one round trip. Only a
declaration that has not been seen before is taken apart.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from rollview.sources.mariadb.connection import Server
from rollview.sources.mariadb.damage import Damage
from rollview.sources.mariadb.declarations import declarations, is_forbidden
from rollview.sources.mariadb.registered import Registered
from rollview.sources.mariadb.structure import structures_of
from rollview.sources.mariadb.table_damage import table_damage


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
            # What is declared is looked at again behind it, so that both are of one state.
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

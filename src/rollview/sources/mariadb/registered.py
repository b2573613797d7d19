"""The registration in a database: two small tables.

The registry, `_rollview_tables`, lists the captured tables as they were declared at setup, and the place in
the log from which each is captured. It is the truth for every process that captures or asks; another project
over the same database has another one. `_rollview_global` is where an application may say that a transaction
is part of a global one, whichever project reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from functools import cached_property, lru_cache
from typing import Any

from rollview.sources.mariadb.binlog.damage import Damage
from rollview.sources.mariadb.connection import Address
from rollview.sources.mariadb.structure import OURS, Structure
from rollview.sources.mariadb.types import MariaDBColumn
from rollview.sources.source import Table

REGISTRY = f"{OURS}_tables"
"""The registry's name, unless the project chooses another one; those begin with it."""

GLOBAL_TABLE = f"{OURS}_global"


def our_tables(registry: str) -> dict[str, str]:
    """The two tables by name, each with what creates it."""
    return {
        registry: (
            f"CREATE TABLE IF NOT EXISTS `{registry}` (name VARCHAR(64) COLLATE utf8mb4_bin PRIMARY KEY,"
            " structure LONGTEXT CHARACTER SET utf8mb4 NOT NULL, since BIGINT NOT NULL) ENGINE = InnoDB"
        ),
        GLOBAL_TABLE: (
            f"CREATE TABLE IF NOT EXISTS `{GLOBAL_TABLE}` (id VARCHAR(255) COLLATE utf8mb4_bin PRIMARY KEY,"
            " participants VARCHAR(1000) CHARACTER SET utf8mb4 NOT NULL) ENGINE = InnoDB"
        ),
    }


@dataclass(frozen=True)
class Registered:
    """A captured table as it was declared at setup, captured from the ordinal `since` on.

    `again` says that it had been captured before and was not the same any more: what it lost until `since`
    is missed by somebody. `damage` is what setup found it to have when it took it as it was: capture reports
    it where it meets the registration in the log.
    """

    name: str
    columns: tuple[tuple[MariaDBColumn, str], ...]
    key_name: str = ""
    key: tuple[str, ...] = ()
    since: int = 0
    again: bool = False
    damage: Damage | None = None

    @cached_property
    def types(self) -> dict[str, str]:
        """The Spark SQL types by column."""
        return {column.name: kind for column, kind in self.columns}

    @cached_property
    def declared(self) -> dict[str, MariaDBColumn]:
        return {column.name: column for column, _ in self.columns}

    def as_table(self, source: str) -> Table:
        return Table(source, self.name, tuple(self.types), self.key, types=tuple(self.types.values()))


def registered_as(structure: Structure, names: Iterable[str]) -> Registered:
    """Columns of a table as they are now, in the order of these names; others are not captured."""
    present = {column.name: (column, kind) for column, kind in structure.columns}
    columns = tuple(present[name] for name in names if name in present)
    return Registered(structure.name, columns, structure.key_name, structure.key)


def read_registered(cursor: Any, address: Address) -> dict[str, Registered] | None:
    """The captured tables by name; None if setup has not been here."""
    cursor.execute(
        "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
        (address.database, address.registry),
    )
    if cursor.fetchone() is None:
        return None
    cursor.execute(f"SELECT name, structure, since FROM `{address.registry}` ORDER BY name")
    found = {}
    for name, text, since in cursor.fetchall():
        found[name] = _decoded(name, text, since)
    return found


@lru_cache(maxsize=4096)
def _decoded(name: str, text: str, since: int) -> Registered:
    described = json.loads(text)
    return Registered(
        name,
        tuple((MariaDBColumn(*column), kind) for column, kind in described["columns"]),
        described["key_name"],
        tuple(described.get("key", ())),
        since,
        described.get("again", False),
        registered_damage(text),
    )


def registered_damage(text: str) -> Damage | None:
    """The damage that a registration records."""
    stored = json.loads(text).get("damage")
    return Damage(stored[0], tuple(stored[1])) if stored else None


def _encoded(table: Registered) -> str:
    described = {
        "columns": [[astuple(column), kind] for column, kind in table.columns],
        "key_name": table.key_name,
        "key": table.key,
        "again": table.again,
        "damage": [table.damage.reason, table.damage.columns] if table.damage else None,
    }
    return json.dumps(described)


def write_registered(cursor: Any, registry: str, tables: Iterable[Registered], gone: Iterable[str]) -> None:
    """Adds or replaces tables and removes others, in the caller's transaction."""
    for name in gone:
        cursor.execute(f"DELETE FROM `{registry}` WHERE name = %s", (name,))
    for table in tables:
        cursor.execute(
            f"REPLACE INTO `{registry}` (name, structure, since) VALUES (%s, %s, %s)",
            (table.name, _encoded(table), table.since),
        )

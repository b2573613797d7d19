"""Setup in the database: plans and creates the capture of tables, and removes it.

The capture of a table is made once more where it no longer fits the table, or where more columns are wanted.
Changes in between are not in its log, and the log says so (`since`); all other tables continue.
"""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from rollview.errors import CaptureRefused
from rollview.sources.source import Table
from rollview.sources.sqlite.captured import (
    FORGOTTEN_TABLE,
    SEAL,
    SHARED,
    TABLES_TABLE,
    CapturedTable,
    captured_tables,
    is_installed,
)
from rollview.sources.sqlite.connection import quote
from rollview.sources.sqlite.fingerprint import damage, schema_rows, shared_damage, unlogged_changes
from rollview.sources.sqlite.owner_triggers import OURS
from rollview.sources.sqlite.structure import Structure, structure_of, to_json
from rollview.sources.sqlite.triggers import (
    VERSION_TABLE,
    log_name,
    old_name,
    statements,
    trigger_names,
)


@dataclass(frozen=True)
class Capturable:
    """A table that can be captured, and the columns that shall be."""

    structure: Structure
    columns: tuple[str, ...]


@dataclass(frozen=True)
class InstallPlan:
    """The plan to capture some tables: which ones are released, and which captures are created.

    The capture of `broken` tables no longer fits them, or not what is wanted, so it is made once more; the
    log of those that are `kept` continues, with more columns. `is_first` says that there is none at all, or
    none that can be repaired.
    """

    is_first: bool
    gone: tuple[str, ...]
    broken: tuple[str, ...]
    created: tuple[Capturable, ...]
    kept: tuple[CapturedTable, ...] = ()

    @property
    def changes(self) -> tuple[str, ...]:
        return (
            *(["created a counter of changes"] if self.is_first else []),
            *(f"table {name} is no longer captured" for name in self.gone),
            *(f"table {each.structure.name} now writes a change log" for each in self.created),
        )


def plan_install(connection: sqlite3.Connection, source: str, tables: Sequence[Table]) -> InstallPlan:
    """How exactly these tables become captured; refuses a table that cannot be. Nothing is changed."""
    schema = {row[2]: row for row in schema_rows(connection)}
    is_first = not is_installed(connection) or bool(shared_damage(schema))
    present = {} if is_first else captured_tables(connection)
    gone = sorted(present.keys() - {table.name for table in tables})
    known = {table.name: present[table.name] for table in tables if table.name in present}
    damaged = {
        name
        for name, table in known.items()
        if damage(connection, table, schema) or unlogged_changes(connection, table)
    }
    wanted = {table.name: table.columns for table in tables}
    kept = [
        table
        for name, table in known.items()
        if name not in damaged and _lacks(connection, table, wanted[name])
    ]
    broken = sorted(damaged | {table.name for table in kept})
    made = [table for table in tables if table.name not in present or table.name in broken]
    created = [_capturable(connection, source, table) for table in made]
    return InstallPlan(is_first, tuple(gone), tuple(broken), tuple(created), tuple(kept))


def install(connection: sqlite3.Connection, plan: InstallPlan) -> None:
    """Does what was planned, in the caller's transaction, in which it was planned."""
    if not plan.changes:
        return
    if plan.is_first:
        _drop_all(connection)
        for statement in SHARED.values():
            connection.execute(statement)
        start = time.time_ns() // 1000
        connection.execute(f"INSERT INTO {VERSION_TABLE} VALUES (0, ?, ?)", (start, start))
        connection.execute(f"INSERT INTO {FORGOTTEN_TABLE} VALUES (0, ?, ?)", (start, start))
    kept = {table.name: table for table in plan.kept}
    for name in kept:
        _set_aside(connection, name)
    for name in (*plan.gone, *(name for name in plan.broken if name not in kept)):
        _drop(connection, name)
    for each in plan.created:
        if each.structure.name in kept:
            _extend(connection, each, kept[each.structure.name])
        else:
            _create(connection, each)
    # Last of all; and its text is a new one, so that everybody sees that the capture is not the same.
    connection.execute(f"DROP VIEW IF EXISTS {SEAL}")
    connection.execute(f"CREATE VIEW {SEAL} AS SELECT '{uuid.uuid4().hex}' AS made")


def uninstall(connection: sqlite3.Connection) -> list[str]:
    """Drops everything that setup made, in the caller's transaction."""
    if not is_installed(connection):
        return []
    listed = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (TABLES_TABLE,)).fetchone()
    tables = list(captured_tables(connection)) if listed else []
    _drop_all(connection)
    return [f"table {name} is no longer captured" for name in tables]


def _lacks(connection: sqlite3.Connection, captured: CapturedTable, columns: Sequence[str]) -> bool:
    """Whether a column is wanted that the table has and that is not captured.

    One that it no longer has is wanted by a view of which nobody knows yet that it goes.
    """
    structure = structure_of(connection, captured.name)
    there = structure.types.keys() if structure is not None else set()
    return not captured.types.keys() >= set(columns) & there


def _capturable(connection: sqlite3.Connection, source: str, table: Table) -> Capturable:
    name = table.name
    structure = structure_of(connection, name, renewed=True)
    if structure is None:
        raise CaptureRefused(
            f"source {source} has no table {name}", subject=f"{source}.{name}", hint="check the views' FROM"
        )
    if structure.obstacles:
        raise CaptureRefused(
            f"table {source}.{name} cannot be captured: {'; '.join(structure.obstacles)}",
            subject=f"{source}.{name}",
            hint="change the table at the source, or leave it out of the views",
        )
    return Capturable(structure, tuple(column for column in structure.types if column in table.columns))


def _create(connection: sqlite3.Connection, table: Capturable) -> None:
    structure = table.structure
    for statement in statements(structure, table.columns).values():
        connection.execute(statement)
    columns = json.dumps([(name, structure.types[name]) for name in table.columns])
    since = 0
    if connection.execute(f"SELECT 1 FROM {TABLES_TABLE} WHERE name = ?", (structure.name,)).fetchone():
        # A number without a record: it is behind every place at which a capture can have arrived.
        connection.execute(f"UPDATE {VERSION_TABLE} SET version = version + 1")
        (since,) = connection.execute(f"SELECT version FROM {VERSION_TABLE}").fetchone()
        connection.execute(f"UPDATE {FORGOTTEN_TABLE} SET gaps = ?", (since,))
    connection.execute(
        f"INSERT OR REPLACE INTO {TABLES_TABLE} VALUES (?, ?, ?, ?)",
        (structure.name, columns, to_json(structure), since),
    )


def _set_aside(connection: sqlite3.Connection, name: str) -> None:
    """Drops what captures a table, but for its log, which gets another name for a moment."""
    for trigger in trigger_names(name):
        connection.execute(f"DROP TRIGGER IF EXISTS {quote(trigger)}")
    connection.execute(f"DROP TABLE {quote(old_name(name))}")
    # Without looking at triggers: one of the owner's may name a table that is gone.
    connection.execute("PRAGMA legacy_alter_table = ON")
    connection.execute(f"ALTER TABLE {quote(log_name(name))} RENAME TO {quote(_aside(name))}")
    connection.execute("PRAGMA legacy_alter_table = OFF")


def _extend(connection: sqlite3.Connection, table: Capturable, before: CapturedTable) -> None:
    """Captures more columns of a table. Its log keeps its rows, without values for the new ones."""
    structure = table.structure
    for statement in statements(structure, table.columns).values():
        connection.execute(statement)
    places = {name: place for place, name in enumerate(before.types)}
    pairs = [(place, places[name]) for place, name in enumerate(table.columns) if name in places]
    new = ", ".join(["version", "kind", "time", *(f"{side}{at}" for side in "on" for at, _ in pairs)])
    old = ", ".join(["version", "kind", "time", *(f"{side}{at}" for side in "on" for _, at in pairs)])
    name = structure.name
    connection.execute(f"INSERT INTO {quote(log_name(name))} ({new}) SELECT {old} FROM {quote(_aside(name))}")
    connection.execute(f"DROP TABLE {quote(_aside(name))}")
    columns = json.dumps([(column, structure.types[column]) for column in table.columns])
    connection.execute(
        f"INSERT OR REPLACE INTO {TABLES_TABLE} VALUES (?, ?, ?, ?)",
        (name, columns, to_json(structure), before.since),
    )


def _aside(name: str) -> str:
    return f"{log_name(name)}_aside"


def _drop(connection: sqlite3.Connection, name: str) -> None:
    """Drops what captures a table, whatever is left of it."""
    for trigger in trigger_names(name):
        connection.execute(f"DROP TRIGGER IF EXISTS {quote(trigger)}")
    for table in (log_name(name), old_name(name)):
        connection.execute(f"DROP TABLE IF EXISTS {quote(table)}")
    connection.execute(f"UPDATE {TABLES_TABLE} SET columns = NULL WHERE name = ?", (name,))
    connection.execute(f"UPDATE {FORGOTTEN_TABLE} SET gaps = (SELECT version FROM {VERSION_TABLE})")


def _drop_all(connection: sqlite3.Connection) -> None:
    """Drops everything of ours, also what a damaged capture left behind; triggers first."""
    rows = connection.execute(
        "SELECT type, name FROM sqlite_schema WHERE type IN ('trigger', 'view', 'table')"
        " AND substr(name, 1, ?) = ? ORDER BY type DESC",
        (len(OURS) + 1, f"{OURS}_"),
    ).fetchall()
    for kind, name in sorted(rows, key=lambda row: row[0] != "trigger"):
        connection.execute(f"DROP {kind} IF EXISTS {quote(name)}")

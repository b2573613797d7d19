"""What setup leaves in the database, and whether it is still there and still fits.

The truth about what is captured is in the database itself: `_rollview_tables` lists the captured tables with
their columns as they were at setup. Whatever capture needs can be derived from a table's structure, so the
check is simple: derive it again and compare. It is done when SQLite's schema version has changed.

The counter starts at the time of setup in microseconds. A capture that was set up anew thus never repeats
a number, and a log position of an earlier *generation* is recognized.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rollview.errors import CaptureRefused, NotSetUp, SourceChanged
from rollview.sources.reload_hint import reload_hint
from rollview.sources.sqlite.connection import quote
from rollview.sources.sqlite.structure import OURS, Structure, structure_of
from rollview.sources.sqlite.triggers import VERSION_TABLE, log_name, old_name, statements, trigger_names

TABLES_TABLE = f"{OURS}_tables"
CUTS_TABLE = f"{OURS}_cuts"
FORGOTTEN_TABLE = f"{OURS}_forgotten"
_SHARED = {
    VERSION_TABLE: f"CREATE TABLE {VERSION_TABLE}(id INTEGER PRIMARY KEY, generation, version)",
    TABLES_TABLE: f"CREATE TABLE {TABLES_TABLE}(name TEXT PRIMARY KEY, columns, key)",
    # Counters that an answer saw, or from which a capture began: no captured transaction may span one.
    CUTS_TABLE: f"CREATE TABLE {CUTS_TABLE}(version INTEGER PRIMARY KEY, origin)",
    FORGOTTEN_TABLE: f"CREATE TABLE {FORGOTTEN_TABLE}(id INTEGER PRIMARY KEY, version)",
}


@dataclass(frozen=True)
class CapturedTable:
    """A captured table with its columns' Spark SQL types and its key, as they were at setup."""

    name: str
    types: dict[str, str]
    key: tuple[str, ...]


@dataclass(frozen=True)
class State:
    """What a read transaction sees of the capture: the counter, and the number it started from."""

    generation: int
    version: int
    root_page: int


def is_installed(connection: sqlite3.Connection) -> bool:
    """Whether setup has been here."""
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (VERSION_TABLE,)).fetchone()
    return found is not None


def state_of(connection: sqlite3.Connection, source: str) -> State:
    """The state of the capture. In a transaction this is also what fixes what the transaction sees."""
    root = connection.execute(
        "SELECT rootpage FROM sqlite_schema WHERE name = ?", (VERSION_TABLE,)
    ).fetchone()
    if root is None:
        raise NotSetUp(
            f"source {source} is not set up for capture", subject=source, hint="run `rollview setup`"
        )
    row = connection.execute(f"SELECT generation, version FROM {VERSION_TABLE} WHERE id = 0").fetchone()
    if row is None:
        hint = reload_hint(source)
        raise SourceChanged(f"the counter of source {source} is gone", subject=VERSION_TABLE, hint=hint)
    return State(*row, *root)


def captured_tables(connection: sqlite3.Connection) -> dict[str, CapturedTable]:
    """The captured tables by name, as they were at setup."""
    rows = connection.execute(f"SELECT name, columns, key FROM {TABLES_TABLE} ORDER BY name")
    return {
        name: CapturedTable(name, dict(json.loads(columns)), tuple(json.loads(key)))
        for name, columns, key in rows
    }


def damage(connection: sqlite3.Connection, table: CapturedTable) -> str:
    """Why a table's capture no longer fits, as a sentence; empty if it does."""
    structure = structure_of(connection, table.name)
    if structure is None:
        return f"table {table.name} is gone"
    if structure.types != table.types or structure.key != table.key:
        now = ", ".join(f"{name} {kind}" for name, kind in structure.types.items())
        then = ", ".join(f"{name} {kind}" for name, kind in table.types.items())
        return f"the columns of table {table.name} changed: they are ({now}), they were ({then})"
    if structure.obstacles:
        return f"table {table.name} can no longer be captured: {'; '.join(structure.obstacles)}"
    for name, wanted in statements(structure).items():
        found = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
        if found is None:
            return f"{name}, which captures table {table.name}, was removed"
        if found[0] != wanted:
            return f"{name} no longer fits table {table.name}: its unique keys or defaults changed"
    return ""


def check(connection: sqlite3.Connection, source: str) -> dict[str, CapturedTable]:
    """The captured tables, all of them intact; otherwise an error that says what happened."""
    tables = captured_tables(connection)
    for table in tables.values():
        if reason := damage(connection, table):
            raise SourceChanged(
                f"source {source}: {reason}", subject=f"{source}.{table.name}", hint=reload_hint(source)
            )
    return tables


@dataclass(frozen=True)
class InstallPlan:
    """What it takes to make some tables captured: which are let go, which capture is made, for what tables.

    The capture of `broken` tables no longer fits them, so it is made once more.
    """

    is_first: bool
    gone: tuple[str, ...]
    broken: tuple[str, ...]
    created: tuple[Structure, ...]

    @property
    def changes(self) -> tuple[str, ...]:
        """The same as sentences."""
        return (
            *(["created a counter of changes"] if self.is_first else []),
            *(f"table {name} is no longer captured" for name in self.gone),
            *(f"table {table.name} now writes a change log" for table in self.created),
        )


def plan_install(connection: sqlite3.Connection, source: str, names: Sequence[str]) -> InstallPlan:
    """How exactly these tables become captured; refuses a table that cannot be. Nothing is changed."""
    is_first = not is_installed(connection)
    present = {} if is_first else captured_tables(connection)
    gone = sorted(present.keys() - set(names))
    broken = [name for name in names if name in present and damage(connection, present[name])]
    made = [name for name in names if name not in present or name in broken]
    created = [_capturable(connection, source, name) for name in made]
    return InstallPlan(is_first, tuple(gone), tuple(broken), tuple(created))


def install(connection: sqlite3.Connection, plan: InstallPlan) -> None:
    """Does what was planned, in the caller's transaction, in which it was planned."""
    if plan.is_first:
        for statement in _SHARED.values():
            connection.execute(statement)
        start = _new_generation(0)
        connection.execute(f"INSERT INTO {VERSION_TABLE} VALUES (0, ?, ?)", (start, start))
        connection.execute(f"INSERT INTO {FORGOTTEN_TABLE} VALUES (0, ?)", (start,))
    for name in (*plan.gone, *plan.broken):
        _drop(connection, name)
    for structure in plan.created:
        _create(connection, structure)
    if plan.broken:
        # What happened to these tables in between is unknown: no capture may go on across this point.
        _start_over(connection)


def uninstall(connection: sqlite3.Connection) -> list[str]:
    """Drops everything that setup made, in the caller's transaction."""
    if not is_installed(connection):
        return []
    tables = list(captured_tables(connection))
    for name in tables:
        _drop(connection, name)
    for name in _SHARED:
        connection.execute(f"DROP TABLE IF EXISTS {name}")
    return [f"table {name} is no longer captured" for name in tables]


def _capturable(connection: sqlite3.Connection, source: str, name: str) -> Structure:
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
    return structure


def _create(connection: sqlite3.Connection, structure: Structure) -> None:
    for statement in statements(structure).values():
        connection.execute(statement)
    columns = json.dumps(list(structure.types.items()))
    connection.execute(
        f"INSERT INTO {TABLES_TABLE} VALUES (?, ?, ?)", (structure.name, columns, json.dumps(structure.key))
    )


def _drop(connection: sqlite3.Connection, name: str) -> None:
    """Drops what captures a table, whatever is left of it."""
    for trigger in trigger_names(name):
        connection.execute(f"DROP TRIGGER IF EXISTS {quote(trigger)}")
    for table in (log_name(name), old_name(name)):
        connection.execute(f"DROP TABLE IF EXISTS {quote(table)}")
    connection.execute(f"DELETE FROM {TABLES_TABLE} WHERE name = ?", (name,))


def _start_over(connection: sqlite3.Connection) -> None:
    row = connection.execute(f"SELECT version FROM {VERSION_TABLE}").fetchone()
    start = _new_generation(row[0])
    connection.execute(f"UPDATE {VERSION_TABLE} SET generation = ?, version = ?", (start, start))
    connection.execute(f"UPDATE {FORGOTTEN_TABLE} SET version = ?", (start,))
    connection.execute(f"DELETE FROM {CUTS_TABLE}")


def _new_generation(above: int) -> int:
    return max(time.time_ns() // 1000, above + 1)

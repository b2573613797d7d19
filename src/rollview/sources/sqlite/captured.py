"""The tables that setup creates for all captured tables together, and their content.

The truth about what is captured is in the database itself: `_rollview_tables` lists the captured tables with
their columns and with what their triggers were made from. A table that was let go stays listed without
columns: if it is captured again, a reader that has not seen that yet learns that changes are missing.

The counter starts at the time of setup in microseconds. A capture that was set up again thus never repeats
a number, and a log position of an earlier *generation* is recognized.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

from rollview.errors import NotSetUp, SourceChanged
from rollview.sources.source import reload_hint
from rollview.sources.sqlite.owner_triggers import OURS
from rollview.sources.sqlite.structure import Structure, from_json
from rollview.sources.sqlite.triggers import VERSION_TABLE

TABLES_TABLE = f"{OURS}_tables"
CUTS_TABLE = f"{OURS}_cuts"
FORGOTTEN_TABLE = f"{OURS}_forgotten"
SEAL = f"{OURS}_seal"
"""A view that is created last, each time that setup changes anything."""

SHARED = {
    VERSION_TABLE: f"CREATE TABLE {VERSION_TABLE}(id INTEGER PRIMARY KEY, generation, version)",
    TABLES_TABLE: f"CREATE TABLE {TABLES_TABLE}(name TEXT PRIMARY KEY, columns, structure, since)",
    # Counters that an answer saw, at which a transaction ended, or from which a capture began: no captured
    # transaction may span one. The last have a text as origin, by which a log position knows this place
    # again; ends of transactions have the end of the one before, if it is known.
    CUTS_TABLE: f"CREATE TABLE {CUTS_TABLE}(version INTEGER PRIMARY KEY, origin)",
    # Records up to `version` were let go. Those up to `gaps` may be missing with the logs of single tables.
    FORGOTTEN_TABLE: f"CREATE TABLE {FORGOTTEN_TABLE}(id INTEGER PRIMARY KEY, version, gaps)",
}


@dataclass(frozen=True)
class CapturedTable:
    """A captured table: Spark SQL types of the captured columns, and what its triggers were made from.

    Its log is complete after the counter `since`; 0 if it was never captured before that.
    """

    name: str
    types: dict[str, str]
    structure: Structure
    since: int

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key, of which some columns may not be captured."""
        return self.structure.key


@dataclass(frozen=True)
class State:
    """The capture as a read transaction sees it: the counter, and the number it started from."""

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
    rows = connection.execute(
        f"SELECT name, columns, structure, since FROM {TABLES_TABLE} WHERE columns IS NOT NULL ORDER BY name"
    )
    return {
        name: CapturedTable(name, dict(json.loads(columns)), from_json(structure), since)
        for name, columns, structure, since in rows
    }

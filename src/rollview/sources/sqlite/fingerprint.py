"""Whether everything that capture relies on is still there, and is still the same.

Identity is more than a name and a text: a trigger that was dropped for an import and created again afterwards
reads as before, and all that was written meanwhile is missing from the log. So setup ends with a *seal*, a
view that is created after everything else. SQLite numbers the rows of its schema table in the order of their
creation, and VACUUM keeps that order for triggers and views. A recreated object is behind the
seal.

Damage to one table is reported by a message that names the act; the other tables continue. Damage to what all
tables share is an error of the source.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rollview.errors import SourceChanged
from rollview.sources.source import reload_hint
from rollview.sources.sqlite.captured import SEAL, SHARED, CapturedTable, captured_tables
from rollview.sources.sqlite.connection import quote
from rollview.sources.sqlite.structure import BUILT_IN, TRIGGER_VERSION, Structure, structure_of
from rollview.sources.sqlite.triggers import (
    goes_with_table,
    log_name,
    old_name,
    statements,
    trigger_names,
    unlogged,
)

SchemaRow = tuple[int, str, str, str, str | None]
"""Row number, type, name, table and text of something in the schema."""


@dataclass(frozen=True)
class Inspection:
    """The captured tables, what happened to those that are damaged, and which logs cannot be read."""

    tables: dict[str, CapturedTable]
    damaged: dict[str, str]
    unreadable: frozenset[str]


def schema_rows(connection: sqlite3.Connection) -> list[SchemaRow]:
    """The whole schema as the transaction sees it; also edits that do not move SQLite's schema version."""
    return connection.execute("SELECT rowid, type, name, tbl_name, sql FROM sqlite_schema").fetchall()


def inspect(connection: sqlite3.Connection, source: str, rows: list[SchemaRow]) -> Inspection:
    """Looks at everything; refuses a database in which what all tables share is damaged."""
    schema = {row[2]: row for row in rows}
    if reason := shared_damage(schema):
        raise SourceChanged(f"source {source}: {reason}", subject=source, hint=reload_hint(source))
    tables = captured_tables(connection)
    reasons = {name: damage(connection, table, schema) for name, table in tables.items()}
    damaged = {name: reason for name, reason in reasons.items() if reason}
    unreadable = frozenset(name for name in damaged if not _has_log(tables[name], schema))
    return Inspection(tables, damaged, unreadable)


def with_unlogged(connection: sqlite3.Connection, found: Inspection) -> Inspection:
    """The same with the tables of which changes were kept from the log; these do not show in the schema."""
    whole = [table for name, table in found.tables.items() if name not in found.damaged]
    reasons = {table.name: unlogged_changes(connection, table) for table in whole}
    damaged = {name: reason for name, reason in reasons.items() if reason}
    return replace(found, damaged=found.damaged | damaged) if damaged else found


def unlogged_changes(connection: sqlite3.Connection, table: CapturedTable) -> str:
    """Whether a row that may have been deleted was, and the log does not say so; a sentence, or nothing."""
    if any(collation not in BUILT_IN for _, collation in table.structure.identity):
        return ""
    condition = unlogged(table.structure, tuple(table.types))
    query = f"SELECT 1 FROM {quote(old_name(table.name))} WHERE {condition} LIMIT 1"
    if connection.execute(query).fetchone() is None:
        return ""
    return (
        f"a statement failed after it had changed rows of table {table.name}, and kept what it had done"
        " (FAIL, or IGNORE in a trigger), so its changes are not in the log"
    )


def shared_damage(schema: Mapping[str, SchemaRow]) -> str:
    """The damage of the tables that the capture of all tables shares; empty if there is none."""
    for name, statement in SHARED.items():
        if name not in schema:
            return f"{name}, which capture needs, was dropped"
        if schema[name][4] != statement or _is_recreated(name, schema):
            return f"{name}, which capture needs, was altered, or dropped and created again"
    return ""


def damage(connection: sqlite3.Connection, table: CapturedTable, schema: Mapping[str, SchemaRow]) -> str:
    """The damage of a table or its capture, as a sentence; empty if there is none."""
    present = structure_of(connection, table.name)
    there = next((schema[name][3] for name in trigger_names(table.name) if name in schema), table.name)
    if there.lower() not in (table.name.lower(), old_name(table.name).lower()):
        taken = "" if present is None else ", and another table has its name now"
        return f"table {table.name} was renamed to {there}{taken}"
    if present is None:
        return f"table {table.name} was dropped"
    return (
        _damage_of_triggers(table, schema)
        or _damage_of_columns(table, present)
        or _damage_of_texts(table, present, schema)
    )


def _damage_of_triggers(table: CapturedTable, schema: Mapping[str, SchemaRow]) -> str:
    """Whether all that captures a table is there, belongs to it, and is what setup made."""
    made = statements(table.structure, tuple(table.types))
    missing = [name for name in made if name not in schema]
    if {name for name in made if goes_with_table(name, table.name)} <= set(missing):
        return f"table {table.name} was dropped and created again, or its triggers were dropped"
    if missing:
        return f"{missing[0]}, which captures table {table.name}, was dropped"
    for name in made:
        if _is_recreated(name, schema):
            return f"{name}, which captures table {table.name}, was dropped and created again"
    if SEAL not in schema:
        return (
            f"{SEAL} was dropped, so it is not known whether what captures table {table.name}"
            " was dropped and created again"
        )
    return ""


def _damage_of_columns(table: CapturedTable, present: Structure) -> str:
    for name, kind in table.types.items():
        if name not in present.types:
            return f"column {name} of table {table.name} was renamed or dropped"
        if present.types[name] != kind:
            return f"column {name} of table {table.name} has type {present.types[name]} now, it was {kind}"
    if present.key != table.key:
        now, then = ", ".join(present.key) or "none", ", ".join(table.key) or "none"
        return f"the primary key of table {table.name} changed: it is {now}, it was {then}"
    if present.obstacles:
        return f"table {table.name} can no longer be captured: {'; '.join(present.obstacles)}"
    return ""


def _damage_of_texts(table: CapturedTable, present: Structure, schema: Mapping[str, SchemaRow]) -> str:
    """Whether the triggers read as setup made them, or as it would make them today, and are enough today."""
    texts = {name: row[4] for name, row in schema.items()}
    if all(texts.get(name) == text for name, text in statements(present, tuple(table.types)).items()):
        return ""
    if table.structure.trigger_version < TRIGGER_VERSION and _needs_more(present):
        return (
            f"the triggers of table {table.name} were made by an earlier release and miss rows that REPLACE"
            " deletes by a partial index, by a generated column, or while a foreign key acts"
        )
    for name, text in statements(table.structure, tuple(table.types)).items():
        if texts[name] != text:
            return f"{name}, which captures table {table.name}, was altered"
    # Fewer unique keys than at setup do no harm: then triggers look for collisions that do not happen.
    if new := [key for key in present.unique if key not in table.structure.unique]:
        columns = ", ".join(column for column, _ in new[0].columns)
        return (
            f"table {table.name} has got a unique key ({columns}): rows that REPLACE deletes by it are missed"
        )
    if present.identity != table.structure.identity:
        return f"the rows of table {table.name} have another identity than its triggers go by"
    if present.is_reentrant and not table.structure.is_reentrant:
        return (
            f"table {table.name} has got a foreign key or a trigger that can write it while REPLACE deletes"
            " rows of it, for which its triggers were not made"
        )
    if present.moved_by_parents and not table.structure.moved_by_parents:
        return f"table {table.name} has got a foreign key whose action can update its rows"
    if _defaults(present) != _defaults(table.structure):
        return f"the default of a column of table {table.name} changed, which REPLACE puts in place of NULL"
    return ""


def _needs_more(structure: Structure) -> bool:
    """Whether the triggers of the first release are not enough for a table."""
    keys = structure.unique
    return structure.is_reentrant or any(key.condition or key.is_computed or key.when_null for key in keys)


def _defaults(structure: Structure) -> dict[str, str]:
    return {column.name: column.absent for column in structure.columns if column.absent}


def _is_recreated(name: str, schema: Mapping[str, SchemaRow]) -> bool:
    return SEAL in schema and schema[name][0] > schema[SEAL][0]


def _has_log(table: CapturedTable, schema: Mapping[str, SchemaRow]) -> bool:
    name = log_name(table.name)
    wanted = statements(table.structure, tuple(table.types))[name]
    return name in schema and schema[name][4] == wanted

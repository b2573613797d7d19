"""Look-ups: rows of some tables that match given keys, or rows found in a table before.

Keys go to a temporary table, and `IN` looks them up through the source's own indexes. Keys are compared only
where equal values in Spark are stored as equal values in SQLite. The comparison follows the column's
collation, which finds equal texts always and others, perhaps, too. A semi-join gives no row twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rollview.errors import NotSetUp, SourceChanged
from rollview.sources.reload_hint import setup_hint
from rollview.sources.source import COMPARISONS, Comparison, Lookup, Rows, run_plan
from rollview.sources.sqlite.captured import CapturedTable
from rollview.sources.sqlite.change_log import rows_of
from rollview.sources.sqlite.connection import quote
from rollview.sources.sqlite.database import DatabaseSnapshot

_INTEGERS = {"tinyint", "smallint", "int", "bigint"}
_STORED_ALIKE = {"string", "double", "binary", "boolean", "date"}
_MOST_INTEGER = (1 << 63) - 1


def comparable(key_type: str, column_type: str) -> bool:
    """Whether values equal in Spark are stored as equal values: one date has one text, but not one time."""
    if column_type == "bigint":
        return key_type in _INTEGERS
    return key_type == column_type and column_type in _STORED_ALIKE


def can_push(comparison: Comparison, column_type: str) -> bool:
    """Comparisons with one number or text. Texts are ordered by their encoding, which need not be UTF-8."""
    if comparison.operator not in COMPARISONS:
        return False
    (value,) = comparison.values
    if column_type == "bigint":
        return type(value) is int and abs(value) <= _MOST_INTEGER
    return column_type == "string" and type(value) is str and comparison.operator == "="


def look_up_all(snapshot: DatabaseSnapshot, source: str, plan: Sequence[Lookup]) -> tuple[Rows, ...]:
    """The rows of every look-up, as the snapshot sees them."""
    connection = snapshot.connection

    def find(lookup: Lookup, keys: pa.Table | None) -> pa.Table:
        table = captured(snapshot, lookup.table.name, source, lookup.columns)
        conditions = [f"{quote(each.column)} {each.operator} ?" for each in lookup.conditions]
        parameters = [value for each in lookup.conditions for value in each.values]
        if keys is not None:
            conditions.append(_semi_join(connection, f"keys_of_{plan.index(lookup)}", table, keys))
        # A table of which no column is needed still has a number of rows.
        names = ", ".join(quote(column) for column in lookup.columns) or "1"
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        query = f"SELECT {names} FROM main.{quote(table.name)}{where}"
        rows = connection.execute(query, parameters).fetchall()
        return rows_of(source, table, lookup.columns, rows if lookup.columns else [()] * len(rows))

    return run_plan(plan, find)


def captured(snapshot: DatabaseSnapshot, name: str, source: str, columns: Sequence[str]) -> CapturedTable:
    """A captured table without damage, with these columns; only of those it is known what a reading saw."""
    found, subject = snapshot.found, f"{source}.{name}"
    if name not in found.tables:
        raise NotSetUp(f"table {subject} is not captured", subject=subject, hint="run `rollview setup`")
    if name in found.damaged:
        message = f"source {source}: {found.damaged[name]}"
        raise SourceChanged(message, subject=subject, hint=setup_hint(subject))
    table = found.tables[name]
    for column in columns:
        if column not in table.types:
            message = f"column {column} of table {subject} is not captured"
            raise NotSetUp(message, subject=f"{subject}.{column}", hint="run `rollview setup`")
    return table


def _semi_join(connection: sqlite3.Connection, name: str, table: CapturedTable, keys: pa.Table) -> str:
    """Fills a temporary table with keys; the condition that looks them up."""
    places = [f"k{i}" for i in range(keys.num_columns)]
    connection.execute(f"CREATE TEMP TABLE {name}({', '.join(places)})")
    values = [_stored_values(keys.column(column), table.types[column]) for column in keys.column_names]
    connection.executemany(
        f"INSERT INTO temp.{name} VALUES ({', '.join('?' for _ in places)})", zip(*values, strict=True)
    )
    left = ", ".join(quote(column) for column in keys.column_names)
    return f"({left}) IN (SELECT {', '.join(places)} FROM temp.{name})"


def _stored_values(column: pa.ChunkedArray, kind: str) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return [value.isoformat() for value in values] if kind == "date" else values

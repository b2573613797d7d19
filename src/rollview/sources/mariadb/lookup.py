"""Look-ups: rows of some tables that match given keys, or rows found in a table before.

Keys go to a temporary table whose columns are copies of the columns they are compared with, so that the
comparison is one of the source's own type, character set and collation, and uses its indexes. A collation
finds equal texts always and others, perhaps, too. A key that does not fit the column is cut to fit: it then
finds rows that were not asked for, which is harmless. A semi-join gives no row twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from rollview.sources.mariadb.connection import Server
from rollview.sources.mariadb.declarations import quote
from rollview.sources.mariadb.registered import Registered
from rollview.sources.mariadb.text_values import literal, table_of
from rollview.sources.mariadb.types import selected
from rollview.sources.source import IN, Comparison, Constant, Lookup, Rows, run_plan

_EXACT_NUMBERS = ("tinyint", "smallint", "int", "bigint", "decimal")
_STORED_ALIKE = ("string", "binary", "boolean", "date", "timestamp", "timestamp_ntz")
_INSERTED_CHARACTERS = 200_000


def comparable(key_type: str, column_type: str) -> bool:
    """Whether values equal in Spark are found. Not so for floating point: -0.0 and 0.0 are equal there."""
    if column_type.partition("(")[0] in _EXACT_NUMBERS:
        return key_type.partition("(")[0] in _EXACT_NUMBERS
    return key_type == column_type and column_type in _STORED_ALIKE


def can_push(comparison: Comparison, column_type: str) -> bool:
    """Whether MariaDB's comparison finds at least what Spark's does."""
    return all(_alike(value, comparison.operator, column_type) for value in comparison.values)


def _alike(value: Constant, operator: str, kind: str) -> bool:
    if isinstance(value, bool):
        return False
    if kind.partition("(")[0] in _EXACT_NUMBERS:
        return isinstance(value, int | Decimal)
    # Texts are ordered by their collation.
    if kind == "string":
        return isinstance(value, str) and operator in ("=", IN)
    return kind == "date" and isinstance(value, date) and not isinstance(value, datetime)


def _condition(comparison: Comparison) -> str:
    texts = [literal(value) for value in comparison.values]
    right = f"({', '.join(texts)})" if comparison.operator == IN else texts[0]
    return f"{quote(comparison.column)} {comparison.operator} {right}"


class PlannedLookups:
    """One plan on one connection. Keys that are known are sent before the snapshot begins."""

    def __init__(
        self, server: Server, connection: Any, tables: Sequence[Registered], plan: Sequence[Lookup]
    ) -> None:
        self._server = server
        self._connection = connection
        self._tables = tables
        self._plan = plan
        self._conditions: dict[int, str] = {}
        self._made = ExitStack()

    def __enter__(self) -> PlannedLookups:
        for place, lookup in enumerate(self._plan):
            if lookup.keys is not None:
                self._ship(place, lookup.keys)
        return self

    def __exit__(self, *_: object) -> None:
        self._made.close()

    def answers(self) -> tuple[Rows, ...]:
        """The rows of every look-up, read in the connection's transaction."""
        return run_plan(self._plan, self._find)

    def _find(self, lookup: Lookup, keys: pa.Table | None) -> pa.Table:
        place = self._plan.index(lookup)
        if keys is not None and place not in self._conditions:
            self._ship(place, keys)
        table = self._tables[place]
        conditions = [_condition(each) for each in lookup.conditions]
        if place in self._conditions:
            conditions.append(self._conditions[place])
        query = select_query(table, lookup.columns, conditions)
        rows = list(self._server.rows(self._connection, query))
        columns = [(name, table.types[name]) for name in lookup.columns]
        return table_of(columns, rows, f"{self._server.source}.{table.name}")

    def _ship(self, place: int, keys: pa.Table) -> None:
        """Fills a temporary table with keys and makes the condition that looks them up."""
        table = self._tables[place]
        name = f"_rollview_keys_{place}"
        columns = ", ".join(quote(column) for column in keys.column_names)
        with self._connection.cursor() as cursor:
            cursor.execute(f"DROP TEMPORARY TABLE IF EXISTS {name}")
            cursor.execute(
                f"CREATE TEMPORARY TABLE {name} ENGINE = InnoDB AS SELECT {columns} FROM {quote(table.name)}"
                " WHERE FALSE"
            )
            self._made.callback(self._drop, name)
            for rows in _literals(keys):
                cursor.execute(f"INSERT IGNORE INTO {name} VALUES {rows}")
        self._conditions[place] = f"({columns}) IN (SELECT {columns} FROM {name})"

    def _drop(self, name: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(f"DROP TEMPORARY TABLE IF EXISTS {name}")


def select_query(table: Registered, columns: Sequence[str], conditions: Sequence[str] = ()) -> str:
    """A query whose texts give the exact values of columns."""
    # A relation of which no column is needed still has a number of rows.
    names = ", ".join(selected(table.declared[name], quote(name)) for name in columns) or "1"
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {names} FROM {quote(table.name)}{where}"


def _literals(keys: pa.Table) -> Iterator[str]:
    """The keys as rows of several INSERTs, none of which is too long for a server."""
    columns = [map(literal, column.to_pylist()) for column in keys.columns]
    batch: list[str] = []
    size = 0
    for values in zip(*columns, strict=True):
        batch.append(f"({', '.join(values)})")
        size += len(batch[-1])
        if size > _INSERTED_CHARACTERS:
            yield ", ".join(batch)
            batch, size = [], 0
    if batch:
        yield ", ".join(batch)

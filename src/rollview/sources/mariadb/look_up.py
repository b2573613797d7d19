"""Sub-queries: rows of some relations that match shipped keys, or rows found for a relation before.

Keys go to a temporary table whose columns are copies of the columns they are compared with, so that the
comparison is one of the source's own type, character set and collation, and uses its indexes. A collation
finds equal texts always and others, perhaps, too. A key that does not fit the column is cut to fit: it then
finds rows that were not asked for, which is harmless. A semi-join gives no row twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rollview.algebra.expression import Call, Column, Expression, Literal
from rollview.algebra.functions import Date, Timestamp
from rollview.algebra.relation import Relation
from rollview.sources.mariadb.connection import Server
from rollview.sources.mariadb.registered import Registered
from rollview.sources.mariadb.text_values import literal, table_of
from rollview.sources.mariadb.types import selected
from rollview.sources.server.sub_query import Wanted

_EXACT_NUMBERS = ("tinyint", "smallint", "int", "bigint", "decimal")
_STORED_ALIKE = ("string", "binary", "boolean", "date", "timestamp", "timestamp_ntz")
_COMPARISONS = ("=", "<", "<=", ">", ">=")
_INSERTED_CHARACTERS = 200_000


def quote(name: str) -> str:
    """An identifier as SQL text."""
    return "`" + name.replace("`", "``") + "`"


def comparable(theirs: str, own: str) -> bool:
    """Whether values equal in Spark are found. Not so for floating point: -0.0 and 0.0 are equal there."""
    if own.partition("(")[0] in _EXACT_NUMBERS:
        return theirs.partition("(")[0] in _EXACT_NUMBERS
    return theirs == own and own in _STORED_ALIKE


def pushed(relation: Relation, condition: Expression) -> str | None:
    """A comparison of a column with constants as SQL; None if it is left to the caller."""
    names = dict(zip(relation.columns, relation.table.columns, strict=True))
    types = dict(zip(relation.table.columns, relation.table.types, strict=True))
    match condition:
        case Call(function=operator, arguments=(Column() as column, Literal() as constant)) if (
            operator in _COMPARISONS
        ):
            constants: tuple[Expression, ...] = (constant,)
        case Call(function="IN" as operator, arguments=(Column() as column, *rest)):
            constants = tuple(rest)
        case _:
            return None
    if column.name not in names:
        return None
    own = names[column.name]
    values = [each.value for each in constants if isinstance(each, Literal)]
    if len(values) < len(constants) or not all(_pushable(value, types[own], operator) for value in values):
        return None
    texts = [literal(value) for value in values]
    return f"{quote(own)} {operator} " + (f"({', '.join(texts)})" if operator == "IN" else texts[0])


def _pushable(value: Any, kind: str, operator: str) -> bool:
    """Whether MariaDB's comparison finds at least what Spark's does. Texts are ordered by their collation."""
    if isinstance(value, bool):
        return False
    if kind.partition("(")[0] in _EXACT_NUMBERS:
        return isinstance(value, int | Decimal)
    if kind == "string":
        return isinstance(value, str) and operator in ("=", "IN")
    return kind == "date" and isinstance(value, Date) and not isinstance(value, Timestamp)


class LookUp:
    """One sub-query on one connection. Shipped keys are sent before the snapshot begins."""

    def __init__(
        self, server: Server, connection: Any, tables: Sequence[Registered], plan: Sequence[Wanted]
    ) -> None:
        self._server = server
        self._connection = connection
        self._tables = tables
        self._plan = plan
        self._conditions: dict[int, str] = {}
        self._made = ExitStack()

    def __enter__(self) -> LookUp:
        for place, wanted in enumerate(self._plan):
            if wanted.keys is not None:
                self._ship(place, wanted.keys)
        return self

    def __exit__(self, *_: object) -> None:
        self._made.close()

    def answers(self) -> tuple[pa.Table, ...]:
        """The rows for every relation, read in the connection's transaction."""
        found: list[pa.Table] = []
        for place, wanted in enumerate(self._plan):
            if wanted.parent is not None:
                self._ship(place, _keys_of(found[wanted.parent], wanted.on))
            found.append(self._select(place, wanted))
        return tuple(found)

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

    def _select(self, place: int, wanted: Wanted) -> pa.Table:
        table = self._tables[place]
        conditions = list(wanted.conditions)
        if place in self._conditions:
            conditions.append(self._conditions[place])
        query = select_query(table, wanted.columns, conditions)
        rows = list(self._server.rows(self._connection, query))
        columns = [(name, table.types[name]) for name in wanted.columns]
        return table_of(columns, rows, f"{self._server.source}.{table.name}")


def select_query(table: Registered, columns: Sequence[str], conditions: Sequence[str] = ()) -> str:
    """A query whose texts give the exact values of columns."""
    # A relation of which no column is needed still has a number of rows.
    names = ", ".join(selected(table.declared[name], quote(name)) for name in columns) or "1"
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {names} FROM {quote(table.name)}{where}"


def _keys_of(rows: pa.Table, on: Sequence[tuple[str, str]]) -> pa.Table:
    """The distinct values of a parent's columns, under the names of the columns to be looked up."""
    keys = pa.Table.from_arrays([rows.column(theirs) for theirs, _ in on], names=[own for _, own in on])
    for name in keys.column_names:
        keys = keys.filter(pc.is_valid(keys.column(name)))
    return keys.group_by(keys.column_names, use_threads=False).aggregate([])


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

"""Loads of whole tables, and look-ups: rows that match given keys, or rows found in a table before.

Keys go to a temporary table, and `IN` looks them up through the source's own indexes. Keys are compared only
where equal values in Spark are stored as equal values in SQLite. The comparison follows the column's
collation, which finds equal texts always and others, perhaps, too. A semi-join gives no row twice.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from rollview.errors import NotSetUp, SourceChanged
from rollview.rows import FileScan, ScanFile
from rollview.sources.source import COMPARISONS, COUNT, Comparison, Lookup, Rows, Table, run_plan, setup_hint
from rollview.sources.sqlite.captured import CapturedTable
from rollview.sources.sqlite.change_log import rows_of
from rollview.sources.sqlite.connection import quote
from rollview.sources.sqlite.database import Database, DatabaseSnapshot
from rollview.sources.sqlite.structure import structure_of

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


# Whole tables at one state. Large ones are written to Parquet files, partition by partition.
#
# Several connections may read them at once: each begins a transaction of its own, and is of use if it sees
# the same counter as the first, for then the captured tables are the same as well.

LARGE_ROWS = 200_000
_PARTITION_ROWS = 250_000
_CHUNK_ROWS = 50_000
_READERS = 2


@dataclass(frozen=True)
class _Partition:
    """A part of a table: rows with start ≤ identity < end, either of which may be missing."""

    table: CapturedTable
    columns: tuple[str, ...]
    identity: str
    start: int | None
    end: int | None
    path: Path


def load(
    database: Database, snapshot: DatabaseSnapshot, tables: Mapping[Table, Sequence[str]], scratch: Path
) -> tuple[Rows, ...]:
    """The tables with the given columns and `_count`, as the snapshot sees them."""
    partitions: list[_Partition] = []
    results: list[Rows] = []
    for table, columns in tables.items():
        known = captured(snapshot, table.name, database.source, columns)
        (size,) = snapshot.connection.execute(f"SELECT count(*) FROM main.{quote(known.name)}").fetchone()
        whole = _Partition(known, tuple(columns), "", None, None, scratch)
        if size <= LARGE_ROWS:
            results.append(pa.concat_tables(_chunks(snapshot.connection, database.source, whole)))
            continue
        parts = list(_partitions(snapshot.connection, known, tuple(columns), size, scratch))
        schema = (*((name, known.types[name]) for name in columns), (COUNT, "bigint"))
        results.append(FileScan(tuple(ScanFile(str(part.path)) for part in parts), schema))
        partitions += parts
    if partitions:
        scratch.mkdir(parents=True, exist_ok=True)
        _write_all(database, snapshot, partitions)
    return tuple(results)


def _partitions(
    connection: sqlite3.Connection, table: CapturedTable, columns: tuple[str, ...], size: int, scratch: Path
) -> Iterator[_Partition]:
    """Ranges of rowids with about the same number of rows; one range where there are no rowids."""
    structure = structure_of(connection, table.name)
    identity = structure.identity[0][0] if structure is not None else ""
    bounds: list[int | None] = [None]
    if identity in ("rowid", "_rowid_", "oid"):
        for offset in range(_PARTITION_ROWS, size, _PARTITION_ROWS):
            row = connection.execute(
                f"SELECT {identity} FROM main.{quote(table.name)} ORDER BY {identity} LIMIT 1 OFFSET {offset}"
            ).fetchone()
            bounds.append(row[0])
    run = uuid.uuid4().hex
    for i, (start, end) in enumerate(pairwise((*bounds, None))):
        yield _Partition(table, columns, identity, start, end, scratch / f"{run}-{i}.parquet")


def _write_all(database: Database, snapshot: DatabaseSnapshot, partitions: Sequence[_Partition]) -> None:
    work: SimpleQueue[_Partition] = SimpleQueue()
    for partition in partitions:
        work.put(partition)
    with ExitStack() as stack:
        connections = [snapshot.connection]
        for _ in range(min(_READERS, len(partitions)) - 1):
            connection = stack.enter_context(closing(database.connect()))
            # A counter that has moved on does not come back: such a connection is left unused.
            if database.begin(connection).state == snapshot.state:
                connections.append(connection)
        pool = stack.enter_context(ThreadPoolExecutor(len(connections)))
        for done in [pool.submit(_write_some, each, database.source, work) for each in connections]:
            done.result()


def _write_some(connection: sqlite3.Connection, source: str, work: SimpleQueue[_Partition]) -> None:
    while True:
        try:
            partition = work.get_nowait()
        except Empty:
            return
        chunks = _chunks(connection, source, partition)
        first = next(chunks)
        with parquet.ParquetWriter(partition.path, first.schema) as writer:
            writer.write_table(first)
            for chunk in chunks:
                writer.write_table(chunk)


def _chunks(connection: sqlite3.Connection, source: str, partition: _Partition) -> Iterator[pa.Table]:
    """The partition's rows, some at a time; at least one table, so that there is a schema."""
    names = ", ".join(quote(name) for name in partition.columns) or "1"
    bounds: list[tuple[str, Any]] = [
        (f"{partition.identity} {operator} ?", bound)
        for operator, bound in ((">=", partition.start), ("<", partition.end))
        if bound is not None
    ]
    where = f" WHERE {' AND '.join(text for text, _ in bounds)}" if bounds else ""
    cursor = connection.execute(
        f"SELECT {names} FROM main.{quote(partition.table.name)}{where}", [bound for _, bound in bounds]
    )
    first = True
    while (rows := cursor.fetchmany(_CHUNK_ROWS)) or first:
        values = rows if partition.columns else [()] * len(rows)
        yield rows_of(source, partition.table, partition.columns, values)
        first = False

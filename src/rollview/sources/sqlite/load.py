"""Whole tables at one state. Large ones are written to Parquet files, partition by partition.

Several connections may read them at once: each begins a transaction of its own, and is of use if it sees the
same counter as the first, for then the captured tables are the same as well.
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

from rollview.rows import FileScan, Rows, ScanFile
from rollview.sources.source import COUNT, Table
from rollview.sources.sqlite.captured import CapturedTable
from rollview.sources.sqlite.change_log import rows_of
from rollview.sources.sqlite.connection import quote
from rollview.sources.sqlite.database import Database, DatabaseSnapshot
from rollview.sources.sqlite.lookup import captured
from rollview.sources.sqlite.structure import structure_of

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

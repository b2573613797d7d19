"""Whole tables at one state. Large ones are written to Parquet files by several connections at once.

A table is cut by the places of its rows: a row that a snapshot sees does not move while the snapshot lives,
because the table is locked against being rewritten.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from pyarrow import parquet

from rollview.algebra.view import Table
from rollview.rows import FileScan, Rows, ScanFile
from rollview.sources.postgres.connections import Connection
from rollview.sources.postgres.copied_rows import chunks, fetch, select_list
from rollview.sources.postgres.reading import Reading
from rollview.sources.postgres.structure import Column
from rollview.sources.source import COUNT

LARGE_BYTES = 32 << 20
"""Tables of up to this size, about 200,000 rows, are read into memory."""

_PARTITION_BYTES = 32 << 20
_READERS = 2


@dataclass(frozen=True)
class _Partition:
    query: str
    columns: tuple[Column, ...]
    place: str
    path: Path


def load(reading: Reading, tables: Mapping[Table, Sequence[str]], scratch: Path) -> tuple[Rows, ...]:
    """The tables with the given columns and `_count`, as the reading sees them."""
    known = [(reading.captured(table.name), columns) for table, columns in tables.items()]
    if known:
        names = ", ".join(table.qualified for table, _ in known)
        reading.connection.execute(f"LOCK TABLE ONLY {names} IN ACCESS SHARE MODE".encode())
    results: list[Rows] = []
    work: SimpleQueue[_Partition] = SimpleQueue()
    for table, names_wanted in known:
        columns = tuple(table.by_name[name] for name in names_wanted)
        place = f"{reading.source}.{table.name}"
        query = f"SELECT {select_list(columns)} FROM ONLY {table.qualified} AS t"
        row = reading.connection.execute(
            "SELECT pg_table_size(%s::oid), pg_relation_size(%s::oid), current_setting('block_size')::int",
            (table.id, table.id),
        ).fetchone()
        assert row is not None
        if row[0] <= LARGE_BYTES:
            results.append(fetch(reading.connection, query, columns, place))
            continue
        parts = _partitions(query, columns, place, row[0], row[1] // row[2], scratch)
        for part in parts:
            work.put(part)
        schema = (*((column.name, column.type) for column in columns), (COUNT, "bigint"))
        results.append(FileScan(tuple(ScanFile(str(part.path)) for part in parts), schema))
    if not work.empty():
        scratch.mkdir(parents=True, exist_ok=True)
        _write_all(reading, work)
    return tuple(results)


def _partitions(
    query: str, columns: tuple[Column, ...], place: str, size: int, pages: int, scratch: Path
) -> list[_Partition]:
    """Ranges of pages; the last one is open, as rows are added behind it."""
    run = uuid.uuid4().hex
    count = max(1, min(size // _PARTITION_BYTES, pages))
    bounds = [pages * i // count for i in range(1, count)]
    conditions = []
    for start, end in zip([0, *bounds], [*bounds, None], strict=True):
        upper = "" if end is None else f" AND t.ctid < '({end},0)'"
        conditions.append(f" WHERE t.ctid >= '({start},0)'{upper}")
    return [
        _Partition(query + condition, columns, place, scratch / f"{run}-{i}.parquet")
        for i, condition in enumerate(conditions)
    ]


def _write_all(reading: Reading, work: SimpleQueue[_Partition]) -> None:
    with reading.companions(_READERS - 1) as companions, ThreadPoolExecutor(_READERS) as pool:
        connections = [reading.connection, *companions]
        for done in [pool.submit(_write_some, connection, work) for connection in connections]:
            done.result()


def _write_some(connection: Connection, work: SimpleQueue[_Partition]) -> None:
    while True:
        try:
            partition = work.get_nowait()
        except Empty:
            return
        found = chunks(connection, partition.query, partition.columns, partition.place)
        first = next(found)
        with parquet.ParquetWriter(partition.path, first.schema) as writer:
            writer.write_table(first)
            for chunk in found:
                writer.write_table(chunk)

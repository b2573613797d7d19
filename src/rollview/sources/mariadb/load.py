"""Whole tables at one state, read row by row; large ones are written to Parquet files as they come."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from rollview.rows import FileScan, Rows, ScanFile
from rollview.sources.mariadb.connection import Server
from rollview.sources.mariadb.lookup import select_query
from rollview.sources.mariadb.packets import Row
from rollview.sources.mariadb.registered import Registered
from rollview.sources.mariadb.text_values import table_of
from rollview.sources.source import COUNT

LARGE_ROWS = 200_000
_CHUNK_ROWS = 50_000


def load(
    server: Server, connection: Any, tables: Sequence[tuple[Registered, Sequence[str]]], scratch: Path
) -> tuple[Rows, ...]:
    """The tables with the given columns and `_count`, as the connection's snapshot sees them."""
    # Arrow converts and writes outside of Python's lock, beside the reading.
    with ThreadPoolExecutor(1) as writer:
        return tuple(
            _load_table(server, connection, table, columns, scratch, writer) for table, columns in tables
        )


def _load_table(
    server: Server,
    connection: Any,
    table: Registered,
    names: Sequence[str],
    scratch: Path,
    writer: ThreadPoolExecutor,
) -> Rows:
    columns = [(name, table.types[name]) for name in names]
    place = f"{server.source}.{table.name}"
    rows = server.rows(connection, select_query(table, names))
    first = [table_of(columns, chunk, place) for chunk in _chunks(rows, LARGE_ROWS)]
    few = pa.concat_tables([*first, table_of(columns, (), place)])
    if few.num_rows < LARGE_ROWS:
        return few
    scratch.mkdir(parents=True, exist_ok=True)
    run = uuid.uuid4().hex
    files: list[ScanFile] = []
    writing: list[Future[None]] = []

    def write(part: pa.Table) -> None:
        path = scratch / f"{run}-{len(files)}.parquet"
        files.append(ScanFile(str(path)))
        writing.append(writer.submit(parquet.write_table, part, path))

    write(few)
    while parts := [table_of(columns, chunk, place) for chunk in _chunks(rows, LARGE_ROWS)]:
        write(pa.concat_tables(parts))
        # No more than one table waits to be written.
        for done in writing[:-1]:
            done.result()
    for done in writing:
        done.result()
    return FileScan(tuple(files), (*columns, (COUNT, "bigint")))


def _chunks(rows: Iterator[Row], most: int) -> Iterator[list[Row]]:
    """Up to `most` rows, in batches."""
    for _ in range(most // _CHUNK_ROWS):
        if not (chunk := list(islice(rows, _CHUNK_ROWS))):
            return
        yield chunk

"""Whole tables at one state. Large ones are written to Parquet files by several workers at once.

A table is cut by the places of its rows: a row that a snapshot sees does not move while the snapshot lives,
because a reading locks its tables against being rewritten. A partitioned table is cut into its partitions
first; small ones are read together.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyarrow import csv, parquet

from rollview.rows import FileScan, Rows, ScanFile, arrow_schema
from rollview.sources.postgres.connections import Connection
from rollview.sources.postgres.read.reading import Reading, Share
from rollview.sources.postgres.structure import PostgresColumn
from rollview.sources.postgres.types import arrow_column
from rollview.sources.source import COUNT, Table

# Rows out of the server by COPY, as Arrow tables: CSV is made there and parsed here in C.

_CHUNK_BYTES = 32 << 20


def fetch(connection: Connection, query: str, columns: Sequence[PostgresColumn], place: str) -> pa.Table:
    """A query's rows with `_count`; `place` is the table's name in errors."""
    return pa.concat_tables(chunks(connection, query, columns, place))


def chunks(
    connection: Connection,
    query: str,
    columns: Sequence[PostgresColumn],
    place: str,
    chunk_bytes: int = _CHUNK_BYTES,
) -> Iterator[pa.Table]:
    """The same some rows at a time; at least one table, so that there is a schema."""
    held: list[bytes] = []
    size = 0
    yielded = False
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv)".encode()) as copy,
    ):
        for row in copy:
            held.append(bytes(row))
            size += len(row)
            if size >= chunk_bytes:
                yield _parsed(b"".join(held), columns, place)
                held, size, yielded = [], 0, True
    if held or not yielded:
        yield _parsed(b"".join(held), columns, place)


def select_list(columns: Sequence[PostgresColumn]) -> str:
    """The columns as SQL text; something for rows of which no column is needed."""
    return ", ".join(f't."{column.name.replace(chr(34), chr(34) * 2)}"' for column in columns) or "1"


def _parsed(text: bytes, columns: Sequence[PostgresColumn], place: str) -> pa.Table:
    schema = arrow_schema((*((column.name, column.type) for column in columns), (COUNT, "bigint")))
    if not text:
        return schema.empty_table()
    names = [str(i) for i in range(max(len(columns), 1))]
    found = csv.read_csv(
        pa.py_buffer(text),
        # One block: a value may be longer than any size that could be chosen here.
        csv.ReadOptions(column_names=names, block_size=len(text) + 1, use_threads=False),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        # NULL is nothing at all, the empty text is quoted.
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    arrays = [
        arrow_column(found.column(i), column.type, f"{place}.{column.name}")
        for i, column in enumerate(columns)
    ]
    ones = pa.array([1], pa.int64())
    counts = pa.chunked_array([ones.take(pa.array([0] * found.num_rows, pa.int32()))])
    return pa.Table.from_arrays([*arrays, counts], schema=schema)


LARGE_BYTES = 32 << 20
"""Tables of up to this size, about 200,000 rows, are read into memory."""

_PART_BYTES = 32 << 20


# A right to read a table is one to read its partitions through it, and not directly.
_STORED = """
    SELECT format('%%I.%%I', n.nspname, c.relname), pg_table_size(c.oid), pg_relation_size(c.oid),
        current_setting('block_size')::int,
        has_table_privilege(c.oid, 'SELECT') AND NOT row_security_active(c.oid)
    FROM (SELECT t.relid::oid FROM pg_partition_tree(%(id)s::oid) t WHERE t.isleaf
          UNION SELECT %(id)s::oid) s
    JOIN pg_class c ON c.oid = s.relid JOIN pg_namespace n ON n.oid = c.relnamespace ORDER BY c.oid
"""


class _Stored(NamedTuple):
    """A table that holds rows, or a partition; `bytes` with, `heap_bytes` without its long values."""

    name: str
    bytes: int
    heap_bytes: int
    block_bytes: int
    is_readable: bool


@dataclass(frozen=True)
class _Part:
    """A part of a table, as a task."""

    query: str
    columns: tuple[PostgresColumn, ...]
    place: str
    path: Path

    def __call__(self, share: Share) -> bytes:
        """Writes the part to its file. An attempt that was given up may still be at it, elsewhere."""
        own = self.path.with_suffix(f".{uuid.uuid4().hex}")
        with share.connection() as connection:
            found = chunks(connection, self.query, self.columns, self.place)
            first = next(found)
            with parquet.ParquetWriter(own, first.schema) as writer:
                writer.write_table(first)
                for chunk in found:
                    writer.write_table(chunk)
        own.replace(self.path)
        return b""


def load(reading: Reading, tables: Mapping[Table, Sequence[str]], scratch: Path) -> tuple[Rows, ...]:
    """The tables with the given columns and `_count`, as the reading sees them."""
    known = [(reading.captured(table.name, columns), columns) for table, columns in tables.items()]
    results: list[Rows] = []
    tasks: list[_Part] = []
    for table, names_wanted in known:
        columns = tuple(table.by_name[name] for name in names_wanted)
        place = f"{reading.source}.{table.name}"
        query = f"SELECT {select_list(columns)} FROM {table.scanned} AS t"
        rows = reading.connection.execute(_STORED, {"id": table.id}).fetchall()
        stored = [_Stored(*row) for row in rows]
        if sum(each.bytes for each in stored) <= LARGE_BYTES:
            results.append(fetch(reading.connection, query, columns, place))
            continue
        whole = _Part(query, columns, place, scratch)
        parts = _parts(whole, stored)
        tasks += parts
        schema = (*((column.name, column.type) for column in columns), (COUNT, "bigint"))
        results.append(FileScan(tuple(ScanFile(str(part.path)) for part in parts), schema))
    if tasks:
        scratch.mkdir(parents=True, exist_ok=True)
        reading.workers.run(tasks, reading.share())
    return tuple(results)


def _parts(whole: _Part, stored: Sequence[_Stored]) -> list[_Part]:
    """Large tables and partitions in ranges of pages, small ones several at a time."""
    run = uuid.uuid4().hex
    queries = [whole.query]
    if all(each.is_readable for each in stored):
        head = f"SELECT {select_list(whole.columns)} FROM ONLY"
        large = [each for each in stored if each.bytes > _PART_BYTES]
        queries = [query for each in large for query in _ranges(f"{head} {each.name} AS t", each)]
        small = [each for each in stored if each.bytes <= _PART_BYTES and each.heap_bytes]
        queries += [
            " UNION ALL ".join(f"{head} {each.name} AS t" for each in group) for group in _grouped(small)
        ]
    return [
        replace(whole, query=query, path=whole.path / f"{run}-{number}.parquet")
        for number, query in enumerate(queries)
    ]


def _ranges(query: str, table: _Stored) -> Iterator[str]:
    """Ranges of pages; the last one is open, as rows are added behind it."""
    pages = table.heap_bytes // table.block_bytes
    count = max(1, min(table.bytes // _PART_BYTES, pages))
    bounds = [pages * i // count for i in range(1, count)]
    for start, end in zip([0, *bounds], [*bounds, None], strict=True):
        upper = "" if end is None else f" AND t.ctid < '({end},0)'"
        yield f"{query} WHERE t.ctid >= '({start},0)'{upper}"


def _grouped(tables: Sequence[_Stored]) -> Iterator[list[_Stored]]:
    """Tables that are about as large together as a part."""
    group: list[_Stored] = []
    for each in tables:
        if group and sum(other.bytes for other in group) + each.bytes > _PART_BYTES:
            yield group
            group = []
        group.append(each)
    if group:
        yield group

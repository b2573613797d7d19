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

from pyarrow import parquet

from rollview.rows import FileScan, Rows, ScanFile
from rollview.sources.postgres.copied_rows import chunks, fetch, select_list
from rollview.sources.postgres.reading import Reading, Share
from rollview.sources.postgres.structure import PostgresColumn
from rollview.sources.source import COUNT, Table

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
    share: Share

    def __call__(self) -> bytes:
        """Writes the part to its file."""
        with self.share.connection() as connection:
            found = chunks(connection, self.query, self.columns, self.place)
            first = next(found)
            with parquet.ParquetWriter(self.path, first.schema) as writer:
                writer.write_table(first)
                for chunk in found:
                    writer.write_table(chunk)
        return b""


def load(reading: Reading, tables: Mapping[Table, Sequence[str]], scratch: Path) -> tuple[Rows, ...]:
    """The tables with the given columns and `_count`, as the reading sees them."""
    known = [(reading.captured(table.name, columns), columns) for table, columns in tables.items()]
    results: list[Rows] = []
    share: Share | None = None
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
        share = share or reading.share()
        whole = _Part(query, columns, place, scratch, share)
        parts = _parts(whole, stored)
        tasks += parts
        schema = (*((column.name, column.type) for column in columns), (COUNT, "bigint"))
        results.append(FileScan(tuple(ScanFile(str(part.path)) for part in parts), schema))
    if tasks:
        scratch.mkdir(parents=True, exist_ok=True)
        reading.workers.run(tasks)
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

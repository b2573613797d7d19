"""Whole tables at one state. Large ones are written to Parquet files by several workers at once.

A table is cut by the places of its rows: a row that a snapshot sees does not move while the snapshot lives,
because a reading locks its tables against being rewritten.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyarrow import parquet

from rollview.rows import FileScan, Rows, ScanFile
from rollview.sources.postgres.copied_rows import chunks, fetch, select_list
from rollview.sources.postgres.reading import Reading, Share
from rollview.sources.postgres.structure import PostgresColumn
from rollview.sources.source import COUNT, Table

LARGE_BYTES = 32 << 20
"""Tables of up to this size, about 200,000 rows, are read into memory."""

_PARTITION_BYTES = 32 << 20


@dataclass(frozen=True)
class _Partition:
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
    tasks: list[_Partition] = []
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
        share = share or reading.share()
        whole = _Partition(query, columns, place, scratch, share)
        parts = _partitions(whole, row[0], row[1] // row[2])
        tasks += parts
        schema = (*((column.name, column.type) for column in columns), (COUNT, "bigint"))
        results.append(FileScan(tuple(ScanFile(str(part.path)) for part in parts), schema))
    if tasks:
        scratch.mkdir(parents=True, exist_ok=True)
        reading.workers.run(tasks)
    return tuple(results)


def _partitions(whole: _Partition, size: int, pages: int) -> list[_Partition]:
    """Ranges of pages; the last one is open, as rows are added behind it."""
    run = uuid.uuid4().hex
    count = max(1, min(size // _PARTITION_BYTES, pages))
    bounds = [pages * i // count for i in range(1, count)]
    parts: list[_Partition] = []
    for start, end in zip([0, *bounds], [*bounds, None], strict=True):
        upper = "" if end is None else f" AND t.ctid < '({end},0)'"
        query = f"{whole.query} WHERE t.ctid >= '({start},0)'{upper}"
        parts.append(replace(whole, query=query, path=whole.path / f"{run}-{len(parts)}.parquet"))
    return parts

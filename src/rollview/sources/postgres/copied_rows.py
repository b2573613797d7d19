"""Rows out of the server by COPY, as Arrow tables: CSV is made there and parsed here in C."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyarrow import csv

from rollview.rows import arrow_schema
from rollview.sources.postgres.connections import Connection
from rollview.sources.postgres.structure import PostgresColumn
from rollview.sources.postgres.types import arrow_column
from rollview.sources.source import COUNT

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
    told = False
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv)".encode()) as copy,
    ):
        for row in copy:
            held.append(bytes(row))
            size += len(row)
            if size >= chunk_bytes:
                yield _parsed(b"".join(held), columns, place)
                held, size, told = [], 0, True
    if held or not told:
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

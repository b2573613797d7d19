"""Loads of whole tables, and look-ups: rows that match given keys, or rows found in a table before.

Keys go to a temporary table whose columns are copies of the columns they are compared with, so that the
comparison is one of the source's own type, character set and collation, and uses its indexes. A collation
finds equal texts always and others, perhaps, too. A key that does not fit the column is cut to fit: it then
finds rows that were not asked for, which is harmless. A semi-join gives no row twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from rollview.rows import FileScan, ScanFile, arrow_schema, arrow_type
from rollview.sources.mariadb.connection import Server
from rollview.sources.mariadb.packets import Row
from rollview.sources.mariadb.registered import Registered
from rollview.sources.mariadb.structure import quote
from rollview.sources.mariadb.types import exactly, selected
from rollview.sources.source import COUNT, IN, Comparison, Constant, Lookup, Rows, run_plan

# Results of queries, which come as text, as Arrow arrays, a column at a time.

_FIRST_DAY = (date(1, 1, 1) - date(1970, 1, 1)).days


def text_values(kind: str, place: str) -> Callable[[list[Any]], pa.Array]:
    """How a column's texts become an array of a Spark SQL type."""
    arrow = arrow_type(kind)
    if kind == "binary":
        return lambda values: pa.array(values, arrow)
    if kind == "boolean":
        return lambda values: pa.array([None if value is None else value == b"1" for value in values], arrow)
    through = arrow
    if kind in ("timestamp", "timestamp_ntz"):
        # Arrow reads no zone from such a text; the session's is UTC.
        through = pa.timestamp("us")
    elif kind == "float":
        through = pa.float64()

    def convert(values: list[Any]) -> pa.Array:
        texts = pa.array(values, pa.binary()).cast(pa.string())
        read = texts.cast(through)
        if kind in ("date", "timestamp", "timestamp_ntz"):
            _expect_year(read)
        return read if kind == "string" else read.cast(arrow, safe=kind != "float")

    return exactly(convert, kind, place, lambda value: repr(value.decode(errors="replace")))


def _expect_year(array: pa.Array) -> None:
    """There is no year 0 in Spark's or Python's dates, but Arrow has one."""
    least = pc.min(array.cast(pa.date32(), safe=False).cast(pa.int32())).as_py()
    if least is not None and least < _FIRST_DAY:
        raise ValueError("a date before the year 1")


def table_of(columns: Sequence[tuple[str, str]], rows: Sequence[Row], place: str) -> pa.Table:
    """Rows as an Arrow table with `_count`, 1 for each; `place` names the table in errors."""
    schema = arrow_schema((*columns, (COUNT, "bigint")))
    by_column: list[Any] = list(zip(*rows, strict=True)) if rows and columns else [()] * len(columns)
    arrays = [
        text_values(kind, f"{place}.{name}")(list(values))
        for (name, kind), values in zip(columns, by_column, strict=True)
    ]
    arrays.append(pa.array([1] * len(rows), pa.int64()))
    return pa.Table.from_arrays(arrays, schema=schema)


def literal(value: Any) -> str:
    """A value of Arrow as SQL text that means the same in any session of ours."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, str):
        return f"_utf8mb4 X'{value.encode().hex()}'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime):
        in_utc = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return f"'{in_utc.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"'{value.isoformat()}'"
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


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


# Whole tables at one state, read row by row; large ones are written to Parquet files as they come.

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

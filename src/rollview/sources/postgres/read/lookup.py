"""Look-ups: rows of some tables that match given keys, or rows found in a table before.

A few keys go along in the query; many are copied to a temporary table, which the server then joins as it
finds best. A semi-join gives no row twice. Very many keys are looked up by several workers that share one
snapshot, where no two of them can find the same row.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import pyarrow as pa
from pyarrow import csv

from rollview.sources.postgres.connections import Connection, text_literal
from rollview.sources.postgres.read.keys import ShippedKeys, condition_sql, ship
from rollview.sources.postgres.read.load import fetch, select_list
from rollview.sources.postgres.read.reading import Reading, Share
from rollview.sources.postgres.structure import PostgresColumn
from rollview.sources.source import Lookup, Rows, run_plan

FEW_KEYS = 1000
SPLIT_KEYS = 50_000
_PARTS = 4


def look_up_all(reading: Reading, plan: Sequence[Lookup]) -> tuple[Rows, ...]:
    """The rows of every look-up, all from one snapshot."""
    columns = columns_of(plan)
    tables = {lookup: reading.captured(lookup.table.name, columns[lookup.table.name]) for lookup in plan}

    def find(lookup: Lookup, keys: pa.Table | None) -> pa.Table:
        table = tables[lookup]
        columns = tuple(table.by_name[name] for name in lookup.columns)
        conditions = [condition_sql(table.by_name[each.column], each) for each in lookup.conditions]
        part = _KeyLookup(
            plan.index(lookup),
            f"{reading.source}.{table.name}",
            f"SELECT {select_list(columns)} FROM {table.scanned} AS t",
            columns,
            tuple(text for text in conditions if text),
            None if keys is None else ship(keys, table.by_name),
        )
        return _find(reading, part)

    return run_plan(plan, find)


def columns_of(plan: Sequence[Lookup]) -> dict[str, set[str]]:
    """The columns of each table that a plan reads or compares."""
    found: dict[str, set[str]] = {}
    for lookup in plan:
        keys = () if lookup.keys is None else lookup.keys.column_names
        compared = [each.column for each in lookup.conditions]
        own = [column for _, column in lookup.on]
        found.setdefault(lookup.table.name, set()).update(lookup.columns, keys, compared, own)
    return found


def _find(reading: Reading, lookup: _KeyLookup) -> pa.Table:
    """Here, or by several workers where the keys are many."""
    keys = lookup.keys
    if keys is None or keys.texts.num_rows < SPLIT_KEYS or not keys.exact:
        return lookup.found_by(reading.connection)
    found = reading.workers.run(lookup.parts(), reading.share())
    return pa.concat_tables([pa.ipc.open_stream(each).read_all() for each in found])


@dataclass(frozen=True)
class _KeyLookup:
    """Looks keys up in one table; a task for a worker, if need be."""

    place: int
    table: str
    query: str
    columns: tuple[PostgresColumn, ...]
    conditions: tuple[str, ...]
    keys: ShippedKeys | None

    def __call__(self, share: Share) -> bytes:
        """The found rows, as an Arrow stream."""
        with share.connection() as connection:
            found = self.found_by(connection)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, found.schema) as writer:
            writer.write_table(found)
        return bytes(sink.getvalue())

    def found_by(self, connection: Connection) -> pa.Table:
        """The rows, as a connection sees them."""
        conditions = list(self.conditions)
        if self.keys is not None:
            conditions.append(_semi_join(connection, self.place, self.keys))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return fetch(connection, self.query + where, self.columns, self.table)

    def parts(self) -> list[_KeyLookup]:
        """The same with a part of the keys each."""
        assert self.keys is not None
        size = -(-self.keys.texts.num_rows // _PARTS)
        return [
            replace(self, keys=replace(self.keys, texts=self.keys.texts.slice(i * size, size)))
            for i in range(_PARTS)
        ]


def _semi_join(connection: Connection, place: int, keys: ShippedKeys) -> str:
    """The condition that looks keys up."""
    left = ", ".join(keys.columns)
    if keys.texts.num_rows > FEW_KEYS:
        return f"({left}) IN (SELECT * FROM {_stored(connection, place, keys)})"
    arrays = [
        f"{text_literal(_array(keys.texts.column(i).to_pylist()))}::{kind}[]"
        for i, kind in enumerate(keys.types)
    ]
    return f"({left}) IN (SELECT * FROM unnest({', '.join(arrays)}))"


def _array(texts: Sequence[str]) -> str:
    """The text of an array of texts."""
    return "{" + ",".join('"' + _escaped(text) + '"' for text in texts) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _stored(connection: Connection, place: int, keys: ShippedKeys) -> str:
    """A temporary table with the keys, which stays with the connection while its rows do not."""
    digest = sha256(" ".join(keys.types).encode()).hexdigest()[:16]
    name = f"pg_temp.rollview_keys_{place}_{digest}"
    fields = ", ".join(f"k{i} {kind}" for i, kind in enumerate(keys.types))
    connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS {name} ({fields}) ON COMMIT DELETE ROWS".encode())
    text = io.BytesIO()
    csv.write_csv(keys.texts, text, csv.WriteOptions(include_header=False, quoting_style="all_valid"))
    with connection.cursor() as cursor, cursor.copy(f"COPY {name} FROM STDIN (FORMAT csv)".encode()) as copy:
        copy.write(text.getvalue())
    connection.execute(f"ANALYZE {name}".encode())
    return name

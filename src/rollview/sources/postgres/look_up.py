"""Sub-queries: rows of some relations that match shipped keys, or rows found for a relation before.

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

from rollview.algorithms.effects import Question
from rollview.sources.postgres.conditions import pushed_to
from rollview.sources.postgres.connections import Connection, text_literal
from rollview.sources.postgres.copied_rows import fetch, select_list
from rollview.sources.postgres.keys import Shipped, comparable, ship
from rollview.sources.postgres.reading import Reading, Share
from rollview.sources.postgres.registration import Registered
from rollview.sources.postgres.structure import PostgresColumn
from rollview.sources.server.sub_query import Wanted, distinct_keys, plan

FEW_KEYS = 1000
SPLIT_KEYS = 50_000
_PARTS = 4


def look_up(reading: Reading, question: Question[pa.Table]) -> tuple[pa.Table, ...]:
    """The rows for every reach of the question, all from one snapshot."""
    answers: list[pa.Table] = []
    wanted = plan(question, comparable, pushed_to(reading.tables))
    for each in wanted:
        reading.captured(each.table.name)
    for place, each in enumerate(wanted):
        table = reading.captured(each.table.name)
        keys = each.keys
        if each.parent is not None:
            keys = distinct_keys(answers[each.parent], [(own, theirs) for theirs, own in each.on])
        shipped = None if keys is None else ship(keys, table.by_name)
        answers.append(_answer(reading, place, table, each, shipped))
    return tuple(answers)


def _answer(
    reading: Reading, place: int, table: Registered, wanted: Wanted, shipped: Shipped | None
) -> pa.Table:
    columns = tuple(table.by_name[name] for name in wanted.columns)
    query = f"SELECT {select_list(columns)} FROM ONLY {table.qualified} AS t"
    looking = _Looking(place, f"{reading.source}.{table.name}", query, columns, wanted.conditions, shipped)
    if shipped is None or shipped.texts.num_rows < SPLIT_KEYS or not shipped.exact:
        return looking.found_by(reading.connection)
    share = reading.share()
    found = reading.workers.run([replace(part, share=share) for part in looking.parts()])
    return pa.concat_tables([pa.ipc.open_stream(each).read_all() for each in found])


@dataclass(frozen=True)
class _Looking:
    """Looks keys up in one table; with a share it is a task for a worker."""

    place: int
    table: str
    query: str
    columns: tuple[PostgresColumn, ...]
    conditions: tuple[str, ...]
    keys: Shipped | None
    share: Share | None = None

    def __call__(self) -> bytes:
        """What is found, as an Arrow stream."""
        assert self.share is not None
        with self.share.connection() as connection:
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

    def parts(self) -> list[_Looking]:
        """The same with a part of the keys each."""
        assert self.keys is not None
        size = -(-self.keys.texts.num_rows // _PARTS)
        return [
            replace(self, keys=replace(self.keys, texts=self.keys.texts.slice(i * size, size)))
            for i in range(_PARTS)
        ]


def _semi_join(connection: Connection, place: int, keys: Shipped) -> str:
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


def _stored(connection: Connection, place: int, keys: Shipped) -> str:
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

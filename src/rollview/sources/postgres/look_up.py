"""Sub-queries: rows of some relations that match shipped keys, or rows found for a relation before.

A few keys go along in the query; many are copied to a temporary table, which the server then joins as it
finds best. A semi-join gives no row twice. Very many keys are looked up by several connections that share one
snapshot, where no two of them can find the same row.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from rollview.algorithms.effects import Question
from rollview.sources.postgres.conditions import pushed_to
from rollview.sources.postgres.connections import Connection, text_literal
from rollview.sources.postgres.copied_rows import fetch, select_list
from rollview.sources.postgres.keys import Shipped, comparable, ship
from rollview.sources.postgres.reading import Reading
from rollview.sources.postgres.registration import Registered
from rollview.sources.server.sub_query import Wanted, plan

FEW_KEYS = 1000
SPLIT_KEYS = 50_000
_READERS = 2


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
            keys = _found_keys(answers[each.parent], each.on)
        shipped = None if keys is None else ship(keys, table.by_name)
        answers.append(_answer(reading, place, table, each, shipped))
    return tuple(answers)


def _found_keys(rows: pa.Table, on: Sequence[tuple[str, str]]) -> pa.Table:
    """The values of a parent's rows under the child's names, each once; NULL matches nothing."""
    names = [own for _, own in on]
    keys = pa.Table.from_arrays([rows.column(theirs) for theirs, _ in on], names=names)
    for name in names:
        keys = keys.filter(pc.is_valid(keys.column(name)))
    return keys.group_by(names, use_threads=False).aggregate([]).select(names)


def _answer(
    reading: Reading, place: int, table: Registered, wanted: Wanted, shipped: Shipped | None
) -> pa.Table:
    columns = [table.by_name[name] for name in wanted.columns]
    name = f"{reading.source}.{table.name}"
    query = f"SELECT {select_list(columns)} FROM ONLY {table.qualified} AS t"

    def found_by(connection: Connection, keys: Shipped | None) -> pa.Table:
        conditions = list(wanted.conditions)
        if keys is not None:
            conditions.append(_semi_join(connection, place, keys))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return fetch(connection, query + where, columns, name)

    if shipped is None or shipped.texts.num_rows < SPLIT_KEYS or not shipped.exact:
        return found_by(reading.connection, shipped)
    return _in_parts(reading, shipped, found_by)


def _in_parts(
    reading: Reading, shipped: Shipped, found_by: Callable[[Connection, Shipped], pa.Table]
) -> pa.Table:
    """Each connection takes a part of the keys."""
    size = -(-shipped.texts.num_rows // _READERS)
    parts = [
        Shipped(shipped.columns, shipped.types, shipped.texts.slice(i * size, size), shipped.exact)
        for i in range(_READERS)
    ]
    with reading.companions(_READERS - 1) as companions, ThreadPoolExecutor(_READERS) as pool:
        connections = [reading.connection, *companions]
        found = list(pool.map(found_by, connections, parts))
    return pa.concat_tables(found)


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

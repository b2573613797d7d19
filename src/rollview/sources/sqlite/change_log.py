"""The change log as transactions: records of every captured table, split at given source txids.

The result depends on nothing but the records and the source txids, so it can be had again after any crash.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rollview.rows import Rows
from rollview.sources.source import (
    COUNT,
    CapturedTransaction,
)
from rollview.sources.sqlite.connection import quote
from rollview.sources.sqlite.install import CapturedTable
from rollview.sources.sqlite.triggers import DELETED, INSERTED, log_name
from rollview.sources.sqlite.types import arrow_column

_UNIX_EPOCH_AS_JULIAN_DAY = 2440587.5
_SECONDS_PER_DAY = 86_400


@dataclass(frozen=True)
class _Changes:
    """A table's changed rows in order; `versions` and `times` of their records, row by row."""

    versions: list[int]
    times: list[float]
    rows: pa.Table


def transactions(
    connection: sqlite3.Connection,
    source: str,
    tables: Mapping[str, CapturedTable],
    after: int,
    source_txids: Sequence[int],
) -> tuple[CapturedTransaction, ...]:
    """What was logged after a counter up to the last source txid, one transaction per source txid."""
    if not source_txids:
        return ()
    changes = {
        f"{source}.{table.name}": found
        for table in tables.values()
        if (found := _changes(connection, source, table, after, source_txids[-1])).versions
    }
    places = {
        name: [bisect_right(found.versions, source_txid) for source_txid in source_txids]
        for name, found in changes.items()
    }
    result = []
    for i, source_txid in enumerate(source_txids):
        rows: dict[str, Rows] = {}
        newest, julian_day = 0, None
        for name, found in changes.items():
            start, end = places[name][i - 1] if i else 0, places[name][i]
            if start < end:
                rows[name] = found.rows.slice(start, end - start)
                if found.versions[end - 1] > newest:
                    newest, julian_day = found.versions[end - 1], found.times[end - 1]
        result.append(CapturedTransaction(source_txid, _commit_time(source_txid, julian_day), rows))
    return tuple(result)


def _commit_time(source_txid: int, julian_day: float | None) -> float:
    if julian_day is None:
        # All that the transaction changed has been let go since. Counters start as microseconds.
        return source_txid / 1e6
    return round((julian_day - _UNIX_EPOCH_AS_JULIAN_DAY) * _SECONDS_PER_DAY, 3)


def _changes(
    connection: sqlite3.Connection, source: str, table: CapturedTable, after: int, upto: int
) -> _Changes:
    width = len(table.types)
    names = ", ".join((*(f"o{i}" for i in range(width)), *(f"n{i}" for i in range(width))))
    records = connection.execute(
        f"SELECT version, kind, time, {names} FROM {quote(log_name(table.name))}"
        " WHERE version > ? AND version <= ? ORDER BY version",
        (after, upto),
    )
    versions: list[int] = []
    times: list[float] = []
    counts: list[int] = []
    values: list[tuple[Any, ...]] = []
    middle = 3 + width
    for record in records:
        kind = record[1]
        if kind != INSERTED:
            versions.append(record[0])
            times.append(record[2])
            counts.append(-1)
            values.append(record[3:middle])
        if kind != DELETED:
            versions.append(record[0])
            times.append(record[2])
            counts.append(1)
            values.append(record[middle:])
    return _Changes(versions, times, rows_of(source, table, tuple(table.types), values, counts))


def rows_of(
    source: str,
    table: CapturedTable,
    columns: Sequence[str],
    values: Sequence[tuple[Any, ...]],
    counts: Iterable[int] | None = None,
) -> pa.Table:
    """Stored rows as an Arrow table with `_count`, which is 1 for all unless given."""
    by_column = list(zip(*values, strict=True)) if values else [()] * len(columns)
    arrays = [
        arrow_column(column, table.types[name], f"{source}.{table.name}.{name}", name in table.key)
        for name, column in zip(columns, by_column, strict=True)
    ]
    arrays.append(pa.array([1] * len(values) if counts is None else counts, pa.int64()))
    return pa.table(arrays, names=[*columns, COUNT])

"""The change log as transactions: records of every captured table, split at given source txids.

The result depends on nothing but the records and the source txids, so it is the same after any crash.
Every counter is the number of one record, so a record that somebody deleted leaves a gap that is noticed.

A row that has no equal in Spark is a loss of its table in that transaction. All others continue.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from rollview.errors import LogLost, UnrepresentableValue
from rollview.rows import Rows
from rollview.sources.source import (
    COUNT,
    CapturedTransaction,
    Loss,
    reload_hint,
    setup_hint,
)
from rollview.sources.sqlite.captured import FORGOTTEN_TABLE, CapturedTable
from rollview.sources.sqlite.connection import is_undecodable, quote
from rollview.sources.sqlite.database import DatabaseSnapshot
from rollview.sources.sqlite.triggers import DELETED, INSERTED, log_name
from rollview.sources.sqlite.types import arrow_column, as_text, shown

_UNIX_EPOCH_AS_JULIAN_DAY = 2440587.5
_SECONDS_PER_DAY = 86_400


@dataclass(frozen=True)
class _Changes:
    """A table's changed rows in order, with `numbers` and `times` of their records, row by row."""

    table: CapturedTable
    numbers: list[int]
    times: list[float]
    counts: list[int]
    values: list[tuple[Any, ...]]


def transactions(
    snapshot: DatabaseSnapshot, source: str, after: int, source_txids: Sequence[int]
) -> tuple[CapturedTransaction, ...]:
    """The logged transactions after a counter up to the last source txid, one per source txid."""
    if not source_txids:
        return ()
    logged = [
        _changes(snapshot.connection, table, after, source_txids[-1]) for table in snapshot.readable.values()
    ]
    if not snapshot.found.unreadable:
        _check_gaps(snapshot.connection, source, logged, after, source_txids[-1])
    split = [(found, list(_split(source, found, source_txids))) for found in logged]
    gone = {
        name: Loss(f"the change log of table {name} is gone", setup_hint(name))
        for name in (f"{source}.{each}" for each in sorted(snapshot.found.unreadable))
    }
    result = []
    for i, (start, end) in enumerate(pairwise((after, *source_txids))):
        rows: dict[str, Rows] = {}
        lost = dict(gone)
        newest, julian_day = 0, None
        for found, parts in split:
            name = f"{source}.{found.table.name}"
            first, past, part = parts[i]
            if start < found.table.since:
                lost[name] = remade(name)
            elif isinstance(part, Loss):
                lost[name] = part
            elif first < past:
                rows[name] = part
            if first < past and found.numbers[past - 1] > newest:
                newest, julian_day = found.numbers[past - 1], found.times[past - 1]
        result.append(CapturedTransaction(end, _commit_time(end, julian_day), rows, lost=lost))
    return tuple(result)


def remade(name: str) -> Loss:
    """The loss of a table whose log began again after the place from which capture continues."""
    message = f"the capture of table {name} was set up again, and what changed before is not in its log"
    return Loss(message, setup_hint(name))


def stamp_of(snapshot: DatabaseSnapshot, counter: int) -> str:
    """By what a log position knows its counter again: the time of the record; empty if there is none."""
    for name in snapshot.readable:
        query = f"SELECT time FROM {quote(log_name(name))} WHERE version = ?"
        if row := snapshot.connection.execute(query, (counter,)).fetchone():
            return repr(row[0])
    return ""


def _commit_time(source_txid: int, julian_day: float | None) -> float:
    if julian_day is None:
        # All that the transaction changed has been let go since. Counters start as microseconds.
        return source_txid / 1e6
    return round((julian_day - _UNIX_EPOCH_AS_JULIAN_DAY) * _SECONDS_PER_DAY, 3)


def _check_gaps(
    connection: sqlite3.Connection, source: str, logged: Sequence[_Changes], after: int, upto: int
) -> None:
    """Refuses a log in which numbers are missing, unless they went with the log of a table let go."""
    (gaps,) = connection.execute(f"SELECT gaps FROM {FORGOTTEN_TABLE}").fetchone()
    start = max(after, gaps)
    numbers = {number for found in logged for number in found.numbers if number > start}
    if len(numbers) != max(upto - start, 0):
        raise LogLost(
            f"source {source}: records after {after} are missing from its change logs; somebody deleted them",
            subject=source,
            hint=reload_hint(source),
        )


def _changes(connection: sqlite3.Connection, table: CapturedTable, after: int, upto: int) -> _Changes:
    width = len(table.types)
    found = _Changes(table, [], [], [], [])
    middle = 3 + width
    for record in _records(connection, table, after, upto):
        kind = record[1]
        if kind != INSERTED:
            found.numbers.append(record[0])
            found.times.append(record[2])
            found.counts.append(-1)
            found.values.append(record[3:middle])
        if kind != DELETED:
            found.numbers.append(record[0])
            found.times.append(record[2])
            found.counts.append(1)
            found.values.append(record[middle:])
    return found


def _records(
    connection: sqlite3.Connection, table: CapturedTable, after: int, upto: int
) -> list[tuple[Any, ...]]:
    width = len(table.types)
    names = ["version", "kind", "time", *(f"o{i}" for i in range(width)), *(f"n{i}" for i in range(width))]
    query = (
        f"SELECT {', '.join(names)} FROM {quote(log_name(table.name))}"
        " WHERE version > ? AND version <= ? ORDER BY version"
    )
    try:
        return connection.execute(query, (after, upto)).fetchall()
    except sqlite3.OperationalError as error:
        if not is_undecodable(error):
            raise
    connection.text_factory = as_text
    try:
        return connection.execute(query, (after, upto)).fetchall()
    finally:
        connection.text_factory = str


_Part = tuple[int, int, pa.Table | Loss]
"""The first and the past-the-end row of a transaction's part, and its rows or why there are none."""


def _split(source: str, found: _Changes, source_txids: Sequence[int]) -> Iterable[_Part]:
    ends = [bisect_right(found.numbers, source_txid) for source_txid in source_txids]
    columns = tuple(found.table.types)
    try:
        whole = rows_of(source, found.table, columns, found.values, found.counts)
    except UnrepresentableValue:
        for first, past in pairwise((0, *ends)):
            yield first, past, _part(source, found, first, past)
    else:
        for first, past in pairwise((0, *ends)):
            yield first, past, whole.slice(first, past - first)


def _part(source: str, found: _Changes, first: int, past: int) -> pa.Table | Loss:
    """One transaction's rows of a table, or the loss that one of them means."""
    table, columns = found.table, tuple(found.table.types)
    values = found.values[first:past]
    try:
        return rows_of(source, table, columns, values, found.counts[first:past])
    except UnrepresentableValue:
        pass
    for row in values:
        try:
            rows_of(source, table, columns, [row])
        except UnrepresentableValue as error:
            message = f"{error.message}, in the row with {_named(table, row)}"
            hint = f"{error.hint}; then {setup_hint(f'{source}.{table.name}')}"
            return Loss(message, hint, is_misfit=True)
    raise AssertionError("the rows convert one by one, but not as a batch")


def _named(table: CapturedTable, row: tuple[Any, ...]) -> str:
    """A row by its key, or by all that is captured of it."""
    values = dict(zip(table.types, row, strict=True))
    names = table.key if table.key and values.keys() >= set(table.key) else tuple(values)
    return ", ".join(f"{name} = {shown(values[name])}" for name in names)


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


# A log position: the counter up to which capture has looked, and the stamp of what was there.
#
# A database that was restored from a backup and written since may have come to the same counter by another
# way. So a log position also says what was found at its counter: the time in the record of that number, or
# the token that was left there when a capture began. As long as the source has not let go of it, it must be
# the same.


@dataclass(frozen=True)
class LogPosition:
    """A counter and its stamp; the stamp is empty where there was nothing to take it from."""

    counter: int
    stamp: str = ""

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        """The log position from its text."""
        counter, _, stamp = text.partition("@")
        return cls(int(counter), stamp)

    def __str__(self) -> str:
        return f"{self.counter}@{self.stamp}" if self.stamp else str(self.counter)

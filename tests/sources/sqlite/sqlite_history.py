"""For the tests of the SQLite source: databases, captured histories, and their replay."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from rollview.algebra.bag import COUNT
from rollview.sources.source import Batch, CapturedTransaction
from rollview.sources.sqlite import SQLiteSource

Contents = dict[str, Counter[tuple[Any, ...]]]


def writer(path: Path, *pragmas: str) -> sqlite3.Connection:
    """A plain connection, as any program would open it; transactions are explicit."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}")
    return connection


def database(path: Path, *statements: str, wal: bool = True) -> sqlite3.Connection:
    """A new database with these tables, and a connection to it."""
    connection = writer(path, f"journal_mode = {'WAL' if wal else 'DELETE'}", "synchronous = OFF")
    for statement in statements:
        connection.execute(statement)
    return connection


def ready(path: Path, *without: str) -> tuple[SQLiteSource, str]:
    """A source called `s` with all its tables set up, but for some, and its origin."""
    source = SQLiteSource("s", path)
    source.setup([table for table in source.tables() if table.name not in without])
    return source, source.current_position("s")


def schema(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """All that sqlite_schema says, without where things are stored."""
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY 1, 2").fetchall()


def contents(connection: sqlite3.Connection, names: Iterable[str]) -> Contents:
    """The tables' rows as they are now."""
    return {name: Counter(connection.execute(f'SELECT * FROM "{name}"').fetchall()) for name in names}


def drain(source: SQLiteSource, after: str, limit: int = 10) -> tuple[list[CapturedTransaction], str]:
    """Captures until nothing is left; every batch must be the same when it is had again."""
    found: list[CapturedTransaction] = []
    while True:
        batch = source.capture("s", after, limit)
        same(
            batch,
            source.replay("s", after, [each.source_txid for each in batch.transactions], batch.log_position),
        )
        if batch.log_position == after:
            return found, after
        found += batch.transactions
        after = batch.log_position


def same(one: Batch, other: Batch) -> None:
    """Two batches say the same."""
    assert one.log_position == other.log_position
    assert len(one.transactions) == len(other.transactions)
    for left, right in zip(one.transactions, other.transactions, strict=True):
        assert (left.source_txid, left.commit_time, left.rows.keys(), left.lost, left.merged) == (
            right.source_txid,
            right.commit_time,
            right.rows.keys(),
            right.lost,
            right.merged,
        )
        assert all(left.rows[name].equals(right.rows[name]) for name in left.rows)


def bag(rows: Any) -> Counter[tuple[Any, ...]]:
    """Rows as a bag of tuples."""
    assert isinstance(rows, pa.Table)
    names = [name for name in rows.column_names if name != COUNT]
    total: Counter[tuple[Any, ...]] = Counter()
    for row in rows.to_pylist():
        total[tuple(row[name] for name in names)] += row[COUNT]
    return total


def apply(state: Contents, transaction: CapturedTransaction) -> Contents:
    """The state after a transaction."""
    result = {name: Counter(rows) for name, rows in state.items()}
    for qualified, rows in transaction.rows.items():
        table = result[qualified.removeprefix("s.")]
        table.update(bag(rows))
        assert all(count >= 0 for count in table.values()), "a row was deleted that was not there"
    return {name: Counter({row: n for row, n in rows.items() if n}) for name, rows in result.items()}


def replay(state: Contents, transactions: Iterable[CapturedTransaction]) -> list[Contents]:
    """The states after each transaction."""
    states = []
    for transaction in transactions:
        state = apply(state, transaction)
        states.append(state)
    return states


@dataclass
class FakeMarks:
    """What a warehouse would know of the captured transactions."""

    source_txids: list[int] = field(default_factory=list)
    log_position: str = "0"

    def latest(self, source_txid: int) -> int:
        """The greatest version whose mark is not greater."""
        return sum(1 for each in self.source_txids if each <= source_txid)

    def versions(self, source_txids: Sequence[int]) -> dict[int, int]:
        """The versions of the marks that are known."""
        known: Mapping[int, int] = {source_txid: i + 1 for i, source_txid in enumerate(self.source_txids)}
        return {source_txid: known[source_txid] for source_txid in source_txids if source_txid in known}

    def since(self, source_txid: int) -> dict[int, int]:
        """The versions of the marks from this one on."""
        return {each: i + 1 for i, each in enumerate(self.source_txids) if each >= source_txid}

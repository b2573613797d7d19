"""For the tests of the PostgreSQL source: databases, captured histories, and their replay."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from pyarrow import parquet

from rollview.algebra.bag import COUNT
from rollview.algebra.history import Seen
from rollview.algebra.relation import Table
from rollview.rows import Rows
from rollview.sources.postgres import PostgresSource
from rollview.sources.source import CapturedTransaction, Loss, ReadResult
from servers.postgres import PostgresServer

Bag = Counter[tuple[Any, ...]]


class Database:
    """A database on a test server, with an ordinary connection to write, and the source called `s`."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server = server
        self.name = name
        self.dsn = server.create_database(name)
        self._opened: list[PostgresSource | psycopg.Connection[Any]] = []
        self.writer = self.connect()

    def connect(self) -> psycopg.Connection[Any]:
        """A connection in autocommit mode."""
        opened = psycopg.connect(self.dsn, autocommit=True)
        self._opened.append(opened)
        return opened

    def execute(self, *statements: str) -> None:
        """Statements, each its own transaction unless BEGIN says otherwise."""
        for statement in statements:
            self.writer.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """A query's rows, as the driver of any application gives them."""
        return self.writer.execute(query).fetchall()

    def source(self, **options: str) -> PostgresSource:
        """A source, as a new process would open it."""
        opened = PostgresSource("s", self.dsn, options)
        self._opened.append(opened)
        return opened

    def ready(self, *names: str, **options: str) -> tuple[PostgresSource, History]:
        """A source with these tables set up, all if none is named, and its history from now on."""
        source = self.source(**options)
        prepared = source.setup([table for table in source.tables() if not names or table.name in names])
        assert not prepared.needed, prepared.needed
        return source, History(source)

    def close(self) -> None:
        """Closes what is open."""
        for opened in self._opened:
            opened.close()


class History:
    """What a warehouse would keep; it is the `SourceTxids` that the source translates with.

    `lost` has what was found at the source itself, not in transactions.
    """

    def __init__(self, source: PostgresSource, log_position: str = "") -> None:
        self.source = source
        self.log_position = log_position or source.current_position("s")
        self.transactions: list[CapturedTransaction] = []
        self.lost: dict[str, Loss] = {}
        self._origin = self.log_position
        self._versions: dict[int, int] = {}
        self._order: tuple[list[int], list[int]] = ([], [])

    def capture(self, limit: int = 1000, acknowledge: bool = False) -> list[CapturedTransaction]:
        """Takes all that is new; that."""
        before = len(self.transactions)
        while True:
            batch = self.source.capture("s", self.log_position, limit)
            self.keep(batch.transactions, batch.log_position)
            self.lost |= batch.lost
            if not batch.transactions:
                break
            if acknowledge:
                self.source.acknowledge("s", self.log_position)
        return self.transactions[before:]

    def keep(self, transactions: Iterable[CapturedTransaction], log_position: str) -> None:
        """Adds a batch."""
        for each in transactions:
            self.transactions.append(each)
            assert each.source_txid not in self._versions, "captured twice"
            self._versions[each.source_txid] = len(self.transactions)
        self.log_position = log_position

    def log_position_before(self, transaction: CapturedTransaction) -> str:
        """Where capture stood before a transaction."""
        place = self.transactions.index(transaction)
        return self.transactions[place - 1].log_position if place else self._origin

    def latest(self, source_txid: int) -> int:
        """The greatest version whose source txid is not greater."""
        source_txids, greatest = self._sorted()
        place = bisect_right(source_txids, source_txid)
        return greatest[place - 1] if place else 0

    def versions(self, source_txids: Sequence[int]) -> dict[int, int]:
        """The versions of the source txids that are known."""
        return {
            source_txid: self._versions[source_txid]
            for source_txid in source_txids
            if source_txid in self._versions
        }

    def since(self, source_txid: int) -> dict[int, int]:
        """The versions of the source txids from this one on."""
        source_txids, _ = self._sorted()
        return {each: self._versions[each] for each in source_txids[bisect_left(source_txids, source_txid) :]}

    def _sorted(self) -> tuple[list[int], list[int]]:
        """All source txids in order, and beside each the greatest version so far."""
        if len(self._order[0]) != len(self._versions):
            source_txids = sorted(self._versions)
            self._order = (
                source_txids,
                list(accumulate((self._versions[source_txid] for source_txid in source_txids), max)),
            )
        return self._order

    def seen(self, read_point: str) -> Seen:
        """What a reading saw; captures until that is known."""
        for _ in range(50):
            seen = self.source.seen("s", read_point, self)
            if seen is not None:
                return seen
            self.capture()
        raise AssertionError("what was seen is not captured")

    def changes(self, table: str, seen: Seen) -> Bag:
        """The sum of all changes to a table that were seen."""
        total: Bag = Counter()
        for version, transaction in enumerate(self.transactions, 1):
            if version in seen and f"s.{table}" in transaction.rows:
                add(total, bag(transaction.rows[f"s.{table}"]))
        return net(total)


def bag(rows: Rows) -> Bag:
    """Rows as a bag of tuples."""
    total: Bag = Counter()
    for part in arrow_tables(rows):
        names = [name for name in part.column_names if name != COUNT]
        columns = [part.column(name).to_pylist() for name in names]
        values = zip(*columns, strict=True) if columns else [()] * part.num_rows
        for value, count in zip(values, part.column(COUNT).to_pylist(), strict=True):
            total[value] += count
    return net(total)


def arrow_tables(rows: Rows) -> list[pa.Table]:
    """The same in memory, whether it is in files or not."""
    if isinstance(rows, pa.Table):
        return [rows]
    return [parquet.read_table(file.path) for file in rows.files]


def add(total: Bag, more: Mapping[tuple[Any, ...], int], sign: int = 1) -> None:
    """Adds counts, which may be negative."""
    for row, count in more.items():
        total[row] += sign * count


def net(counts: Bag) -> Bag:
    """Without rows that cancel."""
    return Counter({row: count for row, count in counts.items() if count})


def table_named(source: PostgresSource, name: str) -> Table:
    """A table as the source describes it."""
    return next(table for table in source.tables() if table.name == name)


def read(source: PostgresSource, name: str, scratch: Path = Path("unused")) -> ReadResult:
    """A whole table."""
    table = table_named(source, name)
    return source.read({table: table.columns}, scratch)

"""A database under test, the source that captures it, and the history that comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rollview.algebra.bag import COUNT
from rollview.algebra.history import Seen
from rollview.algebra.relation import Table
from rollview.rows import Rows
from rollview.sources.mariadb import MariaDBSource
from rollview.sources.source import CapturedTransaction, Lookup, Loss, SetupResult
from rollview.testing.lookup_suite import first_plan
from servers.mariadb import MariaDBServer

Row = tuple[Any, ...]


def counted(rows: Rows, columns: Sequence[str] | None = None) -> Counter[Row]:
    """Net counts by row, of files as well."""
    if isinstance(rows, pa.Table):
        table = rows
    else:
        table = pa.concat_tables([pq.ParquetFile(file.path).read() for file in rows.files])
    names = list(columns or (name for name in table.column_names if name != COUNT))
    counts: Counter[Row] = Counter()
    values = [table.column(name).to_pylist() for name in names]
    for *row, count in zip(*values, table.column(COUNT).to_pylist(), strict=True):
        counts[tuple(row)] += count
    return Counter({row: count for row, count in counts.items() if count})


class Database:
    """One database of a server, with a source called `s`."""

    def __init__(self, server: MariaDBServer, name: str) -> None:
        self.server = server
        self.name = name
        self.dsn = server.create_database(name)
        self.source = self.open()

    def open(self, **options: str) -> MariaDBSource:
        """The source as another process would have it."""
        return MariaDBSource("s", self.dsn, options)

    def execute(self, *statements: str) -> tuple[Any, ...]:
        """Runs statements as the administrator; the rows of the last one."""
        return self.server.execute(*statements, database=self.name)

    def connect(self, **settings: Any) -> Any:
        """A connection for a writer."""
        return self.server.connect(self.name, **settings)

    def tables(self) -> dict[str, Table]:
        """The tables by name."""
        return {table.name: table for table in self.source.tables()}

    def setup(self, *names: str) -> SetupResult:
        """Captures these tables, or all."""
        return self.source.setup(
            [table for table in self.tables().values() if table.name in names or not names]
        )

    def read(self, name: str) -> Counter[Row]:
        """A table as the source reads it."""
        table = self.tables()[name]
        return counted(self.source.read({table: table.columns}, Path("/nonexistent")).rows[0], table.columns)

    def close(self) -> None:
        self.source.close()
        self.server.drop_database(self.name)


class History:
    """What has been captured since a log position; it is the `Marks` that read points are translated with."""

    def __init__(self, source: MariaDBSource, log_position: str | None = None) -> None:
        self.source = source
        self.log_position = source.current_position("s") if log_position is None else log_position
        self.transactions: list[CapturedTransaction] = []
        self.noticed: dict[str, Loss] = {}

    def capture(self, limit: int = 10_000) -> list[CapturedTransaction]:
        """Takes all that is new; that."""
        begin = len(self.transactions)
        while True:
            batch = self.source.capture("s", self.log_position, limit)
            self.noticed |= batch.lost
            if not batch.transactions and batch.log_position == self.log_position:
                return self.transactions[begin:]
            self.transactions += batch.transactions
            self.log_position = batch.log_position

    def logged(self) -> dict[str, Loss]:
        """The losses in transactions, the first of each table."""
        found: dict[str, Loss] = {}
        for each in self.transactions:
            found = {**each.lost, **found}
        return found

    def latest(self, source_txid: int) -> int:
        return sum(each.source_txid <= source_txid for each in self.transactions)

    def versions(self, source_txids: Sequence[int]) -> dict[int, int]:
        known = {each.source_txid: number for number, each in enumerate(self.transactions, 1)}
        return {source_txid: known[source_txid] for source_txid in source_txids if source_txid in known}

    def since(self, source_txid: int) -> dict[int, int]:
        return {
            each.source_txid: number
            for number, each in enumerate(self.transactions, 1)
            if each.source_txid >= source_txid
        }

    def seen(self, read_point: str) -> Seen | None:
        """What a reading saw."""
        return self.source.seen("s", read_point, self)

    def changes(self, table: str) -> list[Counter[Row]]:
        """Of every transaction what it did to a table."""
        return [
            counted(each.rows[f"s.{table}"]) if f"s.{table}" in each.rows else Counter()
            for each in self.transactions
        ]


def look_up(database: Database, sql: str, keys: Mapping[str, pa.Array]) -> list[Counter[Row]]:
    """The rows for each relation of the first sub-query of a view, from its first relation's key values."""
    return [counted(rows) for rows in database.source.lookup(planned(database, sql, keys)).rows]


def planned(database: Database, sql: str, keys: Mapping[str, pa.Array]) -> tuple[Lookup, ...]:
    """What a change of a view's first relation looks up; `keys` by column of that relation."""
    return first_plan(database.source, sql, database.tables().values(), keys)

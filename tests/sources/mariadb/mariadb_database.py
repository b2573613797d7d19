"""A database under test, the source that captures it, and the history that comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rollview.algebra.history import Seen
from rollview.algebra.join_graph import access_path
from rollview.algebra.view import Table
from rollview.algorithms.effects import Question
from rollview.planning import parse_view
from rollview.rows import Rows
from rollview.sources.mariadb import MariaDBSource
from rollview.sources.source import COUNT, Captured, Prepared
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

    def setup(self, *names: str) -> Prepared:
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
    """What has been captured since a bookmark; it is the `Marks` that sights are translated with."""

    def __init__(self, source: MariaDBSource, bookmark: str | None = None) -> None:
        self.source = source
        self.bookmark = source.origin("s") if bookmark is None else bookmark
        self.transactions: list[Captured] = []

    def capture(self, limit: int = 10_000) -> list[Captured]:
        """Takes all that is new; that."""
        begin = len(self.transactions)
        while True:
            batch = self.source.capture("s", self.bookmark, limit)
            if not batch.transactions and batch.bookmark == self.bookmark:
                return self.transactions[begin:]
            self.transactions += batch.transactions
            self.bookmark = batch.bookmark

    def latest(self, mark: int) -> int:
        return sum(each.mark <= mark for each in self.transactions)

    def versions(self, marks: Sequence[int]) -> dict[int, int]:
        known = {each.mark: number for number, each in enumerate(self.transactions, 1)}
        return {mark: known[mark] for mark in marks if mark in known}

    def since(self, mark: int) -> dict[int, int]:
        return {each.mark: number for number, each in enumerate(self.transactions, 1) if each.mark >= mark}

    def seen(self, sight: str) -> Seen | None:
        """What a reading saw."""
        return self.source.seen("s", sight, self)

    def changes(self, table: str) -> list[Counter[Row]]:
        """Of every transaction what it did to a table."""
        return [
            counted(each.rows[f"s.{table}"]) if f"s.{table}" in each.rows else Counter()
            for each in self.transactions
        ]


def ask(database: Database, sql: str, keys: Mapping[str, pa.Array]) -> list[Counter[Row]]:
    """The rows for each relation of the first sub-query of a view, from its first relation's key values."""
    return [counted(rows) for rows in database.source.ask(question(database, sql, keys)).rows]


def question(database: Database, sql: str, keys: Mapping[str, pa.Array]) -> Question[pa.Table]:
    """The sub-query that a view's first relation leads to; `keys` by column of the first relation."""
    (block,) = parse_view(sql, database.tables().values()).blocks
    (sub_query, *_) = access_path(block, 0).rounds[0]
    shipped: list[pa.Table | None] = []
    for reach in sub_query.reaches:
        if reach.shipped:
            names = [parent for parent, _ in reach.on]
            columns = [keys[name.partition(".")[2]] for name in names]
            shipped.append(pa.table(columns, names=names) if names else None)
    return Question(block, sub_query, tuple(shipped))

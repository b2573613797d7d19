"""Changed rows of one table on their way from a server's log to Arrow, cut into transactions.

Small transactions are many: their rows become one Arrow table per batch, of which each has a slice. Large
ones are few: beyond `SPILL_ROWS` rows they are written to Parquet files while they come in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from rollview.errors import UnrepresentableValue
from rollview.rows import FileScan, Rows, ScanFile, arrow_schema
from rollview.sources.source import COUNT

SPILL_ROWS = 200_000

Convert = Callable[[list[Any]], pa.Array]
"""From the raw values of one column to an array of the column's Arrow type."""


class ChangedRows:
    """Collects the rows of one table; `add` is all that happens per row."""

    def __init__(
        self, columns: Sequence[tuple[str, str]], convert: Sequence[Convert], spill: Callable[[], Path]
    ) -> None:
        """`columns` with their Spark types; `spill` names a new file each time."""
        self._schema = arrow_schema((*columns, (COUNT, "bigint")))
        self._columns = (*columns, (COUNT, "bigint"))
        self._convert = convert
        self._spill = spill
        self._rows: list[Sequence[Any]] = []
        self._counts: list[int] = []
        self._begin = 0
        self._files: list[ScanFile] = []
        self._table: pa.Table | None = None
        self._unconverted: tuple[list[Sequence[Any]], list[int]] | None = None

    def add(self, values: Sequence[Any], count: int) -> None:
        """One row of the present transaction: +1 inserted, −1 deleted."""
        self._rows.append(values)
        self._counts.append(count)
        if len(self._rows) - self._begin >= SPILL_ROWS:
            self._write_file()

    def end_transaction(self) -> Callable[[], Rows] | None:
        """Ends the present transaction; its rows are there once the batch is finished."""
        begin, end = self._begin, len(self._rows)
        if self._files:
            try:
                if end > begin:
                    self._write_file()
            except UnrepresentableValue as error:
                self.drop_transaction()
                return _failing(error)
            scan = FileScan(tuple(self._files), self._columns)
            self._files = []
            return lambda: scan
        if begin == end:
            return None
        self._begin = end
        return lambda: self._slice(begin, end)

    def drop_transaction(self) -> None:
        """Forgets the rows of the present transaction: it was rolled back, or will come again."""
        for file in self._files:
            Path(file.path).unlink(missing_ok=True)
        self._files = []
        del self._rows[self._begin :], self._counts[self._begin :]

    def finish(self) -> None:
        """Converts all rows of the batch that are in memory.

        A value that Spark cannot represent fails only the transactions that have it, when theirs are asked
        for.
        """
        try:
            self._table = self._converted(self._rows, self._counts)
            self._unconverted = None
        except UnrepresentableValue:
            self._unconverted = self._rows, self._counts
        self._rows, self._counts, self._begin = [], [], 0

    def _slice(self, begin: int, end: int) -> pa.Table:
        if self._unconverted is not None:
            rows, counts = self._unconverted
            return self._converted(rows[begin:end], counts[begin:end])
        assert self._table is not None, "the batch is not finished"
        return self._table.slice(begin, end - begin)

    def _write_file(self) -> None:
        path = self._spill()
        path.parent.mkdir(parents=True, exist_ok=True)
        table = self._converted(self._rows[self._begin :], self._counts[self._begin :])
        parquet.write_table(table, path)
        self._files.append(ScanFile(str(path)))
        del self._rows[self._begin :], self._counts[self._begin :]

    def _converted(self, rows: Sequence[Sequence[Any]], counts: Sequence[int]) -> pa.Table:
        if not rows:
            return self._schema.empty_table()
        values = zip(*rows, strict=True) if self._convert else ()
        arrays = [convert(list(column)) for convert, column in zip(self._convert, values, strict=True)]
        return pa.Table.from_arrays([*arrays, pa.array(counts, pa.int64())], schema=self._schema)


def _failing(error: UnrepresentableValue) -> Callable[[], Rows]:
    """In place of rows that are not available: reading them raises the reason."""

    def fail() -> Rows:
        raise error

    return fail

"""What a warehouse would keep of one site, in plain Python: the oracle for read points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rollview.sources.source import COUNT, Batch, CapturedTransaction, Rows, Seen, Source
from rollview.testing.driver import Row


def counted_rows(rows: Rows, columns: Sequence[str]) -> Counter[Row]:
    """Net counts by row. Files are read one by one, and their ranges are ignored, as a caller may."""
    if isinstance(rows, pa.Table):
        found = rows.select([*columns, COUNT]).to_pylist()
    else:
        found = []
        for file in rows.files:
            held = [name for name in columns if name not in file.constants]
            # Without the option, folder names such as `region=1` would be read as columns.
            part = pq.ParquetFile(file.path).read(columns=held)
            found += [{**row, **file.constants} for row in part.to_pylist()] if held else (
                [dict(file.constants)] * part.num_rows
            )  # fmt: skip
    counts: Counter[Row] = Counter()
    for row in found:
        counts[tuple(row[name] for name in columns)] += row[COUNT]
    return net(counts)


def net(counts: Counter[Row]) -> Counter[Row]:
    """Without rows that cancel."""
    return Counter({row: count for row, count in counts.items() if count})


def added(one: Counter[Row], other: Counter[Row]) -> Counter[Row]:
    """The sum, which may be negative where `Counter`'s own may not."""
    total = Counter(one)
    for row, count in other.items():
        total[row] += count
    return net(total)


class Ledger:
    """The transactions of one site since a log position; it is the `SourceTxids` that the source translates
    with.
    """

    def __init__(self, source: Source, site: str, log_position: str | None = None) -> None:
        self.source = source
        self.site = site
        self.log_position = source.current_position(site) if log_position is None else log_position
        self.transactions: list[CapturedTransaction] = []
        self.batches: list[tuple[str, Batch]] = []

    def capture(self, limit: int = 1000) -> None:
        """Takes all that is new, batch by batch."""
        while True:
            batch = self.source.capture(self.site, self.log_position, limit)
            if not batch.transactions and batch.log_position == self.log_position:
                return
            self.batches.append((self.log_position, batch))
            self.transactions += batch.transactions
            self.log_position = batch.log_position

    def before(self, log_position: str) -> list[CapturedTransaction]:
        """The transactions of the batches that end at a log position or earlier."""
        place = [after for after, _ in self.batches].index(log_position)
        return [each for _, batch in self.batches[:place] for each in batch.transactions]

    def latest(self, source_txid: int) -> int:
        return max(
            (n for n, each in enumerate(self.transactions, 1) if each.source_txid <= source_txid), default=0
        )

    def versions(self, source_txids: Sequence[int]) -> dict[int, int]:
        known = {each.source_txid: number for number, each in enumerate(self.transactions, 1)}
        return {source_txid: known[source_txid] for source_txid in source_txids if source_txid in known}

    def since(self, source_txid: int) -> dict[int, int]:
        return {
            each.source_txid: n
            for n, each in enumerate(self.transactions, 1)
            if each.source_txid >= source_txid
        }

    def state(self, table: str, columns: Sequence[str], initial: Counter[Row], seen: Seen) -> Counter[Row]:
        """The table as a reading must have shown it that saw these transactions."""
        state = initial
        for number, transaction in enumerate(self.transactions, 1):
            if number in seen and f"s.{table}" in transaction.rows:
                state = added(state, counted_rows(transaction.rows[f"s.{table}"], columns))
        return state


def comparable(batch: Batch, columns: Mapping[str, Sequence[str]]) -> list[Any]:
    """A batch as something that can be compared with another one."""
    return [
        (
            each.source_txid,
            each.commit_time,
            each.transaction_id,
            {name: counted_rows(rows, columns[name.partition(".")[2]]) for name, rows in each.rows.items()},
        )
        for each in batch.transactions
    ]

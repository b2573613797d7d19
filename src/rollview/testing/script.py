"""The script of the suite: random transactions, committed one by one, and their ledgers."""

from __future__ import annotations

import datetime
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from rollview.sources.source import COUNT, Batch, CapturedTransaction, Rows, Seen, Source
from rollview.testing.driver import SCHEMAS, Columns, Driver, Row, Write

# The records that a warehouse would keep for one site, in plain Python: the oracle for read points.


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
        """Captures everything that is new, batch by batch."""
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


COLUMNS = {name: tuple(column for column, _ in columns) for name, columns in SCHEMAS.items()}
FIRST_ROWS: dict[str, list[Row]] = {
    "orders": [(1, 1, "a"), (2, 2, None), (3, None, "")],
    "customer": [(1, 2, "Ann"), (2, None, "Bob"), (3, 1, None)],
}
TYPES: dict[str, list[Any]] = {
    "bigint": [1, -(2**63), 2**63 - 1, None],
    "int": [0, -(2**31), 2**31 - 1, None],
    "smallint": [0, -(2**15), 2**15 - 1, None],
    "double": [0.5, -1e300, 3.0, None],
    "float": [0.5, -2.0, None],
    "decimal(15,2)": [Decimal("1.10"), Decimal("-9999999999999.99"), None],
    "string": ["", "plain", 'a "quoted", text\nof two lines', "größer 中 😀", "x" * 200, None],
    "boolean": [True, False, None],
    "date": [datetime.date(2020, 2, 29), datetime.date(1900, 1, 1), None],
    "timestamp": [datetime.datetime(2020, 1, 1, 1, 1, 1, 123456, tzinfo=datetime.UTC), None],
    "timestamp_ntz": [datetime.datetime(2020, 1, 1, 1, 1, 1, 123456), None],
    "binary": [b"\x00\xff", b"plain", None],
}
several = settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    # The suite's methods run in one class per source.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
ids = st.integers(1, 5)
values = st.none() | st.tuples(st.none() | st.integers(1, 4), st.sampled_from([None, "", "a", "b"]))
transactions = st.lists(
    st.lists(st.tuples(st.sampled_from(sorted(SCHEMAS)), ids, values), min_size=1, max_size=4),
    min_size=1,
    max_size=4,
)
Script = list[list[tuple[str, int, tuple[Any, Any] | None]]]


@contextmanager
def opened(
    kind: type[Driver],
    schemas: Mapping[str, Columns] = SCHEMAS,
    rows: Mapping[str, Sequence[Row]] = FIRST_ROWS,
) -> Iterator[Driver]:
    """A new database of this kind with the source beside it, set up."""
    with tempfile.TemporaryDirectory() as folder:
        driver = kind(Path(folder), rows, schemas)
        try:
            driver.source.setup(tuple(driver.tables().values()))
            yield driver
        finally:
            driver.close()


def gap(kind: type[Driver], behaviour: str) -> None:
    """Skips the features that the driver declares as unsupported, and nothing else."""
    if behaviour in kind.gaps:
        pytest.skip(kind.gaps[behaviour])


def held(kind: type[Driver], column: str) -> list[Any]:
    """Values of a type that the database can hold."""
    unheld, _ = kind.unheld.get(column, ((), ""))
    return [value for value in TYPES[column] if value not in unheld]


def committed(driver: Driver, script: Script) -> Iterator[set[str]]:
    """Commits the script's transactions one by one; each time yields the tables that changed."""
    for steps in script:
        # The last value of a row counts, and a row may be set to its own value: no write at all.
        wanted = {(table, number): value for table, number, value in steps}
        writes = []
        for (table, number), value in wanted.items():
            before = next((row for row in driver.rows(table) if row[0] == number), None)
            after = None if value is None else (number, *value)
            if before != after:
                writes.append(Write(table, before, after))
        parts: Sequence[Sequence[Write]] = [writes]
        if driver.separate_logs:
            parts = [[write for write in writes if write.table == table] for table in SCHEMAS]
        for part in parts:
            if part:
                driver.commit(part)
                yield {write.table for write in part}


def ledgers_of(driver: Driver, origins: Mapping[str, str] | None = None) -> dict[str, Ledger]:
    """One ledger per site, from now on or from these log positions."""
    sites = dict.fromkeys(table.site for table in driver.tables().values())
    return {site: Ledger(driver.source, site, (origins or {}).get(site)) for site in sites}


def replayed(
    driver: Driver, ledger: Ledger, initial: Mapping[str, Counter[Row]], seen: Seen
) -> dict[str, Any]:
    """The tables of a site as their log describes them."""
    tables = [table.name for table in driver.tables().values() if table.site == ledger.site]
    return {name: ledger.state(name, COLUMNS[name], initial[name], seen) for name in tables}


def current(driver: Driver) -> dict[str, Counter[Row]]:
    """All tables as they are now."""
    return {name: driver.rows(name) for name in SCHEMAS}

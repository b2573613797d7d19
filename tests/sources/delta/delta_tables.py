"""Small Delta tables for tests, and their changes as plain counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from obstore.store import LocalStore

from rollview.algebra.bag import COUNT
from rollview.rows import Rows
from rollview.sources.bucket import Bucket
from rollview.sources.delta import DeltaSource

SITE = "d.orders"
Counts = Counter[tuple[Any, ...]]
Opened = Callable[..., DeltaSource]
"""Opens a folder of tables as a source `d`, with options."""


def in_bucket(folder: Path, copies: Path) -> Bucket:
    """A folder as object storage has it: listings and whole objects, of which `copies` has files."""
    return Bucket(LocalStore(folder), "s3://bucket", copies)


def make_table(folder: Path, rows: Sequence[tuple[int, str | None]], **options: Any) -> DeltaTable:
    """Table `orders(k, v)` in a folder."""
    write_deltalake(str(folder / "orders"), arrow(rows), **options)
    return DeltaTable(folder / "orders")


def append(folder: Path, rows: Sequence[tuple[int, str | None]]) -> None:
    """One commit that adds rows."""
    write_deltalake(str(folder / "orders"), arrow(rows), mode="append")


def arrow(rows: Sequence[tuple[int, str | None]]) -> pa.Table:
    """Rows of `orders`."""
    keys, values = [k for k, _ in rows], [v for _, v in rows]
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.string())})


def counts(rows: Rows) -> Counts:
    """Net counts by row, files read by Parquet's own reader."""
    if isinstance(rows, pa.Table):
        listed = rows.to_pylist()
    else:
        listed = []
        for file in rows.files:
            listed += [{**row, **file.constants} for row in pq.ParquetFile(file.path).read().to_pylist()]
    found: Counts = Counter()
    for row in listed:
        found[tuple(value for name, value in row.items() if name != COUNT)] += row[COUNT]
    return Counter({row: count for row, count in found.items() if count})


def captured(source: DeltaSource, after: str, limit: int = 1000) -> tuple[list[Counts], str]:
    """The changes of each transaction after a log position, and the next log position."""
    batch = source.capture(SITE, after, limit)
    return [counts(each.rows[SITE]) for each in batch.transactions], batch.log_position

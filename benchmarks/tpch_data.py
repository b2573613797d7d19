"""TPC-H as Delta tables: generated once per scale, changed by the refresh functions as Delta commits.

`tpchgen-cli` writes Parquet files sorted by key, about a million rows each; they become Delta tables as they
are. RF1 inserts new orders with their line items, RF2 deletes old ones, and a few customers move to another
market segment, each as commits of the tables concerned.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.transaction import AddAction, create_table_with_add_actions

TABLES = ("customer", "nation", "orders", "lineitem")
KEYS = {"customer": "c_custkey", "nation": "n_nationkey", "orders": "o_orderkey", "lineitem": "l_orderkey"}


def generate(folder: Path, scale: float) -> Path:
    """The generated Parquet files of a scale; made once."""
    target = folder / f"scale-{scale:g}"
    if (target / "complete").exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    program = Path(sys.executable).parent / "tpchgen-cli"
    parts = {"lineitem": max(1, round(6 * scale)), "orders": max(1, round(1.5 * scale))}
    for table in TABLES:
        arguments = ["parquet", "-s", f"{scale:g}", f"--tables={table}", f"--parts={parts.get(table, 1)}"]
        subprocess.run([program, *arguments, "-o", target], check=True, capture_output=True)
    (target / "complete").touch()
    return target


def as_delta(generated: Path, folder: Path) -> Path:
    """Fresh Delta tables over copies (hard links) of the generated files."""
    shutil.rmtree(folder, ignore_errors=True)
    for table in TABLES:
        target = folder / table
        target.mkdir(parents=True)
        actions, schema = [], None
        found = sorted((generated / table).glob("*.parquet")) if (generated / table).is_dir() else []
        for file in found or [generated / f"{table}.parquet"]:
            (target / file.name).hardlink_to(file)
            metadata = pq.ParquetFile(file).metadata
            schema = pq.ParquetFile(file).schema_arrow
            low, high = _range(metadata, KEYS[table])
            statistics = {
                "numRecords": metadata.num_rows,
                "minValues": {KEYS[table]: low},
                "maxValues": {KEYS[table]: high},
                "nullCount": {KEYS[table]: 0},
            }
            size = file.stat().st_size
            actions.append(AddAction(file.name, size, {}, 0, True, json.dumps(statistics)))
        assert schema is not None
        create_table_with_add_actions(
            str(target),
            Schema.from_arrow(_plain(schema)),
            actions,
            mode="error",
            configuration={"delta.enableChangeDataFeed": "true"},
        )
    return folder


def _range(metadata: pq.FileMetaData, column: str) -> tuple[int, int]:
    position = metadata.schema.names.index(column)
    groups = [metadata.row_group(n).column(position).statistics for n in range(metadata.num_row_groups)]
    return min(each.min for each in groups), max(each.max for each in groups)


def _plain(schema: pa.Schema) -> pa.Schema:
    """Without field ids, and with ordinary strings."""
    kinds = {pa.string_view(): pa.string()}
    return pa.schema([pa.field(each.name, kinds.get(each.type, each.type)) for each in schema])


class Refresh:
    """The refresh functions over the Delta tables of a folder."""

    def __init__(self, folder: Path, scale: float) -> None:
        self.folder = folder
        self.orders = round(1_500_000 * scale)
        self._used = 0

    def batch(self, share: float) -> int:
        """Changes about `share` of orders and line items, half new and half gone; returns changed orders."""
        each = max(1, round(self.orders * share / 2))
        first, last = self._keys(each)
        self._insert(first, last)
        first, last = self._keys(each)
        self._delete(first, last)
        self._move_customers()
        return 2 * each

    def _keys(self, orders: int) -> tuple[int, int]:
        """The range of order keys of so many orders that no batch has used yet: 8 keys of every 32 exist."""
        first = self._used * 4 + 1
        self._used += orders + 8
        return first, (first - 1) + orders * 4

    def _table(self, name: str) -> DeltaTable:
        return DeltaTable(str(self.folder / name))

    def _insert(self, first: int, last: int) -> None:
        for name in ("orders", "lineitem"):
            key, table = KEYS[name], self._table(name)
            files = [f"'{uri}'" for uri in table.file_uris()]
            query = f"SELECT * REPLACE ({key} + 8 AS {key}) FROM read_parquet([{','.join(files)}])"
            rows = duckdb.sql(f"{query} WHERE {key} BETWEEN {first} AND {last}").to_arrow_table()
            schema = pa.schema(table.schema().to_arrow())
            write_deltalake(table, rows.cast(schema), mode="append")

    def _delete(self, first: int, last: int) -> None:
        for name in ("lineitem", "orders"):
            self._table(name).delete(f"{KEYS[name]} BETWEEN {first} AND {last}")

    def _move_customers(self, number: int = 5) -> None:
        first = 1 + self._used % 1000
        self._table("customer").update(
            predicate=f"c_custkey BETWEEN {first} AND {first + number - 1}",
            updates={
                "c_mktsegment": "CASE WHEN c_mktsegment = 'BUILDING' THEN 'MACHINERY' ELSE 'BUILDING' END"
            },
        )

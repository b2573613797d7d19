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
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.transaction import AddAction, create_table_with_add_actions

KEYS = {
    "customer": ("c_custkey",),
    "nation": ("n_nationkey",),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
    "region": ("r_regionkey",),
    "part": ("p_partkey",),
    "supplier": ("s_suppkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
}
"""The primary keys; files are sorted by them."""


def generate(folder: Path, scale: float, tables: Sequence[str]) -> Path:
    """The generated Parquet files of a scale; made once."""
    target = folder / f"scale-{scale:g}"
    program = Path(sys.executable).parent / "tpchgen-cli"
    parts = {"lineitem": max(1, round(6 * scale)), "orders": max(1, round(1.5 * scale))}
    for table in tables:
        if (target / f"{table}.complete").exists():
            continue
        shutil.rmtree(target / table, ignore_errors=True)
        arguments = ["parquet", "-s", f"{scale:g}", f"--tables={table}", f"--parts={parts.get(table, 1)}"]
        subprocess.run([program, *arguments, "-o", target], check=True, capture_output=True)
        (target / f"{table}.complete").touch()
    return target


def as_delta(generated: Path, folder: Path, sources: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    """Fresh Delta tables over copies (hard links) of the generated files, a folder for each source."""
    shutil.rmtree(folder, ignore_errors=True)
    places = {table: folder / source / table for source, tables in sources.items() for table in tables}
    for table, target in places.items():
        target.mkdir(parents=True)
        key = KEYS[table][0]
        actions, schema = [], None
        found = sorted((generated / table).glob("*.parquet")) if (generated / table).is_dir() else []
        for file in found or [generated / f"{table}.parquet"]:
            (target / file.name).hardlink_to(file)
            metadata = pq.ParquetFile(file).metadata
            schema = pq.ParquetFile(file).schema_arrow
            low, high = _range(metadata, key)
            statistics = {
                "numRecords": metadata.num_rows,
                "minValues": {key: low},
                "maxValues": {key: high},
                "nullCount": {key: 0},
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
    return places


def files_of(place: Path) -> str:
    """The files of a Delta table as it is now, as DuckDB reads them."""
    files = ",".join(f"'{uri}'" for uri in DeltaTable(str(place)).file_uris())
    return f"read_parquet([{files}])"


def _range(metadata: pq.FileMetaData, column: str) -> tuple[int, int]:
    position = metadata.schema.names.index(column)
    groups = [metadata.row_group(n).column(position).statistics for n in range(metadata.num_row_groups)]
    return min(each.min for each in groups), max(each.max for each in groups)


def _plain(schema: pa.Schema) -> pa.Schema:
    """Without field ids, and with ordinary strings."""
    kinds = {pa.string_view(): pa.string()}
    return pa.schema([pa.field(each.name, kinds.get(each.type, each.type)) for each in schema])


class Refresh:
    """The refresh functions over Delta tables."""

    def __init__(self, places: Mapping[str, Path], scale: float) -> None:
        self.places = places
        self.orders = round(1_500_000 * scale)
        self._used = 0

    def batch(self, share: float) -> int:
        """Changes about `share` of orders and line items, half new and half gone; returns changed orders."""
        each = max(1, round(self.orders * share / 2))
        first, last = self._keys(each)
        for name in ("orders", "lineitem"):
            self.insert(name, first, last)
        first, last = self._keys(each)
        for name in ("lineitem", "orders"):
            self.delete(name, first, last)
        self._move_customers()
        return 2 * each

    def _keys(self, orders: int) -> tuple[int, int]:
        """The range of order keys of so many orders that no batch has used yet: 8 keys of every 32 exist."""
        first = self._used * 4 + 1
        self._used += orders + 8
        return first, (first - 1) + orders * 4

    def insert(self, name: str, first: int, last: int) -> None:
        """Adds copies of the rows of a range of keys, with keys that are free."""
        key, table = KEYS[name][0], DeltaTable(str(self.places[name]))
        query = f"SELECT * REPLACE ({key} + 8 AS {key}) FROM {files_of(self.places[name])}"
        rows = duckdb.sql(f"{query} WHERE {key} BETWEEN {first} AND {last}").to_arrow_table()
        schema = pa.schema(table.schema().to_arrow())
        write_deltalake(table, rows.cast(schema), mode="append")

    def delete(self, name: str, first: int, last: int) -> None:
        """Takes the rows of a range of keys away."""
        DeltaTable(str(self.places[name])).delete(f"{KEYS[name][0]} BETWEEN {first} AND {last}")

    def update(self, name: str, where: str, **updates: str) -> None:
        """Gives columns of some rows other values, both as SQL."""
        DeltaTable(str(self.places[name])).update(predicate=where, updates=updates)

    def _move_customers(self, number: int = 5) -> None:
        first = 1 + self._used % 1000
        self.update(
            "customer",
            f"c_custkey BETWEEN {first} AND {first + number - 1}",
            c_mktsegment="CASE WHEN c_mktsegment = 'BUILDING' THEN 'MACHINERY' ELSE 'BUILDING' END",
        )

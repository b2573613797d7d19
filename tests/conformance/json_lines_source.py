"""A toy connector, written as an outside author would: against `rollview.sources.source` and nothing else.

The database is a folder. `schema.json` gives the tables; `log.jsonl` has a line per transaction, appended and
never changed: `{"time": 1.5, "changes": [["orders", 1, [7, "new"]], ["orders", -1, [6, "old"]]]}`. A table is
the sum of its changes. A transaction's source txid is the number of its line; log positions and read points
are numbers of lines.
"""

# ruff: noqa: ARG002 - the contract hands over more than a toy needs

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from rollview.errors import InputError
from rollview.sources.source import (
    COUNT,
    Batch,
    CapturedTransaction,
    Comparison,
    Lookup,
    ReadResult,
    Rows,
    Seen,
    SetupResult,
    SourceSettings,
    SourceTxids,
    Table,
    arrow_schema,
    run_plan,
)

Entry = tuple[int, dict[str, Any]]
"""A transaction: the number of its line, and what the line says."""

_COMPARED = ("bigint", "int", "smallint", "string", "boolean")


class JsonLinesSource:
    """All tables of one folder."""

    kind = "jsonl"

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder

    @classmethod
    def open(cls, settings: SourceSettings) -> JsonLinesSource:
        return cls(settings.name, settings.path())

    def tables(self) -> tuple[Table, ...]:
        described = json.loads((self._folder / "schema.json").read_text("utf-8"))
        return tuple(
            Table(self.name, name, tuple(columns), types=tuple(columns.values()))
            for name, columns in described.items()
        )

    def setup(self, tables: Sequence[Table]) -> SetupResult:
        return self.check(tables)

    def check(self, tables: Sequence[Table]) -> SetupResult:
        return SetupResult(done=tuple(f"{table.qualified}: nothing to install" for table in tables))

    def remove(self) -> SetupResult:
        return SetupResult()

    def describe(self) -> Mapping[str, str]:
        return {"transactions": "lines of log.jsonl"}

    def current_position(self, site: str) -> str:
        return str(len(self._log(site)))

    def capture(self, site: str, after: str, limit: int) -> Batch:
        taken: list[Entry] = []
        changes = 0
        for number, line in self._log(site)[int(after) :]:
            changes += len(line["changes"])
            if taken and changes > limit:
                break
            taken.append((number, line))
        return self._batch(taken, str(taken[-1][0]) if taken else after)

    def replay(self, site: str, after: str, source_txids: Sequence[int], upto: str) -> Batch:
        return self._batch(self._log(site)[int(after) : int(upto)], upto)

    def acknowledge(self, site: str, upto: str) -> None:
        return

    def can_compare(self, key_type: str, column_type: str) -> bool:
        # Python compares these as Spark does; zeros and NaN of floating point it does not.
        return key_type == column_type and column_type in _COMPARED

    def can_push(self, comparison: Comparison, column_type: str) -> bool:
        return False

    def lookup(self, plan: Sequence[Lookup]) -> ReadResult:
        log = self._log(plan[0].table.site)

        def find(lookup: Lookup, keys: pa.Table | None) -> Rows:
            rows = _state(log, lookup.table.name)
            if keys is not None:
                places = [lookup.table.columns.index(name) for name in keys.column_names]
                wanted = {tuple(key.values()) for key in keys.to_pylist()}
                kept = (row for row in rows if tuple(row[place] for place in places) in wanted)
                rows = {row: rows[row] for row in kept}
            return _as_arrow(lookup.table, lookup.columns, rows)

        return ReadResult(run_plan(plan, find), str(len(log)))

    def read(self, tables: Mapping[Table, Sequence[str]], scratch: Path) -> ReadResult:
        log = self._log(self.name)
        rows = (_as_arrow(table, columns, _state(log, table.name)) for table, columns in tables.items())
        return ReadResult(tuple(rows), str(len(log)))

    def seen(self, site: str, read_point: str, source_txids: SourceTxids) -> Seen | None:
        if int(source_txids.log_position) < int(read_point):
            return None
        return Seen(source_txids.latest(int(read_point)))

    def close(self) -> None:
        return

    def _log(self, site: str) -> list[Entry]:
        """The committed transactions; a last line without its end is still being written."""
        if site != self.name:
            raise InputError(f"source {self.name} has no site {site}", subject=site)
        *lines, _ = (self._folder / "log.jsonl").read_text("utf-8").split("\n")
        return [(number, json.loads(line)) for number, line in enumerate(lines, 1)]

    def _batch(self, entries: Sequence[Entry], log_position: str) -> Batch:
        transactions = []
        for number, line in entries:
            changed = {name for name, _, _ in line["changes"]}
            rows: dict[str, Rows] = {
                table.qualified: _as_arrow(table, table.columns, _state([(number, line)], table.name))
                for table in self.tables()
                if table.name in changed
            }
            transactions.append(CapturedTransaction(number, line["time"], rows))
        return Batch(tuple(transactions), log_position)


def _state(log: Sequence[Entry], table: str) -> dict[tuple[Any, ...], int]:
    """The net effect of transactions on a table, by row."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for _, line in log:
        for name, count, row in line["changes"]:
            if name == table:
                counts[tuple(row)] += count
    return {row: count for row, count in counts.items() if count}


def _as_arrow(table: Table, columns: Sequence[str], rows: Mapping[tuple[Any, ...], int]) -> pa.Table:
    types = dict(zip(table.columns, table.types, strict=True))
    schema = arrow_schema([*((name, types[name]) for name in columns), (COUNT, "bigint")])
    places = [table.columns.index(name) for name in columns]
    values = [*([row[place] for row in rows] for place in places), list(rows.values())]
    arrays = [pa.array(each, field.type) for each, field in zip(values, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)

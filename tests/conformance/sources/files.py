"""A legacy system that dumps its tables: CSV with a declared schema, or Parquet."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rollview.rows import arrow_schema
from rollview.sources.files import FileSource
from rollview.sources.source import Source
from rollview.testing import Modelled, Row, Write


class CsvDriver(Modelled):
    """A transaction is a new dump, written under another name and renamed."""

    separate_logs = True
    gaps = {"type binary": "CSV is text"}  # noqa: RUF012
    suffix = "csv"

    def create(self, rows: Mapping[str, Sequence[Row]]) -> None:
        super().create(rows)
        self._dumps = dict.fromkeys(self.schemas, 0)
        for name in self.schemas:
            (self.folder / name).mkdir()
            self._dump(name)

    def open(self) -> Source:
        options: dict[str, Any] = {"settle_seconds": 0}
        for name, columns in self.schemas.items():
            options[f"schema.{name}"] = ", ".join(f"{column} {kind}" for column, kind in columns)
        return FileSource("s", self.folder, options)

    def commit(self, writes: Sequence[Write]) -> None:
        self.apply(writes)
        for name in {write.table for write in writes}:
            self._dump(name)

    def traces(self) -> Any:
        return sorted(Path(self.folder).rglob("*"))

    def _dump(self, name: str) -> None:
        self._dumps[name] += 1
        final = self.folder / name / f"dump_{self._dumps[name]}.{self.suffix}"
        unfinished = final.with_suffix(".tmp")
        self._write(name, unfinished)
        unfinished.rename(final)

    def _write(self, name: str, path: Path) -> None:
        lines = [",".join(column for column, _ in self.schemas[name])]
        lines += [",".join(_text(value) for value in row) for row in self.model[name]]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


class ParquetDriver(CsvDriver):
    """Parquet brings its types along."""

    gaps = {}  # noqa: RUF012
    suffix = "parquet"

    def open(self) -> Source:
        return FileSource("s", self.folder, {"settle_seconds": 0})

    def _write(self, name: str, path: Path) -> None:
        schema = arrow_schema(self.schemas[name])
        rows = [dict(zip(schema.names, row, strict=True)) for row in self.model[name]]
        pq.write_table(pa.Table.from_pylist(rows, schema), path)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        return value.isoformat().replace("+00:00", "Z")
    return str(value)

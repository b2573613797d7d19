"""A legacy system that dumps its tables: CSV with a declared schema, or Parquet."""

from __future__ import annotations

import datetime
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from obstore.store import LocalStore

from rollview.rows import arrow_schema
from rollview.sources.bucket import Bucket, open_bucket
from rollview.sources.files import FileSource
from rollview.sources.source import Source
from rollview.testing import Modelled, Row, Write
from servers.s3 import shared_server


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
        return FileSource("s", self.place(), options)

    def place(self) -> Path | Bucket:
        """Where the dumps are."""
        return self.folder

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
        return FileSource("s", self.place(), {"settle_seconds": 0})

    def _write(self, name: str, path: Path) -> None:
        schema = arrow_schema(self.schemas[name])
        rows = [dict(zip(schema.names, row, strict=True)) for row in self.model[name]]
        pq.write_table(pa.Table.from_pylist(rows, schema), path)


class DumpsInBucketDriver(CsvDriver):
    """The folder as `obstore` shows it: listings, and whole objects."""

    def place(self) -> Path | Bucket:
        copies = Path(tempfile.mkdtemp(prefix="copies-"))
        place = Bucket(LocalStore(self.folder), "s3://suite", copies)
        weakref.finalize(place, shutil.rmtree, copies, True)
        return place


class DumpsOnS3Driver(ParquetDriver):
    """Dumps in a bucket of a real server, written there by another program."""

    def create(self, rows: Mapping[str, Sequence[Row]]) -> None:
        self._server = shared_server()
        self._kept = self._server.bucket("dumps")
        super().create(rows)

    def place(self) -> Path | Bucket:
        url = f"s3://dumps/{self._kept.prefix}"
        return open_bucket("s", url, self._server.settings, self.folder / ".copies")

    def traces(self) -> Any:
        return sorted(each["path"] for page in self._kept.list() for each in page)

    def _dump(self, name: str) -> None:
        super()._dump(name)
        for file in (self.folder / name).iterdir():
            self._kept.put(f"{name}/{file.name}", file)
            file.unlink()


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
